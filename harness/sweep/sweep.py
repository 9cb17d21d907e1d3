"""A sweep from experiment to report: the cluster comes up once, every trial runs on it, each leaves a row.

open      the newest unfinished run of the same experiment, or a new folder
up        the cluster; it stays up to the end
trials    run, judge, write; an inconclusive one is tried again, up to `retries` times
down      the cluster, whatever happened
publish   rows and report from all finished trials, after an interrupt too
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.errors import FaultError
from harness.cluster.base import Cluster
from harness.errors import ExitCode, HarnessError, HostError, SweepError, UnreachableError
from harness.experiment import Experiment, identity
from harness.sweep.bench import Bench
from harness.sweep.on_our_clock import event_rows, thinned
from harness.sweep.plan import Only, Trial
from harness.sweep.progress import SweepProgress
from harness.sweep.record import lost_record, record_of
from harness.sweep.rehearse import rehearse
from harness.sweep.run_folder import RunFolder, utc_now
from harness.sweep.summary import exit_code, last_attempts, next_attempt
from harness.sweep.trial import SAMPLE_S, run_trial
from r2ccl_core.errors import R2cclError
from reports import trial as stored
from reports.trial import Run

SWITCH_S = 0.0005
THINNED_NS = int(0.8e9 * SAMPLE_S)


@dataclass(frozen=True)
class Request:
    """What one sweep is to do. `trials` are those that `only` keeps of the experiment's plan."""

    experiment: Experiment
    toml: str
    trials: Sequence[Trial]
    runs: Path
    only: Only = field(default_factory=dict)
    fresh: bool = False
    """Begin a new folder even where an unfinished run could go on."""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Equal for two requests that may share a run folder."""
        return identity(self.experiment, {axis: list(values) for axis, values in self.only.items()})


def open_folder(request: Request) -> tuple[RunFolder, bool]:
    """The folder to write to, and whether an interrupted run goes on in it."""
    name = request.experiment.name
    found = None if request.fresh else RunFolder.unfinished(request.runs, name, request.identity)
    if found is not None:
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
    return RunFolder.create(request.runs, run, request.toml), False


def run_sweep(
    request: Request,
    folder: RunFolder,
    make_cluster: Callable[[], Cluster],
    publish: Callable[[Path], object],
    progress: SweepProgress,
) -> ExitCode:
    """Runs what is left to run in `folder`, then publishes all that it holds.

    Raises what the cluster raises while it comes up, and `SweepError` for what breaks later. An interrupt
    or an error takes the cluster down and publishes the trials finished so far; a new folder in which none
    finished is removed.
    """
    with folder.locked():
        try:
            _run_pending(request, folder, make_cluster, progress)
            folder.finish()
        finally:
            progress.end()
            _close(folder, publish, progress)
        wanted = {trial.trial_id for trial in request.trials}
        return exit_code(r for trial, r in last_attempts(folder.records()).items() if trial in wanted)


def _close(folder: RunFolder, publish: Callable[[Path], object], progress: SweepProgress) -> None:
    """Publishes what there is. A report that cannot be made takes nothing away from the trials."""
    if not folder.records():
        folder.discard()
        return
    try:
        publish(folder.path)
    except R2cclError as error:
        progress.note(f"no report: {error}; after that: harness report {folder.path}")


def _run_pending(
    request: Request, folder: RunFolder, make_cluster: Callable[[], Cluster], progress: SweepProgress
) -> None:
    experiment = request.experiment
    records = last_attempts(folder.records())
    pending = [t for t in request.trials if next_attempt(t, records, experiment.sweep.retries) is not None]
    progress.begin(len(request.trials), len(request.trials) - len(pending))
    if not pending:
        return
    progress.note(f"bringing up {experiment.cluster.summary()}")
    with make_cluster() as cluster:
        # The thread that fires a fault must not wait 5 ms, Python's default, for one that reads a rank's lines.
        sys.setswitchinterval(SWITCH_S)
        try:
            folder.add_provenance({"cluster": cluster.describe()})
            bench = Bench(experiment, cluster.hosts, cluster.switches)
            bench.measure_clocks()
            rehearse(bench)
            try:
                for trial in pending:
                    _run_to_a_verdict(bench, folder, trial, records, progress)
                with suppress(HostError):  # all trials are done: a host that is lost now takes nothing from them
                    bench.measure_clocks()
            finally:
                folder.add_provenance({"clocks": bench.describe_clocks()})
        except HarnessError as error:
            raise SweepError(str(error)) from error


def _run_to_a_verdict(
    bench: Bench, folder: RunFolder, trial: Trial, records: dict[str, stored.Trial], progress: SweepProgress
) -> None:
    """Attempts `trial` until something can be said about it, or its retries are used up."""
    retries = bench.experiment.sweep.retries
    while (attempt := next_attempt(trial, records, retries)) is not None:
        began_s = time.monotonic()
        progress.trial(trial, attempt)
        record = _attempt(bench, folder, trial, attempt)
        records[trial.trial_id] = record
        final = next_attempt(trial, records, retries) is None
        progress.ended(record, time.monotonic() - began_s, final)


def _attempt(bench: Bench, folder: RunFolder, trial: Trial, attempt: int) -> stored.Trial:
    """One attempt, written to the folder. A host that answers wrongly costs the attempt, not the sweep."""
    workload = bench.experiment.workload
    try:
        outcome = run_trial(bench, trial, attempt)
    except UnreachableError:
        raise
    except (HostError, FaultError) as error:  # a target may have become impossible since the rehearsal
        record = lost_record(trial, attempt, workload, str(error))
        folder.write_trial(record, {}, [])
        return record
    record = record_of(outcome, workload)
    ranks, hosts = outcome.facts.ranks, [host.name for host in bench.hosts]
    events = event_rows(ranks, hosts, outcome.clocks)
    samples = {name: thinned(taken, THINNED_NS) for name, taken in outcome.samples.items()}
    folder.write_trial(record, samples, [r.log for r in ranks], outcome.readings, events)
    return record
