"""An outcome as what trial.json holds (`reports.trial.Trial`). Pure."""

from typing import Any

from harness.experiment import WorkloadModel
from harness.sweep.judge import Injected
from harness.sweep.phases import bandwidths_gbs, joined, phase_of
from harness.sweep.plan import Trial
from harness.sweep.trial import Outcome
from reports import trial as stored


def attempt_id(trial: Trial, attempt: int) -> str:
    """The folder of one attempt: the trial's id; later attempts are kept beside the first."""
    return trial.trial_id if attempt == 1 else f"{trial.trial_id}-a{attempt}"


def record_of(outcome: Outcome, workload: WorkloadModel) -> stored.Trial:
    """Everything that is kept of `outcome` but counters and logs."""
    verdict, facts = outcome.verdict, outcome.facts
    lasted = {name: round(seconds, 4) for name, seconds in outcome.seconds.items()}
    more = {"step_seconds": lasted, "clock_offsets_ns": dict(outcome.offsets_ns)}
    return stored.Trial(
        **_head(outcome.trial, outcome.attempt, workload),
        status=verdict.status,
        expected=verdict.expected,
        reason=verdict.reason,
        fault=_fault(facts.fault),
        further_faults=tuple(filter(None, map(_fault, facts.strikes[1:]))),
        iterations=_iterations(outcome, workload.collective),
        evidence=verdict.evidence.model_copy(update=more),
        core={str(r.rank): r.core for r in facts.ranks if r.core is not None},
        error=verdict.error,
    )


def lost_record(trial: Trial, attempt: int, workload: WorkloadModel, reason: str) -> stored.Trial:
    """The record of an attempt that the harness could not carry through: a host was lost."""
    return stored.Trial(**_head(trial, attempt, workload), status="inconclusive", expected=False, reason=reason)


def _head(trial: Trial, attempt: int, workload: WorkloadModel) -> dict[str, Any]:
    return {
        "trial_id": attempt_id(trial, attempt),
        "system": trial.system.name,
        "mode": trial.system.mode,
        "collective": workload.collective,
        "size_bytes": trial.size_bytes,
        "dtype": workload.dtype,
        "op": workload.op,
        "place": workload.place,
        "scenario": trial.value("fault"),
        "repeat": trial.repeat,
        "attempt": attempt,
    }


def _fault(fault: Injected | None) -> stored.Fault | None:
    if fault is None:
        return None
    return stored.Fault(
        kind=fault.kind,
        host=fault.host,
        nic=fault.nic,
        t_before_ns=fault.t_before_ns,
        t_after_ns=fault.t_after_ns,
        heal_ns=fault.heal_ns,
    )


def _iterations(outcome: Outcome, collective: str) -> tuple[stored.Iteration, ...]:
    """The iterations that ended on every rank."""
    facts, rows = outcome.facts, []
    for number, timed in joined(facts.ranks).items():
        duration_ns = max(t.duration_ns for t in timed)
        algbw, busbw = bandwidths_gbs(collective, outcome.trial.size_bytes, len(facts.ranks), duration_ns)
        checked = [t.wrong for t in timed if t.wrong is not None]
        row = stored.Iteration(
            iteration=number,
            phase=phase_of(number, timed, facts.strikes),
            t_ns=min(t.t_ns for t in timed),
            duration_ns=duration_ns,
            wrong=sum(checked) if checked else None,
            algbw_gbs=algbw,
            busbw_gbs=busbw,
        )
        rows.append(row)
    return tuple(rows)
