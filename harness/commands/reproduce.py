"""``harness reproduce``: lists published experiments, or runs or simulates one and compares the results."""

import shutil
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from harness.commands.published_trials import fitting
from harness.errors import ExitCode
from harness.experiment.examples import named
from harness.sweep.command import Options, sweep_command
from harness.sweep.provenance import SOURCES
from harness.terminal import say, show
from harness.workloads.collective import CollectiveWorkload
from r2ccl_core import spread
from r2ccl_core.errors import UsageError
from r2ccl_core.output import printed
from reports.errors import ReportError
from reports.load import LoadedRun, load_folder
from reports.measures import trial_frame
from reports.reproduce import result
from reports.reproduce.catalog import ENTRIES, find
from reports.reproduce.entry import Entry, Line, Scale, Trials, lines, scaled_down
from reports.setting import setting_of
from reports.wording import NOTHING, plain

if TYPE_CHECKING:
    import pandas as pd

WIDTH = 170
PIECES = "pieces"
"""The folder of a Monte Carlo simulation's finished trials, within its result's folder."""


def list_entries(options: Sequence[str] = ()) -> int:
    """Prints every published experiment, and what can be done about it here. Raises `UsageError` for `options`: the
    list has none."""
    if options:
        raise UsageError(f"{options[0]}: is of one experiment; give its NAME before it, or leave it out for the list")
    say("harness reproduce NAME runs or simulates one of them.")
    for entry in ENTRIES:
        say("")
        say(entry.name, style="bold")
        say(f"    {entry.title}\n    {_state(entry)}")
    return printed(ExitCode.OK)


def reproduce_command(
    name: str,
    out: Path,
    run: Path | None,
    changes: Sequence[str],
    fresh: bool,
    model_only: bool,
    dask: str | None = None,
) -> int:
    """Measures (by a sweep of the local cluster, or from the given `run`) or simulates, prints the table, writes the
    result."""
    entry = find(name)
    folder = out / f"reproduce-{entry.name}"
    loaded, notes = None, []
    if entry.trials is None or (unbuilt := _unbuilt(entry.trials)):
        notes.append(f"nothing is measured here: {entry.missing or unbuilt}")
        if run is not None:
            raise UsageError(f"{name}: no run can answer for it: {entry.missing or unbuilt}")
        if changes:
            raise UsageError(f"--set {changes[0]}: {name} is not measured: {entry.missing or unbuilt}; leave it out")
    elif run is not None and (model_only or changes):
        raise UsageError(f"--run {run}: is read as it is; leave out --model-only and --set")
    elif model_only and changes:
        raise UsageError(f"--set {changes[0]}: changes the sweep, and --model-only measures nothing; leave one out")
    elif model_only:
        notes.append("nothing is measured here: --model-only")
    else:
        whole = _given(run) if run is not None else _swept(entry.trials, folder, changes, fresh, dask)
        loaded, notes = fitting(entry, entry.trials, whole)
    if fresh:
        shutil.rmtree(folder / PIECES, ignore_errors=True)
    with _written(folder):
        folder.mkdir(parents=True, exist_ok=True)  # before simulations, which may take minutes
    with spread.on(spread.Place(dask=dask, folder=folder / PIECES, packages=SOURCES)):
        return _put_together(entry, folder, loaded, notes)


