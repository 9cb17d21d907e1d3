"""The sweep command, from its arguments to its exit status."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.cluster import rights
from harness.cluster.clean import left_over, living
from harness.cluster.factory import make_cluster
from harness.cluster.spec import LocalSpec, VmsSpec
from harness.errors import ExitCode, SweepError
from harness.experiment.examples import found
from harness.experiment.file import load
from harness.interrupt import status_of, stoppable, told_of
from harness.publish import publish
from harness.sweep import dry_run as dry
from harness.sweep.console import ConsoleProgress
from harness.sweep.json_events import JsonProgress
from harness.sweep.plan import dimensions, parse_only, plan, select
from harness.sweep.preflight import check_text, preflight
from harness.sweep.progress import SweepProgress
from harness.sweep.provenance import SOURCES, collect
from harness.sweep.run_folder import RunFolder
from harness.sweep.simulated import is_simulated
from harness.sweep.sweep import Request, open_folder, run_sweep
from harness.sweep.trial_warnings import warnings
from harness.terminal import console
from r2ccl_core import spread
from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.output import printed
from r2ccl_core.text_file import text_of
from reports.source import change_of
from reports.wording import plural


@dataclass(frozen=True)
class Options:
    """The options that the command line adds to the experiment file."""

    out: Path = Path("runs")
    fresh: bool = False
    wait: bool = False
    dry_run: bool = False
    json: bool = False
    inventory: Path | None = None
    dask: str | None = None


def sweep_command(file: Path, changes: Sequence[str], only: Sequence[str], options: Options) -> int:
    """Loads, checks, runs and publishes the experiment in `file`; reports progress."""
    progress = JsonProgress(sys.stdout) if options.json else ConsoleProgress(console())
    with _told(progress) if options.json else nullcontext():
        return _sweep(file, changes, only, options, progress)


def _sweep(file: Path, changes: Sequence[str], only: Sequence[str], options: Options, progress: SweepProgress) -> int:
    file = found(file)
    experiment = load(file, changes, options.inventory, progress.note)
    kept = parse_only(only, dimensions(experiment))
    trials = select(plan(experiment), kept)
    if options.dask is not None and find_spec("distributed") is None:
        raise UsageError("--dask needs the package distributed: pip install 'r2ccl[dask]'")
    place = spread.Place(dask=options.dask, packages=SOURCES)
    if options.dry_run:
        check_text(experiment, str(file))
        for line in dry.lines(experiment, trials):
            progress.note(line)
        if options.json:
            progress.closed(ExitCode.OK, [])
        return printed(ExitCode.OK)
    preflight(experiment, str(file), {trial.system.name for trial in trials})
    hosted = [trial for trial in trials if not is_simulated(trial)]
    is_here = any(isinstance(trial.variant.experiment.cluster, LocalSpec | VmsSpec) for trial in hosted)
    if is_here:
        rights.acquire()
    toml, provenance = text_of(file), collect(["harness", *sys.argv[1:]])
    request = Request(experiment, toml, trials, options.out, kept, options.fresh, options.wait, provenance)
    opened: list[RunFolder] = []
    with told_of(lambda: _left(opened, options.fresh)), stoppable():
        folder, resumed = open_folder(request, progress)
        opened.append(folder)
        progress.opened(folder.path, resumed)
        if resumed and (changed := change_of(folder.run())):
            progress.note(f"warning: {changed}; --fresh begins anew")
        for line in warnings(trials):
            progress.note(line)
        if is_here and (others := living()):
            progress.note(
                f"warning: {plural(len(others), 'other local cluster')} of yours {'is' if len(others) == 1 else 'are'} "
                "in use on this machine; sweeps beside each other take each other's processor time, and their times "
                "show it"
            )
        if left_over():
            progress.note(
                "a sweep that was killed has left a cluster behind; it harms none; `harness clean` removes it"
            )
        with spread.on(place):
            return run_sweep(request, folder, make_cluster, publish, progress)


def _left(opened: Sequence[RunFolder], fresh: bool) -> str:
    """What an interrupted sweep leaves, in words; nothing if no trial had ended."""
    if not any(folder.is_there() for folder in opened):
        return "healed and closed; no trial had ended"
    return f"healed and closed; the same command{' without --fresh' if fresh else ''} goes on"


@contextmanager
def _told(progress: SweepProgress) -> Iterator[None]:
    """Reports every end to a program that reads the events, also an end by an error."""
    try:
        yield
    except KeyboardInterrupt as stop:
        progress.closed(status_of(stop), ["interrupted"])
        raise
    except R2cclError as error:
        status = ExitCode.INCONCLUSIVE if isinstance(error, SweepError) else ExitCode.USAGE
        progress.closed(status, str(error).splitlines())
        raise
    except Exception as error:
        progress.closed(ExitCode.CRASHED, [f"a bug of this program: {error!r}"])
        raise
