"""The judge: derives the judgement on one trial from its facts. Pure.

    ok            every planned iteration ended on every rank, every element is right, and, with a fault,
                  it struck inside the collective, the NIC was dead, and it healed
    wrong         a checker of the workload finds an error, such as a wrong element on any rank
    failed        an error, an early exit or a hang; expected only as an error that a rank itself reported
                  after the fault, because a crash or a hang is no clear end for any user
    inconclusive  the trial proves nothing: the fault missed the collective (it was not inside one iteration, or a
                  batch of short ones, that was in flight on every rank), a failure came late or lasted too long by
                  more than it should last (or late by more than the iterations then went on, if it should stand until
                  the end), the struck NIC carried nothing in it by its own counters, a sign is missing (a NIC that
                  should be dead still carried bytes), the counters do not cover it, it did not heal, the network
                  differs from its state before, a limit of the experiment ended the trial while ranks continued, all
                  hosts stood still during a hang, or every iteration was over before a further failure of the
                  scenario came

An inconclusive trial is run again, so this status must not hide a finding. Hence the order: wrong; then
failed, unless this failure is the expected one and the fault's proof is incomplete; then inconclusive;
then ok.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from math import inf
from signal import SIGKILL
from statistics import fmean
from typing import Any

from faults.base import LinkDown, PlotHint, Probe, Quiet, Sign
from harness.backends.said import last_words
from harness.events import RankRecord
from harness.hosts.base import Reading, Sample
from harness.sweep.carried import Carried, carried
from harness.sweep.in_flight import InFlight, in_flight
from harness.sweep.scenario import BUSIEST, Injection
from harness.systems.base import Expectation
from harness.workloads.checkers import Checker, count_wrong, elements, first_of
from r2ccl_core.errors import MismatchedCallError
from reports.effect import UNCERTAIN_NS
from reports.trial import Evidence, Status, TrialError
from reports.wording import number

TOO_BUSY = "the hosts were too busy to inject in time; leave them more processor time"
TELLS_NS = 1_100_000_000
"""How long Linux may take to show a lost carrier: it reports changes of one interface at most once a second."""


@dataclass(frozen=True)
class Injected:
    """A fault as it was injected: the effect came between `t_before_ns` and `t_after_ns`; healed at `heal_ns`."""

    kind: str
    host: str
    nic: str
    """Empty if a whole host or a process was hit."""
    t_before_ns: int
    t_after_ns: int
    heal_ns: int | None
    heal_from_ns: int | None = None
    """When healing began."""
    planned_ns: int | None = None
    """When it was due, on the clock or in the chosen iteration; None: by the bytes of its NIC."""
    lasts_ns: int | None = None
    """How long it should last; None: until the end of the trial."""
    aimed: bool = True
    """Whether it was aimed at one chosen iteration."""
    signs: Sequence[Sign] = ()
    unseen: Sequence[str] = ()
    """Signs that a command did not show during the fault."""
    left: Sequence[str] = ()
    """Signs that a command still showed after the heal."""
    clock_error_ns: int = 0
    """The largest error of all these times, from the clocks of the places where it acted."""
    plot: PlotHint | None = None
    """How reports draw it."""
    nics: Sequence[tuple[str, str]] = ()
    """Host and name of every NIC that it struck; for a process, all those of its host."""
    dark: bool = False
    """Whether these carry nothing more in some direction."""
    sends: bool = False
    """Whether the fault itself sends over them, so that their traffic from then on is no sign."""


@dataclass(frozen=True)
class Facts:
    """All the judge's input. `injections` is empty if none was planned or none was injected."""

    ranks: Sequence[RankRecord]
    iterations: int
    expect_on_fault: Expectation
    fault_planned: bool = False
    injections: Sequence[Injected] = ()
    due: Sequence[Injection] = ()
    """The failures that the scenario consists of, by time; empty if chance or a trace decides how many come."""
    hosts: Sequence[str] = ()
    """The host of every rank, or of every process with several."""
    gpus: int = 1
    """Ranks of each process; the report of one rank holds for all of them."""
    hang: str | None = None
    """Why waiting was given up, if it was."""
    stalled_s: float = 0.0
    """For how long all hosts stood still while ranks were silent (`harness.sweep.stalled`); 0: they did not."""
    cut_off: str | None = None
    """The limit that ended the trial while its ranks continued, if one did; this is no failure of the ranks."""
    killed: frozenset[int] = frozenset()
    """Ranks that a fault ended; their end is no finding."""
    samples: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    """Counters by host."""
    changed: Sequence[str] = ()
    """Parts of the network's state that differ from before the trial."""
    left_out: int = 0
    """Failures by chance that were drawn but were too late to be injected."""
    drawn: bool = False
    """Whether chance drew when failures come and how long they last, so that no certain time is asked for."""
    starved: frozenset[str] = frozenset()
    """Hosts whose kernel ended a process for lack of memory."""
    checkers: Sequence[Checker] = (elements,)
    """The checkers that decide whether results are right."""
    lengthen: str = ""
    """How an experiment makes the iterations last longer, so that a fault hits one; empty: not by one key."""
    awaited: str = ""
    """What the first fault waits for, with the key that says it; empty: it comes by the clock."""
    comes_again: bool = False
    """Whether the fault's table has it come again (`times`), every so often."""
    aim: str = ""
    """How an experiment hits a NIC in use; empty: it aims so already, or draws what it hits."""
    nic_bytes: Mapping[str, float] = field(default_factory=dict)
    """By host, bytes that each NIC carries in an evenly spread collective; empty if ranks move no data."""

    @property
    def fault(self) -> Injected | None:
        """The first injection."""
        return self.injections[0] if self.injections else None


