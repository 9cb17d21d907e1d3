"""Writes to standard output and error with the width and the colours that the reader can use.

A terminal gets lines that break between words, and colours unless NO_COLOR is set or TERM is dumb. A file or a pipe
gets one line for each message and no colour; with COLUMNS set, lines are folded as on a terminal.
"""

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH = 180
"""Of tables that go into a file or a pipe, where nothing is gained by folding them."""
LEAST = 20
"""Narrower lines say nothing."""
LEAST_REDRAWN = 40
"""The same of what is redrawn in place: narrower, the terminal breaks its lines itself, and parts of it stay behind."""


def width(stderr: bool = False) -> int | None:
    """How many columns there are; None where lines need no folding."""
    given = os.environ.get("COLUMNS", "")
    if given.isdigit() and int(given) > 0:
        return max(LEAST, int(given))
    stream = sys.stderr if stderr else sys.stdout
    return max(LEAST, shutil.get_terminal_size().columns) if stream.isatty() else None


def is_narrow() -> bool:
    """Whether there are too few columns to redraw lines in place."""
    return shutil.get_terminal_size().columns < LEAST_REDRAWN


def console(wide: int = WIDTH, *, stderr: bool = False) -> "Console":
    """Where tables and coloured lines go; `wide` columns where that is not decided by the terminal or COLUMNS.

    Names come from files: a bracket in one is a bracket, not a style, `:x:` is no picture, and ESC is `\\x1b`.
    """
    from harness.harmless import HarmlessConsole

    plain = bool(os.environ.get("NO_COLOR"))  # rich would leave out colours alone, not bold letters
    columns = width(stderr) or wide
    return HarmlessConsole(
        width=columns, markup=False, emoji=False, highlight=False, stderr=stderr, color_system=None if plain else "auto"
    )


def fits(shown: "Table", out: "Console") -> bool:
    """Whether a table has room on `out` without a word cut or broken."""
    unlimited = out.options.update(width=10_000)
    return out.measure(shown, options=unlimited).maximum <= out.width


def show(shown: "Table", words: Sequence[str], wide: int = WIDTH) -> None:
    """Prints a table on standard output where it has room; otherwise each of its rows in words, one paragraph each."""
    out = console(wide)
    if width() is None or fits(shown, out):
        out.print(shown)
        return
    for text in words:
        say(text, indent="  ")


def folded(text: str, indent: str = "", columns: int | None = None) -> str:
    """Each line of `text` in lines of so many columns, which break between words only; what follows in a paragraph is
    indented by `indent` more than its first line. As it is where there is no width."""
    if columns is None:
        return text
    return "\n".join(_fold(line, indent, columns) for line in text.split("\n"))


def _fold(line: str, indent: str, columns: int) -> str:
    if len(line) <= columns:
        return line
    own = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.strip(), columns, initial_indent=own, subsequent_indent=own + indent, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def say(text: str, style: str = "", indent: str = "") -> None:
    """One paragraph or several on standard output."""
    console().print(folded(text, indent, width()), style=style or None, soft_wrap=True)


def complain(text: str) -> None:
    """What is wrong, on standard error."""
    console(stderr=True).print(folded(text, "  ", width(stderr=True)), style="red", soft_wrap=True)
