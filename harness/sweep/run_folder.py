"""A run's folder on disk: created, found again by a resuming sweep, filled trial by trial with whole files.

    run.json  experiment.toml  trials/<attempt id>/{trial.json, {nics,watch,events}.parquet, rank<r>.log}

Every file is written under another name and then renamed, trial.json last: an attempt with a trial.json is finished,
even if the harness was killed. `.report_due` is there from the end of the trials until the report is written, so that a
sweep killed between them goes on with the report. `.lock` is held while a sweep writes here, and names its owner; the
kernel releases it when the owner's process ends.
"""

import fcntl
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.hosts.base import Reading, Sample
from harness.sweep.owner import BusyError, Owner
from r2ccl_core.errors import UsageError
from reports import series
from reports.errors import SchemaError
from reports.source import CONTINUED, continuations
from reports.trial import Run, Trial, load_run, load_trial, save


class RunFolder:
    """One run. `runs` below is the folder that holds all of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.trials = path / "trials"
        self._report_due = path / ".report_due"
        self._lock: int | None = None

    @classmethod
    def create(cls, runs: Path, run: Run, toml: str, now: datetime | None = None) -> "RunFolder":
        """A new folder for `run`; none is left where it cannot be written."""
        stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
        name = f"{run.experiment['name']}-{stamp}"
        folder = None
        try:
            folder = cls(next(p for p in _candidates(runs / name) if _made(p)))
            folder.trials.mkdir()
            write_whole(folder.path / "experiment.toml", toml)
            folder.write_run(run)
        except OSError as error:
            if folder is not None:
                shutil.rmtree(folder.path, ignore_errors=True)
            raise UsageError(f"{runs}: no run can be written there ({error.strerror}); use --out DIR") from error
        return folder

    @classmethod
    def unfinished(cls, runs: Path, name: str, identity: str) -> "RunFolder | None":
        """The newest unfinished run of the same experiment, whether another sweep is writing it or not."""
        found = (cls(path) for path in sorted(runs.glob(f"{name}-*"), reverse=True))
        return next((folder for folder in found if folder._is_unfinished(identity)), None)

    def run(self) -> Run:
        """The content of run.json; raises `SchemaError`."""
        return load_run(self.path / "run.json")

    def write_run(self, run: Run) -> None:
        """Writes run.json."""
        save(self.path / "run.json", run)

    def add_provenance(self, more: Mapping[str, Any]) -> None:
        """Adds facts to the run's provenance that became known later."""
        run = self.run()
        self.write_run(run.model_copy(update={"provenance": run.provenance | dict(more)}))

    def go_on(self, provenance: Mapping[str, Any]) -> None:
        """Records in the run's provenance which program continues an interrupted sweep."""
        told = {key: provenance[key] for key in ("commit", "dirty", "source", "versions") if key in provenance}
        self.add_provenance({CONTINUED: [*continuations(self.run()), {"at": utc_now(), **told}]})

    def is_there(self) -> bool:
        """Whether it is still the folder that `acquire` found: somebody may have removed it since."""
        try:
            lock = (self.path / ".lock").stat()
        except OSError:
            return False
        same = self._lock is None or os.path.samestat(lock, os.fstat(self._lock))
        return same and (self.path / "run.json").exists()

    def discard(self) -> None:
        """Removes the folder and its content, as far as it exists and can be removed."""
        shutil.rmtree(self.path, ignore_errors=True)

    def finish(self, ran: int) -> None:
        """Marks the run as finished with so many trials, and its report as due: once that is written (`reported`), the
        same command will start a new run."""
        run = self.run()
        self._report_due.touch()
        self.write_run(run.model_copy(update={"finished": utc_now(), "tags": run.tags | {"ran": ran}}))

    def reported(self) -> None:
        """Marks the report as written, or as one that cannot be."""
        with suppress(OSError):
            self._report_due.unlink()

    def reopen(self) -> None:
        """Marks the run as unfinished, if it still exists, so that the same command resumes it."""
        if self.is_there() and self.run().finished is not None:
            self.write_run(self.run().model_copy(update={"finished": None}))

    def records(self) -> list[Trial]:
        """The trial.json of every finished attempt, in the order of their ids; broken ones are left out."""
        found = []
        for path in sorted(self.trials.glob("*/trial.json")):
            with suppress(SchemaError):
                found.append(load_trial(path))
        return found

    def write_trial(
        self,
        record: Trial,
        samples: Mapping[str, Sequence[Sample]],
        logs: Sequence[Sequence[str]],
        readings: Mapping[str, Sequence[Reading]] = MappingProxyType({}),
        events: Iterable[Sequence[Any]] = (),
    ) -> None:
        """Adds one finished attempt, and replaces the files of an interrupted one of the same name.

        `readings` are those of the hosts' watches, `events` rows of `reports.series.EVENTS`.
        """
        place = self.trials / record.trial_id
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()  # without parents: a run folder that was removed must not be made again
        for rank, lines in enumerate(logs):
            write_whole(place / f"rank{rank}.log", "".join(f"{line}\n" for line in lines))
        for table, rows in ((series.NICS, _rows(samples)), (series.WATCH, _rows(readings)), (series.EVENTS, events)):
            series.write(place / table.file, table, rows)
        save(place / "trial.json", record)

    def _is_unfinished(self, identity: str) -> bool:
        try:
            run = self.run()
        except SchemaError:
            return False
        return (run.finished is None or self._report_due.exists()) and run.tags.get("identity") == identity

    def acquire(self) -> None:
        """Holds the folder until `release` or the end of this process. Raises `BusyError` if another sweep holds it."""
        if self._lock is not None:
            return
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SchemaError(f"{self.path / '.lock'}: is not a regular file; remove it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(Owner.this().values()).encode(), 0)
        except BlockingIOError:
            owner = Owner.read(os.pread(descriptor, 4096, 0)) or "another sweep"
            os.close(descriptor)
            remedy = "wait for it (--wait does), or run another one beside it with --fresh"
            raise BusyError(f"{self.path}: {owner} is running this; {remedy}") from None
        self._lock = descriptor

    def release(self) -> None:
        """Releases the folder; harmless twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder for one sweep, as `acquire` does, and releases it afterwards."""
        self.acquire()
        try:
            yield
        finally:
            self.release()


@contextmanager
def opening(runs: Path) -> Iterator[None]:
    """Lets one process at a time look for a run to resume, or make one. Makes `runs` if needed."""
    try:
        runs.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(runs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{runs}: no run can be written there ({error.strerror}); use --out DIR") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def utc_now() -> str:
    """The current time as run.json has it: ``2025-01-31T12:34:56Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_whole(path: Path, text: str) -> None:
    """Writes `path` so that it exists with all of `text` or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def _rows(taken: Mapping[str, Sequence[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """The rows of each host, with the host's name after the time."""
    return ((row[0], host, *row[1:]) for host, rows in taken.items() for row in rows)


def _candidates(path: Path) -> Iterator[Path]:
    """`path`, then with a number: two runs may begin within one second."""
    yield path
    for number in range(2, 1000):
        yield path.with_name(f"{path.name}-{number}")


def _made(path: Path) -> bool:
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        return False
    return True
