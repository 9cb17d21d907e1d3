"""The judge: facts of one trial in, a verdict out. Pure.

    ok            every planned iteration ended on every rank, every element is right, and, with a fault,
                  it struck inside the collective, the NIC was dead, and it healed
    wrong         any checked element of any iteration on any rank is wrong
    failed        an error, an early exit or a hang; expected only as an error that a rank reported itself
                  after the fault: a crash or a hang is no clear end for anybody
    inconclusive  nothing can be said: the fault missed the collective (it was not inside one iteration that
                  was in flight on every rank), the NIC that should be dead still carried bytes, the
                  counters do not cover the fault, or it did not heal

An inconclusive trial is run again, so nothing that is a finding may hide behind it. Hence the order:
wrong; then failed, unless this failure is the expected one and the fault's proof is incomplete; then
inconclusive; then ok.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.hosts.base import Sample
from harness.sweep.events import RankRecord
from reports.trial import Evidence, Status, TrialError

SLACK_BYTES = 10_000
"""What a NIC that is being taken down may still count after the effect: a few frames of ARP or FIN."""


@dataclass(frozen=True)
class Injected:
    """A fault as it was: the effect came between `t_before_ns` and `t_after_ns`; healed at `heal_ns`.

    `silent` says that the NIC must carry nothing meanwhile; `samples` are the counters of that NIC alone.
    """

    kind: str
    host: str
    nic: str
    t_before_ns: int
    t_after_ns: int
    heal_ns: int | None
    silent: bool
    samples: Sequence[Sample] = ()
    clock_error_ns: int = 0
    """How far off both times may be, because the host's clock is known no better."""


@dataclass(frozen=True)
class Facts:
    """All that the judge looks at. `fault` is None if none was planned or none was injected."""

    ranks: Sequence[RankRecord]
    iterations: int
    expect_on_fault: Literal["ok", "failed"]
    fault_planned: bool = False
    fault: Injected | None = None
    hang: str | None = None
    """Why waiting was given up, if it was."""


@dataclass(frozen=True)
class Verdict:
    """The judge's word. `expected`: the status is what the experiment expects of this system."""

    status: Status
    expected: bool
    reason: str
    evidence: Evidence
    error: TrialError | None


def judge(facts: Facts) -> Verdict:
    """The verdict on one trial."""
    evidence = gather(facts)
    error = first_error(facts)
    wrong = count_wrong(facts.ranks)
    doubt = _doubt(facts, evidence)
    expects_failure = facts.fault is not None and facts.expect_on_fault == "failed"
    if wrong:
        return Verdict("wrong", False, f"{wrong} wrong elements", evidence, error)
    if error is not None:
        caused = expects_failure and error.after_fault_ns is not None and error.after_fault_ns >= 0
        if caused and doubt:
            return Verdict("inconclusive", False, doubt, evidence, error)
        return Verdict("failed", caused, _told(error, facts), evidence, error)
    if doubt:
        return Verdict("inconclusive", False, doubt, evidence, None)
    reason = "went on although it should have failed" if expects_failure else ""
    return Verdict("ok", not expects_failure, reason, evidence, None)


def count_wrong(ranks: Sequence[RankRecord]) -> int:
    """Wrong elements over all ranks and iterations, warm-up too."""
    return sum(timed.wrong or 0 for record in ranks for timed in record.finished.values())


def first_error(facts: Facts) -> TrialError | None:
    """The earliest error of any rank; else an early exit, else the hang, else None."""
    told = [(r.error.t_ns, r.rank, r.error.message) for r in facts.ranks if r.error]
    if told:
        t_ns, rank, message = min(told)
        after = t_ns - facts.fault.t_before_ns if facts.fault else None
        return TrialError(rank=rank, message=message, t_ns=t_ns, after_fault_ns=after)
    fine = (0, 1) if count_wrong(facts.ranks) else (0,)
    for record in facts.ranks:
        if record.returncode is not None and not (record.done and record.returncode in fine):
            return TrialError(rank=record.rank, message=_exit_text(record))
    if facts.hang:
        return TrialError(message=facts.hang)
    return _incomplete(facts)


