"""When a healed NIC carried again, by what the cores told of its paths. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reports.trial import Fault, Trial

FLAPPING = "flapping"
"""The `cause` of the core's event of a path that is held back because it was lost too often; other holds wait for test
packets."""

PROBATION = "probation"
"""The `cause` of the core's event of a path that is held back until its test packets have come back."""


def returned_ns(trial: Trial, events: Iterable[Mapping[str, Any]]) -> int | None:
    """The time from the last heal of the struck NIC until it carried again; None: it did not before the trial ended, or
    was not healed.

    It carries again once every path of it that was lost has returned: with one connection of two it sent 1 Mbit/s, and
    476 once the other was back, 204 ms later. The receiver of a path tells its return although the sender holds it
    back, so no return before the last hold counts, and none while a NIC that was lost too often is held: the other end
    of a held path may tell its return long after the hold began. A NIC that is struck several times is one that comes
    and goes: no return between two faults counts. What follows a loss after the last heal is of that one. A probation
    is of all paths between two NICs: one of which a core has told the return carried until its probation began, which
    is no part of the return. Who passes a probation has shown that it carries, also before the heal, as a NIC does that
    was only slow. A NIC that carried when the heal was over returned at once, if the trial lasted longer: the core of
    one that is over sees no later loss.
    """
    heal_ns = last_heal_ns(trial)
    if heal_ns is None:
        return None
    found_ns = _followed(trial, events, heal_ns).found_ns
    if found_ns is None or (found_ns < heal_ns and _ended_ns(trial) <= heal_ns):
        return None
    return max(0, int(found_ns - heal_ns))


def last_heal_ns(trial: Trial) -> int | None:
    """When the last fault of the struck NIC was healed; None: one was not."""
    heals = [one.heal_ns for one, _ in _of_the_nic(trial)]
    known = [heal_ns for heal_ns in heals if heal_ns is not None]
    return max(known) if known and len(known) == len(heals) else None


