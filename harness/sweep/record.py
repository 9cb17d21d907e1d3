"""Converts an outcome to the content of trial.json (`reports.trial.Trial`). Pure."""

from typing import Any

from faults.base import LinkDown, Quiet
from harness.events import RankRecord
from harness.sweep.clock import moment_of, narrowed, not_before
from harness.sweep.judge import Facts, Injected, struck_by
from harness.sweep.phases import joined, phase_of
from harness.sweep.plan import Trial
from harness.sweep.trial import Outcome
from harness.workloads.base import Workload
from reports import trial as stored


def attempt_id(trial: Trial, attempt: int) -> str:
    """The folder of one attempt: the trial's id; later attempts are kept beside the first."""
    return trial.trial_id if attempt == 1 else f"{trial.trial_id}-a{attempt}"


def record_of(outcome: Outcome, workload: Workload) -> stored.Trial:
    """Everything of `outcome` that is stored, except counters and logs."""
    judgement, facts = outcome.judgement, outcome.facts
    lasted = {name: round(seconds, 4) for name, seconds in outcome.seconds.items()}
    whole = all(timed.measured_ns is None for record in facts.ranks for timed in record.finished.values())
    more = {"step_seconds": lasted, "timed_whole": whole} | _clocks(outcome) | _planned(outcome.trial)
    return stored.Trial(
        **_head(outcome.trial, outcome.attempt, workload),
        status=judgement.status,
        expected=judgement.expected,
        reason=judgement.reason,
        fault=_fault(facts.fault),
        further_faults=tuple(filter(None, map(_fault, facts.injections[1:]))),
        iterations=_iterations(outcome, workload),
        evidence=judgement.evidence.model_copy(update=more),
        core={str(r.rank): core for r in facts.ranks if (core := _core(r)) is not None},
        error=judgement.error,
        **workload.results(facts.ranks),
    )


def lost_record(trial: Trial, attempt: int, workload: Workload, reason: str) -> stored.Trial:
    """The record of an attempt that the harness could not finish because a host was lost."""
    return stored.Trial(**_head(trial, attempt, workload), status="inconclusive", expected=False, reason=reason)


def _head(trial: Trial, attempt: int, workload: Workload) -> dict[str, Any]:
    return {
        "trial_id": attempt_id(trial, attempt),
        "system": trial.system.name,
        "mode": trial.system.mode,
        **workload.about(trial.size_bytes),
        "scenario": trial.scenario,
        "axes": dict(trial.variant.axes),
        "settings": dict(trial.variant.settings),
        "repeat": trial.repeat,
        "attempt": attempt,
    }


def _planned(trial: Trial) -> dict[str, Any]:
    """What every trial of a scenario has alike, however far it came."""
    fault = trial.fault
    if fault is None:
        return {}
    return {"several": fault.several, "comes_and_goes": fault.comes_and_goes, "lasts_s": fault.lasts_s}


def _core(record: RankRecord) -> dict[str, Any] | None:
    """The core's final report; if a rank has none, the events that it reported before it ended."""
    if record.core is None and record.core_events:
        return {"events": record.core_events, "cut_short": True}
    return record.core


def _clocks(outcome: Outcome) -> dict[str, Any]:
    """Each host's clock against ours at the fault, or else at the trial's end, and the time of the effect, all errors
    included."""
    fault = outcome.facts.fault
    at_ns = fault.t_before_ns if fault else int(1e9 * (outcome.started_s + sum(outcome.seconds.values())))
    at = {name: clock.at(at_ns) for name, clock in outcome.clocks.items()}
    return {
        "clock_offsets_ns": {name: offset.offset_ns for name, offset in at.items()},
        "clock_errors_ns": {name: offset.error_ns for name, offset in at.items()},
        "effects": [_effect(outcome.facts, injection) for injection in outcome.facts.injections],
    }


def _effect(facts: Facts, injection: Injected) -> dict[str, int]:
    """When an injection began to take effect, all errors included: by its commands, and by the counters."""
    window_ns = narrowed((injection.t_before_ns, injection.t_after_ns), _carrier_seen(facts, injection))
    quiet = [sign for sign in injection.signs if isinstance(sign, Quiet) and not sign.rate_bytes_s]
    begins = [not_before(window_ns, _counted(facts, sign), sign.slack_bytes) for sign in quiet]
    window_ns = min(begins, default=window_ns[0]), window_ns[1]
    moment = moment_of(window_ns, injection.clock_error_ns)
    return {"t_ns": moment.t_ns, "error_ns": moment.error_ns}


def _carrier_seen(facts: Facts, injection: Injected) -> list[tuple[int, bool]]:
    """When the NIC's counters showed its carrier up or down; empty if the injection does not concern one NIC."""
    downs = [sign for sign in injection.signs if isinstance(sign, LinkDown) and sign.always]
    samples = facts.samples.get(downs[0].host, ()) if len(downs) == 1 else ()
    return [(s.t_ns, s.up) for s in samples if s.nic == downs[0].nic]


def _counted(facts: Facts, sign: Quiet) -> list[tuple[int, int]]:
    """The bytes that the NIC had carried in the direction that must fall silent, and when."""
    samples = [s for s in facts.samples.get(sign.host, ()) if s.nic == sign.nic]
    return [(s.t_ns, s.sent if sign.direction == "tx" else s.received) for s in samples]


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


def _iterations(outcome: Outcome, workload: Workload) -> tuple[stored.Iteration, ...]:
    """The iterations that ended on every rank."""
    facts, rows = outcome.facts, []
    struck = {batch.struck for injection in facts.injections if (batch := struck_by(facts, injection)) is not None}
    for number, timed in joined(facts.ranks).items():
        duration_ns = max(t.duration_ns if t.measured_ns is None else t.measured_ns for t in timed)
        ranks = len(facts.ranks) * workload.gpus
        checked = [t.wrong for t in timed if t.wrong is not None]
        row = stored.Iteration(
            iteration=number,
            phase=phase_of(number, timed, facts.injections, struck),
            t_ns=min(t.t_ns for t in timed),
            duration_ns=duration_ns,
            wrong=sum(checked) if checked else None,
            **workload.measures(outcome.trial.size_bytes, ranks, timed, duration_ns / 1e9),
        )
        rows.append(row)
    return tuple(rows)