@dataclass(frozen=True)
class Judgement:
    """The judge's result. `expected`: the status is the one that the experiment expects of this system."""

    status: Status
    expected: bool
    reason: str
    evidence: Evidence
    error: TrialError | None


def judge(facts: Facts) -> Judgement:
    """The judgement on one trial."""
    evidence = gather(facts)
    error = first_error(facts)
    wrong = first_of(facts.checkers, facts.ranks)
    doubt = _doubt(facts, evidence)
    expects_failure = facts.fault is not None and facts.expect_on_fault != "ok"
    if wrong:
        return Judgement("wrong", False, wrong, evidence, error)
    if facts.cut_off and (error is None or error.t_ns is None):
        return Judgement("inconclusive", False, facts.cut_off, evidence, None)
    if facts.stalled_s and error is not None and error.message == facts.hang:
        why = f"{facts.hang}, but all hosts stood still for {facts.stalled_s:.0f} s: other programs had the processors"
        return Judgement("inconclusive", False, why, evidence, None)
    if error is not None:
        starved = any(_starved(record, facts) for record in facts.ranks)
        expected = expects_failure and not starved and not _is_mismatch(facts)
        caused = expected and error.after_fault_ns is not None and error.after_fault_ns >= 0
        if caused and doubt:
            return Judgement("inconclusive", False, doubt, evidence, error)
        return Judgement("failed", caused, _told(error, facts), evidence, error)
    if doubt := doubt or _never_came(facts):  # a system that stopped at the first failure needs no other
        return Judgement("inconclusive", False, doubt, evidence, None)
    should_fail = facts.fault is not None and facts.expect_on_fault == "failed"
    reason = "went on although it should have failed" if should_fail else ""
    return Judgement("ok", not should_fail, reason, evidence, None)


def with_watch(
    judgement: Judgement, readings: Mapping[str, Sequence[Reading]], unwatched: Mapping[str, str]
) -> Judgement:
    """The judgement, plus the watches' readings of time taken by a hypervisor, and why some hosts had no watch; neither
    affects the status."""
    of_hosts = [
        [r.value for r in seen if r.metric == "steal_share" and r.value is not None] for seen in readings.values()
    ]
    shares = [fmean(values) for values in of_hosts if values]
    seen = {"stolen_share": max(shares, default=None), "unwatched": dict(unwatched)}
    evidence = judgement.evidence.model_copy(update=seen)
    return replace(judgement, evidence=evidence)


def first_error(facts: Facts) -> TrialError | None:
    """The earliest error of any rank; else an early exit, else the hang, else None."""
    told = [(r.error.t_ns, r.rank, r.error.message) for r in facts.ranks if r.error]
    if told:
        t_ns, rank, message = min(told)
        after = t_ns - facts.fault.t_before_ns if facts.fault else None
        if dead := next((r for r in facts.ranks if _starved(r, facts)), None):  # the others only miss it
            rank, message = dead.rank, f"{_exit_text(dead, facts)}; then {_rank_text(rank, facts)}: {message}"
        return TrialError(rank=rank, message=message, t_ns=t_ns, after_fault_ns=after)
    fine = (0, 1) if count_wrong(facts.ranks) else (0,)
    for record in facts.ranks:
        ended = record.returncode is not None and record.rank not in facts.killed
        if ended and not (record.done and record.returncode in fine):
            return TrialError(rank=record.rank, message=_exit_text(record, facts))
    if facts.hang:
        return TrialError(message=facts.hang)
    return _incomplete(facts)


