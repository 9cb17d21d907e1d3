"""An outcome as the JSON values of trial.json, and which of them the sweep itself reads back. Pure."""

from typing import Any

from harness.experiment import WorkloadModel
from harness.sweep.judge import Evidence, Facts, FirstError, Injected
from harness.sweep.phases import bandwidths_gbs, joined, phase_of
from harness.sweep.plan import Trial
from harness.sweep.trial import Outcome

SCHEMA = 1


def attempt_id(trial: Trial, attempt: int) -> str:
    """The folder of one attempt: the trial's id; later attempts are kept beside the first."""
    return trial.trial_id if attempt == 1 else f"{trial.trial_id}-a{attempt}"


def record_of(outcome: Outcome, workload: WorkloadModel) -> dict[str, Any]:
    """Everything that trial.json holds for `outcome`."""
    verdict = outcome.verdict
    return _head(outcome.trial, outcome.attempt, workload) | {
        "status": verdict.status,
        "expected": verdict.expected,
        "reason": verdict.reason,
        "fault": _fault(outcome.facts.fault),
        "iterations": _iterations(outcome, workload.collective),
        "evidence": _evidence(verdict.evidence, outcome),
        "core": {str(r.rank): r.core for r in outcome.facts.ranks if r.core is not None},
        "error": _error(verdict.error),
    }


def lost_record(trial: Trial, attempt: int, workload: WorkloadModel, reason: str) -> dict[str, Any]:
    """The record of an attempt that the harness could not carry through: a host was lost."""
    return _head(trial, attempt, workload) | {
        "status": "inconclusive",
        "expected": False,
        "reason": reason,
        "fault": None,
        "iterations": [],
        "evidence": {},
        "core": {},
        "error": None,
    }


def _head(trial: Trial, attempt: int, workload: WorkloadModel) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "trial_id": attempt_id(trial, attempt),
        "system": trial.system.name,
        "mode": trial.system.mode,
        "collective": workload.collective,
        "size_bytes": trial.size_bytes,
        "dtype": workload.dtype,
        "op": workload.op,
        "place": workload.place,
        "repeat": trial.repeat,
        "attempt": attempt,
    }


def _fault(fault: Injected | None) -> dict[str, Any] | None:
    if fault is None:
        return None
    names = ("kind", "host", "nic", "t_before_ns", "t_after_ns", "heal_ns")
    return {name: getattr(fault, name) for name in names}


def _iterations(outcome: Outcome, collective: str) -> list[dict[str, Any]]:
    facts: Facts = outcome.facts
    rows = []
    for number, timed in joined(facts.ranks).items():
        duration_ns = max(t.duration_ns for t in timed)
        size, ranks = outcome.trial.size_bytes, len(facts.ranks)
        algbw, busbw = bandwidths_gbs(collective, size, ranks, duration_ns)
        checked = [t.wrong for t in timed if t.wrong is not None]
        row = {
            "iteration": number,
            "phase": phase_of(number, timed, facts.fault),
            "t_ns": min(t.t_ns for t in timed),
            "duration_ns": duration_ns,
            "wrong": sum(checked) if checked else None,
            "algbw_gbs": algbw,
            "busbw_gbs": busbw,
        }
        rows.append(row)
    return rows


def _evidence(evidence: Evidence, outcome: Outcome) -> dict[str, Any]:
    lasted = {name: round(s, 4) for name, s in outcome.seconds.items()}
    return vars(evidence) | {"step_seconds": lasted, "clock_offsets_ns": dict(outcome.offsets_ns)}


def _error(error: FirstError | None) -> dict[str, Any] | None:
    return None if error is None else dict(vars(error))
