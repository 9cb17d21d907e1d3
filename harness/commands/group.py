"""A group of commands whose help states each command's purpose in full, and whose errors use our own words."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from harness.commands.reported import Ended
from r2ccl_core.output import harmless, printed

HELP_COLUMNS = 110
"""Longer lines of prose are hard to read."""
LEAST_COLUMNS = 30
"""Help is no narrower, even if the terminal is."""
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_COLUMNS}
"""Typer's options for a program; its groups and commands inherit them."""

USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""The parser's every complaint about arguments, which Typer does not export."""


class Group(TyperGroup):
    """Replaces Typer's one-line summaries of commands, which are cut off, and pydantic's messages about arguments."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Lists every command with the first sentence of its help."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, command.get_short_help_str(limit=1000)) for name, command in found if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuses an empty argument, as an unset variable of a shell script leaves it; a path of it would be the
        folder where the program runs."""
        if "" in args and not ctx.resilient_parsing:
            at = args.index("")
            option = args[at - 1] if at and self._takes_value(ctx, args[:at]) else ""
            told = f"{option} '': is empty; give a value, or leave it out" if option else "'': an argument is empty"
            print(told, file=sys.stderr)
            raise typer.Exit(2)
        return super().parse_args(ctx, args)

    def _takes_value(self, ctx: Any, args: Sequence[str]) -> bool:
        """Whether what follows these arguments is the value of the last one: an option that is no flag."""
        command: Any = self
        for word in args:
            found = command.get_command(ctx, word) if hasattr(command, "get_command") else None
            if found is None:
                break
            command = found
        flags = {name for one in command.params if getattr(one, "is_flag", False) for name in one.opts}
        flags |= {name for one in command.params for name in one.secondary_opts}
        return args[-1].startswith("-") and args[-1] not in {*flags, *command.get_help_option_names(ctx), "--"}

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Lets help be as narrow as the terminal; Click's own is never narrower than 50 columns."""
        columns = min(shutil.get_terminal_size().columns, HELP_COLUMNS) - 2
        extra.setdefault("terminal_width", max(columns, LEAST_COLUMNS))
        with _harmless_errors(), _help_is_output():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command."""
        with _harmless_errors(), _in_our_words(), _help_is_output():
            return super().invoke(ctx)


class WithStatuses(TyperCommand):
    """A command whose epilog is a list of its exit statuses, a line each: ``3 what it means``."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Lists them, as wide as the terminal allows."""
        with formatter.section("Exit status"):
            formatter.write_dl(self.statuses())

    def statuses(self) -> list[tuple[str, str]]:
        """Each status with its meaning."""
        lines = (self.epilog or "").strip().splitlines()
        return [(status, meaning) for status, _, meaning in (line.partition(" ") for line in lines)]


@contextmanager
def _harmless_errors() -> Iterator[None]:
    """What the parser says of a wrong argument shows the argument's control characters escaped."""
    try:
        yield
    except USAGE_ERROR as error:
        told: Any = error
        told.message = harmless(told.message)
        raise


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Replaces what pydantic says of an argument."""
    try:
        yield
    except typer.BadParameter as error:
        from pydantic import ValidationError

        from r2ccl_core.validation import in_our_words

        if isinstance(error.__cause__, ValidationError):
            said = in_our_words(error.__cause__.errors(include_url=False)[0])
            error.message = said.removesuffix(" without quotes")  # our message already says so
        raise


@contextmanager
def _help_is_output() -> Iterator[None]:
    """Help or a version that could not be written is a failure, as it is for commands that only print."""
    try:
        yield
    except typer.Exit as end:
        raise end if isinstance(end, Ended) else typer.Exit(printed(end.exit_code)) from None