def gather(facts: Facts) -> Evidence:
    """What is known about the fault; empty without one."""
    fault = facts.fault
    if fault is None:
        return Evidence()
    struck = struck_iteration(facts.ranks, fault)
    tx, rx = _carried(fault) if fault.silent else (None, None)
    return Evidence(
        in_flight=struck is not None,
        struck_iteration=struck,
        dead_nic_tx_after=tx,
        dead_nic_rx_after=rx,
        healed=fault.heal_ns is not None and _up_again(fault),
    )


def struck_iteration(ranks: Sequence[RankRecord], fault: Injected) -> int | None:
    """The iteration that was in flight on every rank from before the effect until after it."""
    begun = set.intersection(*(set(r.begun) for r in ranks)) if ranks else set()
    for iteration in sorted(begun):
        if all(_in_flight(r, iteration, fault) for r in ranks):
            return iteration
    return None


def _in_flight(record: RankRecord, iteration: int, fault: Injected) -> bool:
    timed = record.finished.get(iteration)
    start_ns = timed.t_ns if timed else record.begun[iteration]
    return start_ns <= fault.t_before_ns and (timed is None or timed.end_ns >= fault.t_after_ns)


def _carried(fault: Injected) -> tuple[int | None, int | None]:
    """Bytes sent and received by the dead NIC between the effect and the heal; None if not observed."""
    end_ns = fault.heal_ns if fault.heal_ns is not None else float("inf")
    dead = [s for s in fault.samples if fault.t_after_ns <= s.t_ns < end_ns]
    live = [s for s in fault.samples if s.t_ns < fault.t_before_ns]
    if len(dead) < 2 or not live:
        return None, None
    return dead[-1].sent - dead[0].sent, dead[-1].received - dead[0].received


def _up_again(fault: Injected) -> bool:
    """The last sample after the heal shows the link up; without a sample, the heal's word counts."""
    after = [s for s in fault.samples if fault.heal_ns is not None and s.t_ns >= fault.heal_ns]
    return after[-1].up if after else True


def _doubt(facts: Facts, evidence: Evidence) -> str | None:
    """Why the fault proves nothing, or None."""
    if not facts.fault_planned:
        return None
    if facts.fault is None:
        return "the fault was never injected"
    if not evidence.in_flight:
        return "the fault missed the collective: it was not inside an iteration in flight on every rank"
    if facts.fault.silent:
        carried = (evidence.dead_nic_tx_after, evidence.dead_nic_rx_after)
        if None in carried:
            return f"the counters of {facts.fault.host} {facts.fault.nic} do not cover the fault"
        if max(c for c in carried if c is not None) > SLACK_BYTES:
            return f"{facts.fault.host} {facts.fault.nic} still carried {max(c or 0 for c in carried)} bytes"
    if not evidence.healed:
        return f"{facts.fault.host} {facts.fault.nic} did not heal"
    return None


def _told(error: TrialError, facts: Facts) -> str:
    where = "" if error.rank is None else f"rank {error.rank}: "
    if not facts.fault_planned:
        when = ""
    elif facts.fault is None or (error.after_fault_ns is not None and error.after_fault_ns < 0):
        when = " (before the fault)"
    elif error.after_fault_ns is not None:
        when = f" ({error.after_fault_ns / 1e6:.0f} ms after the fault)"
    else:
        when = ""
    return f"{where}{error.message}{when}"


def _exit_text(record: RankRecord) -> str:
    last = next((line for line in reversed(record.log) if line.startswith("[stderr]")), "")
    detail = last.removeprefix("[stderr]").strip()
    return f"ended early with exit status {record.returncode}" + (f": {detail}" if detail else "")


def _incomplete(facts: Facts) -> TrialError | None:
    """A rank that says it is done but did not do every iteration is an error, not a success."""
    for record in facts.ranks:
        finished = sum(1 for i in record.finished if i >= 0)
        if finished < facts.iterations:
            message = f"ended after {finished} of {facts.iterations} iterations"
            return TrialError(rank=record.rank, message=message)
    return None