@contextmanager
def _written(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ReportError(f"{folder}: cannot be written ({error.strerror}); give another folder with -o DIR") from error


def _put_together(entry: Entry, folder: Path, loaded: LoadedRun | None, notes: list[str]) -> int:
    frame = trial_frame([loaded]) if loaded else None
    here = _scale(loaded, frame) if loaded is not None and frame is not None else None
    found = lines(entry, here, frame)
    notes = _notes(entry, here, loaded, found) + notes
    _print(entry, found, notes)
    with _written(folder):
        paths = result.write(entry, found, notes, folder, frame, str(loaded.folder) if loaded else None)
    print(f"result: {paths[0]}")
    return printed(ExitCode.OK)


def _state(entry: Entry) -> str:
    missing = entry.missing if entry.trials is None else _unbuilt(entry.trials)
    if not missing and entry.trials is not None:
        return f"measured with {entry.trials.experiment}.toml"
    return f"{'model only' if entry.model else 'not built'}: {missing}"


def _given(run: Path) -> LoadedRun:
    loaded = load_folder(run)
    if all(trial.simulated for trial in loaded.final_trials):
        raise UsageError(f"{run}: is simulated and measured nothing; give a measured run, or --model-only")
    return loaded


def _unbuilt(trials: Trials) -> str:
    """Why the sweep cannot measure it; empty if it can."""
    known = typing.get_args(CollectiveWorkload.model_fields["collective"].annotation)
    if known and trials.collective not in known:
        return f"the sweep has no {trials.collective} yet (it has {', '.join(known)})"
    path = named(trials.experiment)
    return "" if path.exists() else f"{path} is missing; install this program again"


def _swept(trials: Trials, folder: Path, changes: Sequence[str], fresh: bool, dask: str | None) -> LoadedRun:
    """Sweeps on the local cluster, or continues an interrupted sweep; returns the run."""
    file = named(trials.experiment)
    sweep_command(file, [*trials.changes, *changes], list(trials.only), Options(folder, fresh, dask=dask))
    runs = sorted((path.parent for path in folder.glob("*/run.json")), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise UsageError(f"{folder}: the sweep left no run to read")
    return load_folder(runs[-1])


def _scale(loaded: LoadedRun, frame: "pd.DataFrame") -> Scale:
    """The scale of the run; the lines are for one size."""
    setting = setting_of(loaded.run)
    if not setting.hosts or not setting.nics or not setting.rate_bit_s:
        raise UsageError(
            f"{loaded.folder}: hosts, NICs and their rate must be known to compare with a model; "
            "give a run of a cluster that has all three"
        )
    ranks, size_bytes = setting.hosts * setting.gpus, int(frame["size_bytes"].max())
    return Scale(setting.hosts, setting.nics, ranks, setting.rate_bit_s, size_bytes)


def _notes(entry: Entry, here: Scale | None, loaded: LoadedRun | None, found: Sequence[Line]) -> list[str]:
    notes = []
    if here is not None and loaded is not None:
        notes.append(f"measured on {here.told()}: {loaded.folder.name}")
        notes += [f"what ran: {text}" for text in sorted({t.operation for t in loaded.final_trials if t.operation})]
        notes += [f"scaled down: {text}" for text in scaled_down(entry, here)]
        silent = [line.fact.what for line in found if line.measured is None and line.model_here is not None]
        notes += [f"not measured by this run: {', '.join(silent)}"] if silent and len(silent) < len(found) else []
    notes += [] if entry.model else ["there is no model of it"]
    return notes


def _as_words(row: Sequence[str]) -> str:
    """A line of the table as text, if the table does not fit: ``overhead (%): published 1.2, model 1.25``."""
    what, unit, *values = row
    told = [f"{name} {value}" for name, value in zip(result.HEADINGS[2:], values, strict=True) if value != NOTHING]
    return f"{what}{f' ({unit})' if unit else ''}: {', '.join(told)}"


def _print(entry: Entry, found: Sequence[Line], notes: Sequence[str]) -> None:
    shown = Table(title=f"{entry.name}: {entry.title}")
    for heading in result.HEADINGS:
        shown.add_column(heading, justify="left" if heading in ("quantity", "unit") else "right")
    for line in found:
        shown.add_row(*result.row(line))
    title = plain(f"{entry.name}: {entry.title}")
    show(shown, [title, *(_as_words(result.row(line)) for line in found)], WIDTH)
    for text in (f"published set-up: {entry.setup}", *notes, *result.reasons(found)):
        say(plain(f"- {text}"), indent="  ")
