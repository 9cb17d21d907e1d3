"""The command line of the status command."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.output import only_printing
from r2ccl_core.status import prometheus, table
from r2ccl_core.status.clean import clean as remove_leftovers
from r2ccl_core.status.read import Life, ProcessStatus, read_folder

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Look = Callable[[], list[ProcessStatus]]


def main() -> None:
    """Reads the arguments, and ends with the exit status."""
    try:
        with only_printing():
            app(prog_name="r2ccl-status")
    except Exception:  # a bug, which has a status that no finding has
        traceback.print_exc()
        sys.exit(70)


@app.command()
def status(
    folder: Annotated[
        Path | None, typer.Argument(envvar="R2CC_STATUS_DIR", help="Where the processes' files are.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array of all processes.")] = False,
    as_prometheus: Annotated[bool, typer.Option("--prometheus", help="Prometheus' text format.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again until Ctrl-C.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between two looks of --watch.")] = 1.0,
    events: Annotated[int, typer.Option("--events", min=0, help="Newest events of each process in the table.")] = 8,
    stale: Annotated[bool, typer.Option("--stale", help="Show processes that have ended, too.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove the files of processes that have ended.")] = False,
) -> None:
    """What the processes of this host say of their NICs: states, bytes, replays, events.

    A process keeps a file when R2CC_STATUS_DIR names a folder. Exit status: 0; 1 when a file could not be read or
    removed, which is told on standard error beside all others; 2 when the folder cannot be read; 74 when standard
    output cannot be written.
    """
    teller = _Teller()
    try:
        if as_json and as_prometheus:
            raise UsageError("--json and --prometheus: choose one")
        if folder is None:
            raise UsageError("no folder: name it, or set R2CC_STATUS_DIR as for the processes")
        if clean:
            teller.tell(remove_leftovers(folder, time.time()))
        look = partial(_look, folder, stale, teller)
        if watch:
            _watch(look, as_json, as_prometheus, every_s, events)
        else:
            _print(look(), as_json, as_prometheus, events)
    except R2cclError as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        pass  # the way to end --watch
    raise typer.Exit(1 if teller.told else 0)


class _Teller:
    """Reports problems with files on standard error, each line once, because --watch reads the files repeatedly."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def tell(self, lines: Iterable[str]) -> None:
        """Prints those of `lines` that are new."""
        for line in lines:
            if line not in self.told:
                self.told.add(line)
                print(line, file=sys.stderr, flush=True)


def _look(folder: Path, stale: bool, teller: _Teller) -> list[ProcessStatus]:
    found = read_folder(folder, time.time())
    teller.tell(found.unread.values())
    return [s for s in found.statuses if stale or s.life is Life.ALIVE]


def _print(statuses: list[ProcessStatus], as_json: bool, as_prometheus: bool, events: int) -> None:
    if as_json:
        print(json.dumps([{"life": s.life, **s.document} for s in statuses], indent=1), flush=True)
    elif as_prometheus:
        print(prometheus.render(statuses), end="", flush=True)
    else:
        Console().print(table.render(statuses, events))


def _watch(look: _Look, as_json: bool, as_prometheus: bool, every_s: float, events: int) -> NoReturn:
    if as_json or as_prometheus:
        while True:
            _print(look(), as_json, as_prometheus, events)
            time.sleep(every_s)
    with Live(table.render(look(), events), auto_refresh=False) as live:
        while True:
            time.sleep(every_s)
            live.update(table.render(look(), events), refresh=True)