def was_held(trial: Trial, events: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a path of the healed NIC was held back after the heal because it was lost too often, until it returned or
    to the end. Its hold may have begun before: a link that comes and goes may be up when it is healed."""
    heal_ns = last_heal_ns(trial)
    if heal_ns is None:
        return False
    end = _followed(trial, events, heal_ns)
    return end.was_held or FLAPPING in end.holds.values()


def is_in_part(trial: Trial, events: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a path of the healed NIC has not returned by the end, or is held back because it was lost too often,
    while another one carries again: the NIC is back in part. A path whose other end holds it or has lost it does not
    carry, and of one whose other end is not known nothing is concluded."""
    heal_ns = last_heal_ns(trial)
    if heal_ns is None:
        return False
    end = _followed(trial, events, heal_ns)
    held = {pair for pair, cause in end.holds.items() if cause == FLAPPING}
    rank_at = {
        str(nic.get("address")): rank
        for rank, core in trial.core.items()
        for nic in (core.get("nics", ()) if isinstance(core, dict) else ())
    }
    held_ends, lost_ends, carried_ends = (
        {(rank, rank_at.get(str(peer))) for rank, _, peer in pairs}
        for pairs in (held, {pair for pair, count in end.lost.items() if count > 0}, end.carried - held)
    )
    silent = (
        held_ends
        | {(peer, rank) for rank, peer in held_ends}
        | {(peer, rank) for rank, peer in lost_ends - carried_ends}
    )
    return bool(held_ends | lost_ends) and any(one[1] is not None and one not in silent for one in carried_ends)


Pair = tuple[Any, Any, Any]
"""The rank that tells, its NIC, and the address of the other end."""


@dataclass
class _End:
    """What the cores told of the paths of the struck NIC by the end of the trial, or of its loss."""

    found_ns: int | None = None
    """The return since the last hold after which no path was lost any more."""
    lost: Counter[Pair] = field(default_factory=Counter)
    """How many paths between two ends were lost and have not returned: every connection has its own."""
    detours: Counter[Pair] = field(default_factory=Counter)
    """How many came up in place of lost ones: that they make way for these is no loss."""
    tried: Counter[Pair] = field(default_factory=Counter)
    """How many lost ones are held back because they were lost too often: the loss of such a one is no other path's."""
    carried: set[Pair] = field(default_factory=set)
    """The paths that have returned since the heal and were not lost again."""
    holds: dict[Pair, Any] = field(default_factory=dict)
    """Those that are held back, and the cause."""
    was_held: bool = False
    """Whether one returned after the heal that had been held back because it was lost too often."""


def _followed(trial: Trial, events: Iterable[Mapping[str, Any]], heal_ns: int) -> _End:
    fault = trial.fault
    assert fault is not None
    end, link_was_up = _End(), False
    broken_ns = [(one.t_before_ns, _heal_began_ns(one, strike)) for one, strike in _of_the_nic(trial)]
    for event in events:
        t_ns, kind = event["t_ns"], str(event.get("kind"))
        if t_ns < fault.t_before_ns or (fault.nic and event.get("nic") != fault.nic):
            continue
        # A core may see the last loss of a link that came and went after the heal; every other one is the next loss.
        late = kind == "link_down" and end.found_ns is not None and end.found_ns < heal_ns
        lost = kind in ("link_down", "path_down")
        if lost and end.found_ns is not None and t_ns >= heal_ns and not late:
            break
        link_was_up = kind == "link_up" or (link_was_up and kind != "link_down")
        pair = event.get("rank"), event.get("nic"), event.get("peer")
        _count(end, kind, pair, event.get("cause"))
        if lost:
            end.carried = end.carried - {pair} if kind == "path_down" else set()
            end.holds = {one: cause for one, cause in end.holds.items() if kind == "path_down" and one != pair}
        if lost or (kind == "path_held" and not (event.get("cause") == PROBATION and pair in end.carried)):
            end.found_ns = None
        if kind == "path_held":
            end.holds[pair] = event.get("cause")
        elif kind == "path_returned":
            held = end.holds.pop(pair, None)
            end.was_held |= held == FLAPPING and t_ns >= heal_ns
            passed = held == PROBATION and not end.holds
            healed = link_was_up or not any(from_ns <= t_ns < until_ns for from_ns, until_ns in broken_ns)
            end.carried |= {pair} if healed else set()
            whole = FLAPPING not in end.holds.values() and not any(end.lost.values())
            if whole and end.found_ns is None and (healed or passed):
                end.found_ns = t_ns
    return end


def _count(end: _End, kind: str, pair: Pair, cause: Any) -> None:
    """Counts the paths that are lost. A core tells the loss of a path once, until it has told its return or, of one
    that was lost too often, that it holds it back."""
    if kind == "path_down":
        known = next((of for of in (end.detours, end.tried) if of[pair] > 0), None)
        if known is None:
            end.lost[pair] += 1
        else:
            known[pair] -= 1
    elif kind == "path_held" and cause == FLAPPING and end.lost[pair] > end.tried[pair]:
        end.tried[pair] += 1
    elif kind == "path_returned":
        end.tried[pair] = max(0, end.tried[pair] - 1)
        if end.lost[pair] > 0:
            end.lost[pair] -= 1
        elif pair not in end.holds and pair not in end.lost:
            end.detours[pair] += 1


def lasted_ns(trial: Trial) -> float:
    """From the last heal of the NIC to the end of the trial; 0 if it was not healed."""
    heal_ns = last_heal_ns(trial)
    return 0 if heal_ns is None else _ended_ns(trial) - heal_ns


def _of_the_nic(trial: Trial) -> list[tuple[Fault, Mapping[str, Any]]]:
    """The faults that struck the NIC of the first one, each with what was told of it."""
    strikes = dict(enumerate(trial.evidence.strikes))
    told = [(one, strikes.get(number, {})) for number, one in enumerate(trial.faults)]
    return [(one, strike) for one, strike in told if (one.host, one.nic) == (told[0][0].host, told[0][0].nic)]


def _heal_began_ns(fault: Fault, strike: Mapping[str, Any]) -> float:
    """From when a path that returns can be one that the heal let return, where the core saw no link come up. `heal_ns`
    is read when the last command of the heal is over, some ms after the NIC can carry; older runs have only that."""
    assert fault.heal_ns is not None
    told = strike.get("heal_from_ns")
    # A healer whose time is over heals by itself, before it is told to.
    return min(told, fault.heal_ns) if isinstance(told, int) else fault.heal_ns


def _ended_ns(trial: Trial) -> int:
    return max((i.t_ns + i.duration_ns for i in trial.iterations), default=0)
