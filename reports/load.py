"""Loads run folders from disk; each broken part becomes one line of text. Does I/O.

run.json is broken or missing       no report: `SchemaError`
no trial can be read                no report: `ReportError`
some trials cannot be read          a report of the others, which contains the lines
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2ccl_core.text_file import absolute
from reports import series
from reports.errors import ReportError, SchemaError
from reports.metrics import serving
from reports.setting import systems_of
from reports.trial import EDITED, Run, Trial, load_run, load_trial
from reports.wording import missing_trials, trials_without_result

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

MAX_DAMAGED = 5
"""At most this many damaged tables of one kind are named one by one."""


@dataclass(frozen=True)
class LoadedRun:
    """One run folder: its trials in the order in which they ran, and a line for each unreadable one."""

    folder: Path
    run: Run
    trials: tuple[Trial, ...]
    problems: tuple[str, ...] = ()
    label: str = ""
    """The name that distinguishes it from another run whose folder has the same name."""
    number: int = 0
    """Its place among the runs of one report, from 1; 0: it is the only one."""

    @property
    def called(self) -> str:
        """What a report of several runs calls it: ``run 2``; empty if it is the only one."""
        return f"run {self.number}" if self.number else ""

    @property
    def name(self) -> str:
        """The folder's name, or the name that distinguishes it from another run of the same name."""
        return self.label or self.folder.name

    @property
    def heading(self) -> str:
        """The run as the reader of a report finds it: what it is called there and its name."""
        return f"{self.called}: {self.name}" if self.called else self.name

    @property
    def final_trials(self) -> tuple[Trial, ...]:
        """The last attempt of every trial."""
        last: dict[str, Trial] = {}
        for trial in sorted(self.trials, key=lambda t: t.attempt):
            last[trial.cell_id] = trial
        return tuple(t for t in self.trials if last[t.cell_id] is t)

    @property
    def missing(self) -> int:
        """How many trials its folder should hold and does not, or that cannot be read: the most, if repeats of an
        unfinished run may end early. Of a run that did not record how many it plans, only the latter are known."""
        if self.run.planned is None:
            return len(self.problems)
        return max(0, self.run.planned - len(self.final_trials))

    @property
    def incomplete(self) -> str:
        """Why what its trials show may not be all of the run; empty: every trial is there."""
        if self.run.finished is not None:
            return missing_trials(self.missing, self.run.planned)
        most = "up to " if self.run.may_end_early else ""
        missing = trials_without_result(self.missing, self.run.planned, most)
        return ": ".join(filter(None, ("the sweep has not finished", missing)))

    def earlier_attempts(self) -> dict[str, tuple[Trial, ...]]:
        """By `cell_id`, the attempts before the last one, if any: all of them inconclusive."""
        final, earlier = set(map(id, self.final_trials)), dict[str, tuple[Trial, ...]]()
        for trial in sorted(self.trials, key=lambda t: t.attempt):
            if id(trial) not in final:
                earlier[trial.cell_id] = (*earlier.get(trial.cell_id, ()), trial)
        return earlier

    def trial_folder(self, trial: Trial) -> Path:
        """The folder of the trial's counters and logs."""
        return self.folder / "trials" / trial.trial_id


def real(path: Path) -> Path:
    """`path` without symbolic links; a loop of links stays, and whoever opens it says so."""
    return Path(os.path.realpath(absolute(path)))


def load_folder(folder: Path) -> LoadedRun:
    """Reads one run folder. Raises `SchemaError` or `ReportError`, one line each."""
    folder = real(folder)
    run = load_run(folder / "run.json")
    trials, problems, names = [], [], systems_of(run)
    if os.path.lexists(inside := folder / "trials") and not inside.is_dir():
        raise ReportError(f"{inside}: not a folder; restore it from a copy, or sweep again with --fresh")
    for path in sorted(inside.glob("*/trial.json")):
        try:
            trials.append(_trial(path, names))
        except SchemaError as error:
            problems.append(_within(folder, str(error)))
    if not trials:
        why = (
            f"none of its {len(problems)} trials can be read; the first: {problems[0]}"
            if problems
            else ("no trial has finished; sweep first")
        )
        raise ReportError(f"{folder}: {why}")
    trials.sort(key=lambda t: (min((i.t_ns for i in t.iterations), default=0), t.trial_id))
    return LoadedRun(folder, run, tuple(trials), tuple(problems))


