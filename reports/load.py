"""Reads run folders from disk and writes their rows. The edge between files and data frames.

A run folder whose run.json is good is loaded with whatever trials are good; each broken one becomes one line
in `LoadedRun.problems`, which the page shows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from reports.errors import ReportError, SchemaError
from reports.rows import rows
from reports.trial import SCHEMA, Run, Trial, load_run, load_trial

SAMPLE_COLUMNS = ("t_ns", "host", "nic", "rx_bytes", "tx_bytes", "up")


@dataclass(frozen=True)
class LoadedRun:
    """One run folder. `trials` are ordered by their ids; `problems` has one line per file left out."""

    path: Path
    run: Run
    trials: tuple[Trial, ...]
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    def frame(self) -> pd.DataFrame:
        """One row per trial iteration (`reports.rows.COLUMNS`)."""
        return rows(self.name, self.run, self.trials)

    def samples(self, trial: Trial) -> pd.DataFrame:
        """The NIC counters of one trial (`SAMPLE_COLUMNS`); raises `SchemaError`."""
        return read_samples(self.path / "trials" / trial.trial_id / "nics.parquet")


def load(run_dir: Path) -> LoadedRun:
    """One run folder. Raises `ReportError` if it is none, or if not one of its trials can be read."""
    path = Path(run_dir).resolve()
    if not path.is_dir():
        raise ReportError(f"{run_dir}: no such folder; give the folder of a run, as runs/<name>-<time>")
    run = load_run(path / "run.json")
    trials, problems = _load_trials(path)
    if not trials:
        why = problems[0] if problems else "no trial has finished; run the sweep again, it resumes"
        raise ReportError(f"{run_dir}: nothing to report: {why}")
    return LoadedRun(path, run, tuple(trials), tuple(problems))


def load_many(run_dirs: Sequence[Path]) -> pd.DataFrame:
    """The rows of several run folders, one below the other; the column `run` tells them apart."""
    loaded = [load(path) for path in run_dirs]
    names = [run.name for run in loaded]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ReportError(f"{twice}: two run folders have this name; rename one of them")
    return pd.concat([run.frame() for run in loaded], ignore_index=True)


def write_rows(run_dir: Path) -> tuple[Path, Path]:
    """Derives rows.parquet and rows.csv from the trials of `run_dir`; each is there whole or not at all."""
    loaded = load(run_dir)
    return write_frame(loaded.frame(), loaded)


def write_frame(frame: pd.DataFrame, loaded: LoadedRun) -> tuple[Path, Path]:
    """Writes the rows of `loaded`; the Parquet file carries schema, commit and command as metadata."""
    about = {"schema": SCHEMA} | {k: loaded.run.provenance.get(k) for k in ("commit", "dirty", "command")}
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata({key: str(value) for key, value in about.items()})
    parquet, csv = loaded.path / "rows.parquet", loaded.path / "rows.csv"
    part = parquet.with_name(".rows.parquet.part")
    pa.parquet.write_table(table, part)
    part.replace(parquet)
    part = csv.with_name(".rows.csv.part")
    pa.csv.write_csv(table, part)
    part.replace(csv)
    return parquet, csv


def read_samples(path: Path) -> pd.DataFrame:
    """A nics.parquet; raises `SchemaError` with one line."""
    if not path.is_file():
        raise SchemaError(f"{path}: no such file; this trial has no counter samples")
    try:
        table = pa.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        line = str(error).splitlines()[0]
        raise SchemaError(f"{path}: broken or cut short ({line}); the timeline is left out") from None
    missing = [name for name in SAMPLE_COLUMNS if name not in table.column_names]
    if missing:
        raise SchemaError(f"{path}: column {missing[0]!r} is missing; the timeline is left out")
    frame: pd.DataFrame = table.select(list(SAMPLE_COLUMNS)).to_pandas()
    return frame


def _load_trials(path: Path) -> tuple[list[Trial], list[str]]:
    trials: list[Trial] = []
    problems: list[str] = []
    for folder in sorted(p for p in (path / "trials").glob("*") if p.is_dir()):
        file = folder / "trial.json"
        if not file.exists():
            problems.append(f"trials/{folder.name}: unfinished: it has no trial.json")
            continue
        try:
            trial = load_trial(file)
        except SchemaError as error:
            problems.append(str(error).replace(f"{path}/", "", 1))
            continue
        if trial.trial_id == folder.name:
            trials.append(trial)
        else:
            problems.append(f"trials/{folder.name}/trial.json: trial_id is {trial.trial_id!r}, not its folder's name")
    return trials, problems
