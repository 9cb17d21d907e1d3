"""The sweep command from its arguments to its exit code: where the pure parts and the edges meet."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.cluster.spec import LocalSpec
from harness.errors import ExitCode
from harness.experiment_file import load
from harness.publish import publish
from harness.sweep import dry_run as dry
from harness.sweep.interrupt import stoppable
from harness.sweep.plan import parse_only, plan, select
from harness.sweep.preflight import preflight
from harness.sweep.progress import ConsoleProgress
from harness.sweep.provenance import collect
from harness.sweep.run_folder import RunFolder
from harness.sweep.summary import table
from harness.sweep.sweep import Request, open_folder, run_sweep
from r2ccl_core.units import format_size


def sweep_command(
    file: Path,
    out: Path,
    fresh: bool,
    settings: Sequence[str],
    only: Sequence[str],
    dry_run: bool,
    inventory: Path | None = None,
) -> ExitCode:
    """Loads, checks, runs and publishes the experiment in `file`; prints what happens."""
    experiment = load(file, settings, inventory)
    kept = parse_only(",".join(only))
    trials = select(plan(experiment), kept)
    if dry_run:
        print("\n".join(dry.lines(experiment, trials)))
        return ExitCode.OK
    preflight(experiment, str(file))
    if isinstance(experiment.cluster, LocalSpec):
        rights.acquire()
    toml, provenance = file.read_text(encoding="utf-8"), collect(["harness", *sys.argv[1:]])
    request = Request(experiment, toml, trials, out, kept, fresh, provenance)
    console = Console()
    with stoppable():
        folder, resumed = open_folder(request)
        _say(console, f"{'resuming' if resumed else 'writing to'} {folder.path}")
        status = run_sweep(
            request,
            folder,
            lambda: make_cluster(experiment.cluster),
            publish,
            ConsoleProgress(console),
        )
    _print_table(console, folder)
    _say(console, f"report: {folder.path / 'report.html'}")
    return status


def _print_table(console: Console, folder: RunFolder) -> None:
    """The sweep on one screen."""
    shown = Table(title="bus bandwidth, GB/s, medians; T/T0: after over before")
    for heading in ("size", "system", "trials", "before", "hit", "after", "T/T0"):
        shown.add_column(heading, justify="left" if heading in ("system", "trials") else "right")
    for line in table(folder.records()):
        numbers = (line.before_gbs, line.hit_gbs, line.after_gbs, line.slowdown)
        cells = ["" if n is None else f"{n:.3f}" for n in numbers]
        shown.add_row(format_size(line.size_bytes), line.system, line.statuses, *cells)
    console.print(shown)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
