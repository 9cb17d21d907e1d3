"""A sweep from experiment to report: the cluster comes up once, every trial runs on it, and each writes a row.

open      opens the newest unfinished run of the same experiment, or a new folder; held until the end
up        brings up the cluster of the next trial; it stays up while trials can use it
trials    runs, judges and writes; an inconclusive trial is tried again, up to `retries` times; repeats are added
          until every cell is known precisely enough, if the experiment asks for that
down      takes the cluster down, whatever happened
publish   writes rows and report from all finished trials, also after an interrupt
bounds    checks the limits that the experiment sets for its metrics
"""

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from faults.errors import FaultError
from harness.errors import ExitCode, HarnessError, HostError, SweepError, UnreachableError
from harness.experiment.model import Experiment, identity
from harness.sweep.caveats import cost_caveats, precision_caveats
from harness.sweep.current_cluster import CurrentCluster, MakeCluster
from harness.sweep.on_our_clock import event_rows
from harness.sweep.owner import BusyError
from harness.sweep.plan import Only, Trial
from harness.sweep.progress import SweepProgress
from harness.sweep.record import lost_record, record_of
from harness.sweep.run_folder import RunFolder, opening, utc_now
from harness.sweep.simulated import is_simulated, simulated_once
from harness.sweep.summary import exit_code, last_attempts, next_attempt, with_bounds
from harness.sweep.testbed import HostTestbed
from harness.sweep.trial import run_trial
from harness.sweep.trial_order import due, left_by_block
from r2ccl_core import spread
from r2ccl_core.errors import R2cclError
from reports import trial as stored
from reports.bound_places import not_judged
from reports.drift import drifts
from reports.errors import SchemaError
from reports.held_back import held_back
from reports.not_back import not_back
from reports.stolen import stolen_time
from reports.trial import Run
from reports.unwatched import unwatched_hosts
from reports.wording import missing_trials

if TYPE_CHECKING:
    from reports.bounds import Held

LOOK_AGAIN_S = 0.5
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@dataclass(frozen=True)
class Request:
    """One sweep to run. `trials` are those that `only` keeps of the experiment's plan."""

    experiment: Experiment
    toml: str
    trials: Sequence[Trial]
    runs: Path
    only: Only = field(default_factory=dict)
    fresh: bool = False
    """Begin a new folder even if an unfinished run could continue."""
    wait: bool = False
    """Wait for a folder or for hosts that another sweep holds, instead of refusing."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Equal for two requests that may share a run folder."""
        return identity(self.experiment, {axis: list(values) for axis, values in self.only.items()})


def open_folder(request: Request, progress: SweepProgress) -> tuple[RunFolder, bool]:
    """Returns the folder to write to, held by this process, and whether an interrupted run continues in it. Raises
    `BusyError` while another sweep runs the same experiment, unless the request is to wait.
    """
    told = False
    while True:
        try:
            with opening(request.runs):
                return _opened(request)
        except BusyError as error:
            if not request.wait:
                raise
            if not told:
                progress.note(f"waiting: {error}")
                told = True
        time.sleep(LOOK_AGAIN_S)


def _opened(request: Request) -> tuple[RunFolder, bool]:
    name = request.experiment.name
    found = None if request.fresh else RunFolder.unfinished(request.runs, name, request.identity)
    if found is not None:
        with _writing(found):
            found.acquire()
            found.reopen()
            found.go_on(request.provenance)
        return found, True
    run = Run(
        experiment=request.experiment.resolved(),
        provenance=dict(request.provenance),
        started=utc_now(),
        tags={
            "trials": len(request.trials),
            "identity": request.identity,
            "only": {k: list(v) for k, v in request.only.items()},
        },
    )
    made = RunFolder.create(request.runs, run, request.toml)
    made.acquire()
    return made, False


def run_sweep(
    request: Request,
    folder: RunFolder,
    make_cluster: MakeCluster,
    publish: Callable[[Path], object],
    progress: SweepProgress,
) -> ExitCode:
    """Runs the remaining trials in `folder`, then publishes its content.

    Raises the cluster's own errors while it comes up, and `SweepError` for later ones. An interrupt or an error takes
    the cluster down and publishes the trials finished so far; a new folder in which none finished is removed.
    """
    with folder.locked():
        try:
            try:
                with _writing(folder):
                    records = _run_remaining(request, folder, make_cluster, progress)
                    folder.finish(len(due(request.trials, request.experiment.sweep, records)))
            finally:
                progress.end()
                published = _close(folder, publish, progress)
        except KeyboardInterrupt:  # perhaps during publication: then only that is left to do
            folder.reopen()
            raise
        status = _concluded(request, folder, progress)
        return status if published or status is not ExitCode.OK else ExitCode.INCONCLUSIVE


@contextmanager
def _writing(folder: RunFolder) -> Iterator[None]:
    """Turns a full disk, or a folder that somebody removed, into the end of the sweep, because neither is a bug."""
    try:
        yield
    except (OSError, SchemaError) as error:
        _must_be_there(folder)
        if isinstance(error, SchemaError) or not (error.errno in FULL or _is_in(error.filename, folder.path)):
            raise
        remedy = "make room" if error.errno in FULL else "let it be written"
        remedy += ", and the same command goes on; --out DIR writes a new run elsewhere"
        raise SweepError(f"{folder.path}: cannot be written ({error.strerror}); {remedy}") from error


def _must_be_there(folder: RunFolder) -> None:
    if not folder.is_there():
        raise SweepError(f"{folder.path}: was removed while the sweep ran; the same command begins anew")


def _is_in(file: object, folder: Path) -> bool:
    return isinstance(file, str | bytes | Path) and Path(os.fsdecode(file)).is_relative_to(folder)