def gather(facts: Facts) -> Evidence:
    """The evidence about the faults; empty without one."""
    if facts.fault is None:
        return Evidence()
    struck = [struck_by(facts, injection) for injection in facts.injections]
    hit = [batch.struck for batch in struck if batch is not None]
    return Evidence(
        in_flight=_counts(facts, [i is not None for i in struck]),
        struck_iteration=hit[0] if hit else None,
        dead_nic_tx_after=_of_first(facts, "tx"),
        dead_nic_rx_after=_of_first(facts, "rx"),
        healed=not any(_not_healed(facts, injection) for injection in facts.injections) and not facts.changed,
        strikes_left_out=facts.left_out,
        strikes=tuple(_injection_evidence(facts, s, i) for s, i in zip(facts.injections, struck, strict=True)),
    )


def struck_by(facts: Facts, injection: Injected) -> InFlight | None:
    """The iterations in flight on every rank from before the effect until after it."""
    return in_flight(facts.ranks, injection.t_before_ns, injection.t_after_ns, facts.killed)


def carried_by(facts: Facts, injection: Injected, batch: InFlight | None) -> list[Carried]:
    """The bytes that each NIC hit by `injection` carried around `batch`; empty if this is not checked, or none was
    hit."""
    if not facts.nic_bytes or batch is None:
        return []
    earlier = [s.t_after_ns for s in facts.injections if s.t_before_ns < injection.t_before_ns]
    span_ns = max(earlier, default=0), injection.t_before_ns if injection.sends else injection.heal_from_ns
    return [
        carried(
            facts.samples,
            facts.ranks[list(facts.hosts).index(host)],
            batch,
            (host, nic),
            span_ns,
            facts.nic_bytes[host],
            injection.t_before_ns if injection.sends else injection.t_after_ns if injection.dark else None,
        )
        for host, nic in injection.nics
    ]


def _injection_evidence(facts: Facts, injection: Injected, batch: InFlight | None) -> dict[str, Any]:
    return {
        "kind": injection.kind,
        "host": injection.host,
        "nic": injection.nic,
        "struck_iteration": batch.struck if batch else None,
        "batch": [batch.first, batch.last] if batch else None,
        "window_ns": injection.t_after_ns - injection.t_before_ns,
        "late_ns": None if injection.planned_ns is None else injection.t_before_ns - injection.planned_ns,
        "heal_from_ns": injection.heal_from_ns,
        "signs": len(injection.signs),
        "carried": [found.as_evidence() for found in carried_by(facts, injection, batch)],
        "missing": [*injection.unseen, *filter(None, (_sign_missing(facts, injection, s) for s in injection.signs))],
        "left": [*injection.left],
        **({"label": injection.plot.label, "colour": injection.plot.colour} if injection.plot else {}),
    }


def _counts(facts: Facts, hit: Sequence[bool]) -> bool:
    """Whether every aimed injection hit; for those by the clock, whether at least one did."""
    aimed = [did for injection, did in zip(facts.injections, hit, strict=True) if injection.aimed]
    return all(aimed) if aimed else any(hit)


# Signs ----------------------------------------------------------------------------------------------------


def _sign_missing(facts: Facts, injection: Injected, sign: Sign) -> str | None:
    """Why a sign that counters show is missing, or None; signs that commands show were checked in time."""
    if isinstance(sign, Probe):
        return None
    where = f"{sign.host} {sign.nic}"
    during = _during(facts, injection, sign.host, sign.nic)
    if len(during) < 2:
        return None if _is_short(injection) else f"the counters of {where} do not cover the fault"
    if isinstance(sign, LinkDown):
        return None if _was_down(during, sign.always) or _is_short(injection) else f"{where} kept its carrier"
    carried = _carried(during, sign)
    allowed = sign.slack_bytes + sign.rate_bytes_s * (during[-1].t_ns - during[0].t_ns) / 1e9
    return f"{where} still carried {carried} bytes" if carried > allowed else None