def load_folders(folders: Sequence[Path]) -> list[LoadedRun]:
    """Reads several run folders and gives each a distinct name and a number; the same folder counts once."""
    if not folders:
        raise ReportError("no run folder was given; name one, as runs/<name>-<time>")
    runs: list[LoadedRun] = []
    distinct = list(dict.fromkeys(map(real, folders)))
    for place, folder in enumerate(distinct, start=1):
        run, taken = load_folder(folder), {other.name for other in runs}
        labels = (f"{folder.name} ({number})" for number in range(2, len(folders) + 1))
        free = folder.name if folder.name not in taken else next(label for label in labels if label not in taken)
        runs.append(replace(run, label=free, number=place if len(distinct) > 1 else 0))
    return runs


def frame(folders: Sequence[Path]) -> "pd.DataFrame":
    """The rows of all `folders` as one DataFrame (columns: `reports.rows`)."""
    import pyarrow as pa

    from reports.measures import trial_frame

    runs = load_folders(folders)
    together: pd.DataFrame = pa.concat_tables(_tables(runs, trial_frame(runs)), promote_options="default").to_pandas()
    return together


def write_rows(runs: Sequence[LoadedRun], trials: "pd.DataFrame", out: Path) -> tuple[Path, Path]:
    """Writes the rows of loaded runs, concatenated, as files into `out`; `trials` is their
    `reports.measures.trial_frame`."""
    # Not at the top of the file: the import takes a tenth of a second, which callers that only read folders should not
    # wait for.
    import pyarrow as pa

    from reports import rows

    return rows.write(pa.concat_tables(_tables(runs, trials), promote_options="default"), out)


def _tables(runs: Sequence[LoadedRun], trials: "pd.DataFrame") -> "list[pa.Table]":
    from reports import rows
    from reports.metrics import METRICS

    values: dict[str, dict[str, dict[str, float]]] = {}
    for row in trials.to_dict("records"):
        values.setdefault(row["run"], {})[row["trial_id"]] = {name: float(row[name]) for name in METRICS}
    return [rows.rows_table(r.name, r.run, r.trials, values[r.name]) for r in runs]


def counters(loaded: LoadedRun, trial: Trial, apart_ns: int = series.APART_NS) -> "pd.DataFrame | str":
    """The NIC counters of a trial (t_ns, host, nic, rx_bytes, tx_bytes, up), or a line that says why there are none.

    The bytes include everything that the NIC carried: through the kernel and, if its RDMA port has counters, past the
    kernel. Samples that follow another more closely than `apart_ns`, as right after a fault, are left out; 0 keeps all.
    """
    samples = _series(loaded, trial, series.NICS)
    if isinstance(samples, str):
        return samples
    for way in ("rx", "tx"):
        past_the_kernel = samples.pop(f"rdma_{way}_bytes") if f"rdma_{way}_bytes" in samples else None
        if past_the_kernel is not None and past_the_kernel.notna().any():
            samples[f"{way}_bytes"] += past_the_kernel.fillna(0).astype("int64")
    return series.thinned(samples, apart_ns)


def watched(loaded: LoadedRun, trial: Trial) -> "pd.DataFrame | str":
    """The hosts' state over a trial (`reports.series.WATCH`, `METRICS`), or a line that says why it is not known."""
    return _series(loaded, trial, series.WATCH)


def log_events(loaded: LoadedRun, trial: Trial) -> "pd.DataFrame | str":
    """The events of NCCL's log and of the cores' event logs (`reports.series.EVENTS`), or a line that says why there
    are none."""
    return _series(loaded, trial, series.EVENTS)