def _close(folder: RunFolder, publish: Callable[[Path], object], progress: SweepProgress) -> bool:
    """Publishes the finished trials and returns whether it could. A report that cannot be made does not affect the
    trials."""
    _must_be_there(folder)
    if not folder.records():
        folder.discard()
        return True
    progress.note("writing the report")
    published = True
    try:
        publish(folder.path)
    except (R2cclError, OSError) as error:
        progress.note(f"no report: {error}; after that: harness report {folder.path}")
        published = False
    folder.reported()  # not in a `finally`: a killed sweep, too, leaves its report to the next one
    return published


def _run_remaining(
    request: Request, folder: RunFolder, make_cluster: MakeCluster, progress: SweepProgress
) -> dict[str, stored.Trial]:
    """Runs what the folder does not hold; the last attempts of all trials."""
    records = last_attempts(folder.records())
    progress.begin(request.trials, records)
    hosted = [trial for trial in request.trials if not is_simulated(trial)]
    with CurrentCluster(hosted, make_cluster, folder, progress, request.wait) as current:
        for block in left_by_block(request.trials, request.experiment.sweep, records):
            _simulate(folder, [trial for trial in block if is_simulated(trial)], records, progress)
            for trial in block:
                if is_simulated(trial):
                    continue
                _must_be_there(folder)
                try:
                    _run_on_cluster(current, folder, trial, records, progress)
                except HarnessError as error:
                    if not current.has_stood:
                        raise
                    again = f"the same command{' without --fresh' if request.fresh else ''} goes on"
                    raise SweepError(f"{error}; trials that ended are kept, and {again}") from error
    return records


def _run_on_cluster(
    current: CurrentCluster,
    folder: RunFolder,
    trial: Trial,
    records: dict[str, stored.Trial],
    progress: SweepProgress,
) -> None:
    """Attempts `trial`. A cluster of the sweep's own that loses a host is made again, once for a trial."""
    try:
        _run_until_conclusive(current.testbed_for(trial), folder, trial, records, progress)
    except UnreachableError as error:
        if not current.has_stood or trial.variant.experiment.cluster.kind == "inventory":
            raise
        progress.note(f"{error}; the cluster is made again")
        current.give_up()
        _run_until_conclusive(current.testbed_for(trial), folder, trial, records, progress)


def _simulate(
    folder: RunFolder, trials: Sequence[Trial], records: dict[str, stored.Trial], progress: SweepProgress
) -> None:
    """Runs trials without hosts, several at once (`spread`), before those with hosts, which they would disturb. Each
    has the same result every time, so none is tried again."""
    left = [trial for trial in trials if next_attempt(trial, records, retries=0) is not None]
    for index, (record, took_s) in spread.as_they_end(simulated_once, left):
        _must_be_there(folder)
        progress.trial(left[index], record.attempt)
        folder.write_trial(record, {}, [])
        records[left[index].trial_id] = record
        progress.ended(left[index], record, took_s, final=True)


def _run_until_conclusive(
    testbed: HostTestbed, folder: RunFolder, trial: Trial, records: dict[str, stored.Trial], progress: SweepProgress
) -> None:
    """Attempts `trial` until its result is conclusive or its retries are used up."""
    retries = trial.variant.experiment.sweep.retries
    while (attempt := next_attempt(trial, records, retries)) is not None:
        began_s = time.monotonic()
        progress.trial(trial, attempt)
        record = _attempt(testbed, folder, trial, attempt)
        records[trial.trial_id] = record
        final = next_attempt(trial, records, retries) is None
        progress.ended(trial, record, time.monotonic() - began_s, final)


def _attempt(testbed: HostTestbed, folder: RunFolder, trial: Trial, attempt: int) -> stored.Trial:
    """One attempt, written to the folder. A host that answers wrongly costs the attempt, not the sweep."""
    workload = testbed.experiment.workload
    try:
        outcome = run_trial(testbed, trial, attempt)
    except UnreachableError:
        raise
    except (HostError, FaultError) as error:  # a target may have become unavailable since the rehearsal
        record = lost_record(trial, attempt, workload, str(error))
        folder.write_trial(record, {}, [])
        return record
    record = record_of(outcome, workload)
    ranks, hosts = outcome.facts.ranks, [host.name for host in testbed.hosts]
    events = event_rows(ranks, hosts, outcome.clocks)
    folder.write_trial(record, outcome.samples, [r.log for r in ranks], outcome.readings, events)
    return record


def _concluded(request: Request, folder: RunFolder, progress: SweepProgress) -> ExitCode:
    """The exit code, after all remarks about the sweep are reported."""
    records, sweep = last_attempts(folder.records()), request.experiment.sweep
    trials = due(request.trials, sweep, records)
    bounds = _bounds(request, folder)
    wanted = {trial.trial_id for trial in trials}
    status = exit_code(record for trial, record in records.items() if trial in wanted)
    status = with_bounds(status, [bound.met for bound in bounds])
    missing = missing_trials(len(wanted - records.keys()), len(wanted))
    if missing and status is ExitCode.OK:
        status = ExitCode.INCONCLUSIVE
    silent = not_judged(folder.run(), records.values(), missing)
    remarks = [missing, *map(str, drifts(records.values())), *precision_caveats(trials, sweep, records)]
    remarks += [*cost_caveats(records.values()), held_back(records.values()), not_back(records.values())]
    remarks += [stolen_time(records.values()), unwatched_hosts(records.values())]
    progress.closed(status, [*filter(None, remarks), *(b.line for b in bounds), *filter(None, [silent])])
    return status


def _bounds(request: Request, folder: RunFolder) -> "Sequence[Held]":
    if not request.experiment.bounds or not folder.records():
        return []
    # Not at the top: it imports pandas, and most experiments state no bound.
    from reports.bounds import held_in

    return held_in(folder.path)