def _is_short(injection: Injected) -> bool:
    """Whether a failure by the clock was over before the kernel had to report it: that may take a second."""
    return (
        not injection.aimed
        and injection.heal_from_ns is not None
        and injection.heal_from_ns - injection.t_after_ns < TELLS_NS
    )


def _during(facts: Facts, injection: Injected, host: str, nic: str) -> list[Sample]:
    """The samples that were surely read after the effect and before the heal, given the clocks' error."""
    ends = [t for t in (injection.heal_from_ns, injection.heal_ns) if t is not None]
    start_ns = injection.t_after_ns + injection.clock_error_ns
    mine = [s for s in facts.samples.get(host, ()) if s.nic == nic and start_ns <= s.t_ns]
    if not ends:
        return mine
    end_ns = min(ends) - injection.clock_error_ns
    return [sample for sample, following in pairwise(mine) if following.t_ns <= end_ns]


def _was_down(during: Sequence[Sample], always: bool) -> bool:
    """Down at some time and, with `always`, from then on: the kernel may report it a moment late."""
    first = next((i for i, sample in enumerate(during) if not sample.up), None)
    return first is not None and (not always or not any(sample.up for sample in during[first:]))


def _carried(during: Sequence[Sample], sign: Quiet) -> int:
    first, last = during[0], during[-1]
    return last.sent - first.sent if sign.direction == "tx" else last.received - first.received


def _of_first(facts: Facts, direction: str) -> int | None:
    """The bytes that the first injection's NIC still carried although it should carry nothing."""
    assert facts.fault is not None
    for sign in facts.fault.signs:
        if isinstance(sign, Quiet) and sign.direction == direction and not sign.rate_bytes_s:
            during = _during(facts, facts.fault, sign.host, sign.nic)
            return _carried(during, sign) if len(during) >= 2 else None
    return None


def _not_healed(facts: Facts, injection: Injected) -> str | None:
    """The remaining traces of an injection, or None. The last sample after the heal must show the link up again."""
    if injection.heal_ns is None:
        return f"{injection.host} {injection.nic} did not heal"
    for sign in injection.signs:
        if isinstance(sign, LinkDown) and not _hit_again(facts, injection, sign):
            after = [s for s in facts.samples.get(sign.host, ()) if s.nic == sign.nic and s.t_ns >= injection.heal_ns]
            if after and not after[-1].up:
                return f"{sign.host} {sign.nic} did not heal"
    return injection.left[0] if injection.left else None


def _hit_again(facts: Facts, injection: Injected, sign: LinkDown) -> bool:
    """Whether a later injection takes the same link down and is not healed before the end."""
    later = [s for s in facts.injections if s.t_before_ns > injection.t_before_ns and s.heal_ns is None]
    return any(isinstance(x, LinkDown) and (x.host, x.nic) == (sign.host, sign.nic) for s in later for x in s.signs)


def _doubt(facts: Facts, evidence: Evidence) -> str | None:
    """Why the faults prove nothing, or None."""
    if not facts.fault_planned:
        return None
    if facts.fault is None:
        return "the fault was never injected" + (f": {facts.awaited}" if facts.awaited else "")
    if not evidence.in_flight:
        return f"the fault missed the collective: {_missed(facts)}"
    if why := _untimely(facts) or _idle(facts) or _down_already(facts):
        return why
    for injection in facts.injections:
        found = [*injection.unseen, *(_sign_missing(facts, injection, sign) for sign in injection.signs)]
        missing = next((text for text in found if text), None) or _not_healed(facts, injection)
        if missing:
            return missing
    return f"not as it was before: {facts.changed[0]}" if facts.changed else None


def _missed(facts: Facts) -> str:
    """Where the first injection fell, and the remedy if that was after the last iteration."""
    assert facts.fault is not None
    over_ns = _over_ns(facts)
    if over_ns is None or over_ns > facts.fault.t_after_ns:
        return "it was not inside an iteration in flight on every rank"
    late_ms = (facts.fault.t_after_ns - over_ns) / 1e6
    return f"the iterations were all over {late_ms:.1f} ms before it had taken effect{_longer(facts)}"