def nccl_trouble(told: "pd.DataFrame | str") -> list[dict[str, Any]]:
    """When NCCL's log reported a failure, as events of kind ``nccl``; none if `log_events` found no such table."""
    if isinstance(told, str) or "trouble" not in told:
        return []
    chosen = told[(told["source"] == "nccl") & told["trouble"].eq(True)]
    pairs = zip(chosen["t_ns"], chosen["text"], strict=True)
    return [{"kind": "nccl", "t_ns": int(t_ns), "detail": str(text)} for t_ns, text in pairs]


def damaged_tables(loaded: LoadedRun) -> list[str]:
    """A line for each table that is broken, or that its trial lacks although other trials of the run have it.

    A table that no trial has was not yet written by the older program that made the run; that is not reported.
    """
    found: list[str] = []
    for table in (series.NICS, series.WATCH, series.EVENTS):
        paths = [loaded.trial_folder(trial) / table.file for trial in loaded.final_trials]
        if any(path.exists() for path in paths):
            lines = [series.fault_of(path, table, _within(loaded.folder, str(path))) for path in paths]
            known = [line for line in lines if line is not None]
            more = len(known) - MAX_DAMAGED
            found += known[:MAX_DAMAGED] + ([f"{loaded.name}: {table.file}: {more} more"] if more > 0 else [])
    return found


def _series(loaded: LoadedRun, trial: Trial, table: series.Table) -> "pd.DataFrame | str":
    path = loaded.trial_folder(trial) / table.file
    return series.read(path, table, _within(loaded.folder, str(path)))


def _trial(path: Path, systems: Iterable[str]) -> Trial:
    """A trial of a run with these systems; raises `SchemaError`, also where what it holds contradicts itself."""
    trial = load_trial(path)
    if trial.trial_id != path.parent.name:
        raise SchemaError(f"{path}: trial_id: {trial.trial_id[:80]!r} is not the name of its folder; was it copied?")
    named = [name for name in (trial.system, *systems) if trial.trial_id.startswith(f"{name}-")]
    if named and trial.system not in named:
        raise SchemaError(f"{path}: system: {trial.system[:80]!r} is not that of its trial_id; {EDITED}")
    if told := _contradiction(trial):
        raise SchemaError(f"{path}: {told}; {EDITED}")
    return trial


def _contradiction(trial: Trial) -> str:
    """The first thing that no trial can hold, with its place; empty: there is none."""
    seen: set[int] = set()
    for at, iteration in enumerate(trial.iterations):
        if not iteration.duration_ns and trial.source == "measured":
            return f"iterations.{at}.duration_ns: no iteration takes 0 ns"
        if iteration.iteration in seen:
            return f"iterations.{at}.iteration: {iteration.iteration} is there already"
        seen.add(iteration.iteration)
        if lacking := serving.lacks(iteration):
            return f"iterations.{at}.measures: {lacking} is missing"
    for at, fault in enumerate(trial.faults):
        if fault.t_after_ns < fault.t_before_ns:
            return f"{f'further_faults.{at - 1}' if at else 'fault'}.t_after_ns: lies before t_before_ns"
    return ""


def _within(folder: Path, line: str) -> str:
    """Makes the paths in `line` relative to the run's folder: a report is copied to other machines, where absolute
    paths mean nothing."""
    return line.replace(f"{folder}/", f"{folder.name}/")


def lacking(runs: Iterable[LoadedRun]) -> list[str]:
    """How many trials each finished run is known to lack, by the run's name: an unfinished one is not damaged."""
    return [f"{run.name}: {run.incomplete}" for run in runs if run.incomplete and run.run.finished is not None]


def all_problems(runs: Iterable[LoadedRun]) -> list[str]:
    """The lines on unreadable trials of all runs."""
    return [line for run in runs for line in run.problems]