def _untimely(facts: Facts) -> str | None:
    """The first failure that came late, or lasted longer than it should, by more than it should last, or that came only
    after the heal of one within which it should begin: that was another scenario. None if there is none. An error ends
    the trial before the heal is due, which then waits for all ranks. One that should stand until the end stands as long
    as iterations follow; where an error ended them, any was enough."""
    went_on, over_ns = first_error(facts) is None, _over_ns(facts)
    came = sorted(facts.injections, key=lambda injection: injection.t_before_ns) if not facts.drawn else ()
    for place, one in enumerate(came, 1):
        late_ns = 0 if one.planned_ns is None else one.t_before_ns - one.planned_ns
        where = f"failure {place} ({one.kind} of {one.host}{f' {one.nic}' if one.nic else ''})"
        outer = next((i for i, earlier in enumerate(came[: place - 1], 1) if _is_after(one, earlier)), None)
        if outer and went_on:
            return (
                f"{where} came {late_ns / 1e6:.0f} ms late, after the heal of failure {outer}, within which it should "
                f"begin: {TOO_BUSY}"
            )
        if one.lasts_ns is None:
            left_ns = over_ns - one.t_before_ns if over_ns and went_on else 0
            if 0 < left_ns < late_ns:
                return (
                    f"{where} came {late_ns / 1e6:.0f} ms late, {left_ns / 1e6:.0f} ms before the iterations were "
                    f"over: {TOO_BUSY}{_longer(facts)}"
                )
            continue
        lasted_ns = one.heal_from_ns - one.t_after_ns if one.heal_from_ns and went_on else 0
        if max(late_ns, lasted_ns - one.lasts_ns) > one.lasts_ns:
            what = f"came {late_ns / 1e6:.0f} ms late" if late_ns > one.lasts_ns else f"lasted {lasted_ns / 1e6:.0f} ms"
            keys = "lasts and every" if facts.comes_again else "lasts"
            return (
                f"{where}, which should last {one.lasts_ns / 1e6:g} ms, {what}: the hosts were too "
                f"busy to inject and heal in time; choose a longer {keys}, or leave them more processor time"
            )
    return None


def _is_after(one: Injected, earlier: Injected) -> bool:
    """Whether it came after the heal of the earlier failure, which should have stood when it was due."""
    if not earlier.heal_from_ns or earlier.lasts_ns is None or one.planned_ns is None:
        return False
    began_ns = earlier.t_before_ns if earlier.planned_ns is None else earlier.planned_ns
    return earlier.heal_from_ns < one.t_before_ns and one.planned_ns < began_ns + earlier.lasts_ns


def _never_came(facts: Facts) -> str | None:
    """The first failure of the scenario that was due or came only when the iterations were over; None: there is none.
    Without it the trial shows less than the others of its scenario went through."""
    over_ns, came = _over_ns(facts), sorted(facts.injections, key=lambda injection: injection.t_before_ns)
    if over_ns is None or not came:
        return None
    for due, injection in zip_longest(facts.due, came[: len(facts.due)]):
        due_ns = injection.t_before_ns if injection else came[0].t_after_ns + int(due.offset_s * 1e9)
        if due_ns >= over_ns:
            over = f"which were all over {(due_ns - over_ns) / 1e6:.1f} ms before{_longer(facts)}"
            when = f"due {due.offset_s:g} s after the first failure"
            return f"{_failure_text(due)}, {when}, never came during the iterations, {over}"
    return None


def _failure_text(due: Injection) -> str:
    """``nic_down of host2 eth1``."""
    if due.scope in ("process", "host"):
        return f"{due.kind} of {due.host}"
    return f"{due.kind} of {f'the busiest NIC of {due.host}' if due.nic == BUSIEST else f'{due.host} {due.nic}'}"


def _over_ns(facts: Facts) -> int | None:
    """When the last rank had ended its last iteration; None if one did not."""
    ended = [r.finished[max(r.finished)] for r in facts.ranks if len(r.finished) >= facts.iterations]
    return max(t.end_ns for t in ended) if ended and len(ended) == len(facts.ranks) else None


def _longer(facts: Facts) -> str:
    """The remedy where the iterations are over too early."""
    return f"; {facts.lengthen}" if facts.lengthen else ""


def _idle(facts: Facts) -> str | None:
    """The struck NICs if the collective used none of them; None if it used one, or if this is not checked."""
    if not facts.nic_bytes:
        return None
    found = [carried_by(facts, injection, struck_by(facts, injection)) for injection in facts.injections]
    if _counts(facts, [any(nic.in_use for nic in of_injection) for of_injection in found]):
        return None
    idle = next((of for of in found if of and not any(nic.in_use for nic in of)), [])
    return f"the fault hit an idle NIC: {'; '.join(map(str, idle))}{f'; {facts.aim}' if facts.aim else ''}"


def _down_already(facts: Facts) -> str | None:
    """The NIC that an injection hit while another one held it down; None if there is none."""
    for injection in facts.injections:
        holder = next((other for other in facts.injections if _holds_down(other, injection)), None)
        if injection.nic and holder is not None:
            where = f"{injection.host} {injection.nic}"
            return f"{injection.kind} hit nothing: {holder.kind} held {where} down by then; choose another NIC or time"
    return None


def _holds_down(holder: Injected, injection: Injected) -> bool:
    """Whether `holder` came before `injection`, stands as long, and its signs say that it holds the same NIC down. A
    silent link may still lose its carrier."""
    here = [s for s in holder.signs if not isinstance(s, Probe) and (s.host, s.nic) == (injection.host, injection.nic)]
    links = [sign.always for sign in here if isinstance(sign, LinkDown)]
    if not links and any(isinstance(sign, LinkDown) for sign in injection.signs):
        return False
    silent = {sign.direction for sign in here if isinstance(sign, Quiet) and not sign.rate_bytes_s}
    down = all(links) if links else silent >= {"tx", "rx"}
    ends_ns = inf if holder.heal_from_ns is None else holder.heal_from_ns
    stands = ends_ns > injection.t_before_ns and ends_ns >= (injection.heal_from_ns or inf)
    return down and stands and holder.t_before_ns < injection.t_before_ns


def _is_mismatch(facts: Facts) -> bool:
    """Whether the ranks called different collectives, which no fault causes."""
    return any(r.error is not None and r.error.kind == MismatchedCallError.__name__ for r in facts.ranks)


def _told(error: TrialError, facts: Facts) -> str:
    where = "" if error.rank is None else f"{_rank_text(error.rank, facts)}: "
    if not facts.fault_planned:
        when = ""
    elif facts.fault is None or (error.after_fault_ns is not None and error.after_fault_ns < 0):
        when = " (before the fault)"
    elif error.after_fault_ns is not None:
        # The fault took effect somewhere in its injection, which a busy machine draws out.
        window_ns = facts.fault.t_after_ns - facts.fault.t_before_ns
        at_most = "at most " * (window_ns > 2 * UNCERTAIN_NS and error.after_fault_ns < 2 * window_ns)
        when = f" ({at_most}{number(error.after_fault_ns / 1e6)} ms after the fault)"
    else:
        when = ""
    return f"{where}{error.message.removeprefix(f'rank {error.rank}: ')}{when}"


def _rank_text(rank: int, facts: Facts) -> str:
    """``rank 2 (host2)``."""
    named = f"rank{'s' * (facts.gpus > 1)} {rank_numbers(rank, facts.gpus)}"
    return f"{named} ({facts.hosts[rank]})" if rank < len(facts.hosts) else named


def rank_numbers(process: int, gpus: int) -> str:
    """The ranks of a process: ``2``, or ``4-5`` if it has two."""
    return str(process) if gpus == 1 else f"{process * gpus}-{(process + 1) * gpus - 1}"


def _starved(record: RankRecord, facts: Facts) -> bool:
    """Whether the kernel ended it for lack of memory."""
    killed = record.returncode == -SIGKILL and record.error is None and record.rank not in facts.killed
    return killed and bool(facts.hosts) and facts.hosts[record.rank] in facts.starved


def _exit_text(record: RankRecord, facts: Facts) -> str:
    if _starved(record, facts):
        return "out of memory: the kernel ended it; give its host more, or choose a smaller model, batch or size"
    detail = last_words([line.removeprefix("[stderr] ") for line in record.log if line.startswith("[stderr]")])
    return f"ended early with exit status {record.returncode}" + (f": {detail}" if detail else "")


def _incomplete(facts: Facts) -> TrialError | None:
    """An error for a rank that reports its end without having done every iteration."""
    for record in facts.ranks:
        finished = sum(1 for i in record.finished if i >= 0)
        if finished < facts.iterations and record.rank not in facts.killed:
            message = f"ended after {finished} of {facts.iterations} iterations"
            return TrialError(rank=record.rank, message=message)
    return None
