"""When healed NICs carried again, by what the cores told of its paths. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from reports.metrics.ends import Ends
from reports.trial import Fault, Trial

FLAPPING = "flapping"
"""The `cause` of the core's event of a path that is held back because it was lost too often; other holds wait for test
packets."""

PROBATION = "probation"
"""The `cause` of the core's event of a path that is held back until its test packets have come back."""

SENDS_ON = ("rate_limit", "delay", "duplicate", "reorder")
"""Kinds of faults through which their NIC sends on, so that no traffic is down."""


@dataclass(frozen=True)
class Healed:
    """A struck NIC that was healed, and what the cores told of it. Where it is not known which rank runs on which host,
    NICs of one name are one: a core names the NIC at its own end of a path."""

    hosts: tuple[str, ...]
    nic: str
    heal_ns: int
    """When its last fault was healed."""
    took_ns: int | None
    """From then until it carried again; None: it did not before the trial ended."""
    lasted_ns: int
    """From then to the end of the trial."""
    was_used: bool
    """Whether a path of it was lost or held: only who used it waits for it."""
    was_held: bool
    """Whether a path of it was held back after the heal because it was lost too often, until it returned or to the end.
    Its hold may have begun before: a link that comes and goes may be up when it is healed."""
    in_part: bool
    """Whether a path of it has not returned by the end, or is held back because it was lost too often, while another
    one carries again."""

    @property
    def not_back(self) -> bool:
        """Whether the trial went on after its heal, and ended before it carried again. One that nobody used is missed
        by nobody."""
        return self.was_used and self.took_ns is None and self.lasted_ns > 0

    @property
    def told(self) -> str:
        """``host1 eth1``."""
        return f"{' and '.join(self.hosts)} {self.nic}"


def healed_nics(trial: Trial, events: Sequence[Mapping[str, Any]]) -> tuple[Healed, ...]:
    """The struck NICs whose every fault was healed, in the order of their first ones.

    A NIC carries again once every path of it that was lost has returned: with one connection of two it sent 1 Mbit/s,
    and 476 once the other was back, 204 ms later. The receiver of a path tells its return although the sender holds it
    back, so no return before the last hold counts, and none while a NIC that was lost too often is held: the other end
    of a held path may tell its return long after the hold began. A NIC that is struck several times is one that comes
    and goes: no return between two faults counts. What follows a loss after the last heal is of that one. A probation
    is of all paths between two NICs: one of which a core has told the return carried until its probation began, which
    is no part of the return. Who passes a probation has shown that it carries, also before the heal, as a NIC does that
    was only slow; so has one whose paths return, and none is held, while no fault is left but those through which it
    sends on. A path between two struck NICs is of the one that is healed later: before that it cannot return. A NIC
    that carried when the heal was over returned at once, if the trial lasted longer: the core of
    one that is over sees no later loss.
    """
    strikes: dict[_Nic, list[_Failure]] = {}
    ends = Ends(trial)
    for fault, told in _failures(trial):
        nic = fault.host if fault.nic and ends.knows(fault.host) else "", fault.nic
        strikes.setdefault(nic, []).append((fault, told))
    if len(strikes) > 1:  # whole hosts, rails and processes have no name, and any event may be theirs
        strikes.pop(("", ""), None)
    own = _own_events(events, strikes, ends)
    found = (_healed(trial, own[nic], of_one) for nic, of_one in strikes.items())
    return tuple(one for one in found if one is not None)


def _own_events(
    events: Sequence[Mapping[str, Any]], strikes: "dict[_Nic, list[_Failure]]", ends: Ends
) -> "Mapping[_Nic, Sequence[Mapping[str, Any]]]":
    """The events of each struck NIC since the first failure of its paths. One that has no path but to other struck
    ones cannot be told from the last of these: its `strikes` become that one's."""
    in_order = sorted(strikes, key=lambda nic: _last_heal_ns(strikes[nic]))
    struck_ns = {nic: of_one[0][0].t_before_ns for nic, of_one in strikes.items()}
    own: dict[_Nic, list[Mapping[str, Any]]] = {nic: [] for nic in strikes}
    last_of: dict[_Nic, int] = {}
    alone = set()
    for event in events:
        of = [nic for nic in in_order if not nic[1] or ends.may_be_of(event, *nic)]
        if len(of) == 1 and event.get("peer"):
            alone.add(of[0])
        for nic in of[:-1]:
            last_of[nic] = max(last_of.get(nic, 0), in_order.index(of[-1]))
        if of and event["t_ns"] >= min(struck_ns[nic] for nic in of):
            own[of[-1]].append(event)
    for nic in [nic for nic in in_order if nic in last_of and nic not in alone]:
        last = in_order[last_of[nic]]
        strikes[last] = sorted((*strikes.pop(nic), *strikes[last]), key=lambda one: one[0].t_before_ns)
        own[last] = sorted((*own[last], *own.pop(nic)), key=lambda event: int(event["t_ns"]))
    return own


def _last_heal_ns(strikes: "Sequence[_Failure]") -> float:
    return max(inf if fault.heal_ns is None else fault.heal_ns for fault, _ in strikes)


def heals_began_ns(trial: Trial) -> list[float]:
    """When the heal of each failure that was healed began."""
    return [_heal_began_ns(fault, told) for fault, told in _failures(trial) if fault.heal_ns is not None]


def _failures(trial: Trial) -> "list[_Failure]":
    told = dict(enumerate(trial.evidence.strikes))
    return [(fault, told.get(number, {})) for number, fault in enumerate(trial.faults)]


def _healed(trial: Trial, events: Sequence[Mapping[str, Any]], strikes: "Sequence[_Failure]") -> Healed | None:
    """None: one of its faults was not healed."""
    heals = [fault.heal_ns for fault, _ in strikes if fault.heal_ns is not None]
    if len(heals) < len(strikes):
        return None
    first, heal_ns = strikes[0][0], max(heals)
    end = _followed(events, strikes, heal_ns)
    ended_ns = max((i.t_ns + i.duration_ns for i in trial.iterations), default=0)
    is_back = end.found_ns is not None and (end.found_ns >= heal_ns or ended_ns > heal_ns)
    return Healed(
        hosts=tuple(dict.fromkeys(fault.host for fault, _ in strikes)),
        nic=first.nic,
        heal_ns=heal_ns,
        took_ns=max(0, int(end.found_ns - heal_ns)) if is_back and end.found_ns is not None else None,
        lasted_ns=ended_ns - heal_ns,
        was_used=bool(first.nic) and any(e.get("kind") in ("path_down", "path_held") for e in events),
        was_held=end.was_held or FLAPPING in end.holds.values(),
        in_part=_is_in_part(trial, end),
    )


def _is_in_part(trial: Trial, end: "_End") -> bool:
    """A path whose other end holds it or has lost it does not carry, and of one whose other end is not known nothing is
    concluded."""
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


_Nic = tuple[str, str]
"""A host and its NIC; of hosts that are not known, the name of the NIC alone."""

_Failure = tuple[Fault, Mapping[str, Any]]
"""A fault, and what was told of it."""

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


def _followed(events: Sequence[Mapping[str, Any]], strikes: Sequence[_Failure], heal_ns: int) -> _End:
    end, link_was_up = _End(), False
    broken_ns = [(one.t_before_ns, _heal_began_ns(one, strike)) for one, strike in strikes]
    silent_ns = [span for span, (one, _) in zip(broken_ns, strikes, strict=True) if one.kind not in SENDS_ON]
    for event in events:
        t_ns, kind = event["t_ns"], str(event.get("kind"))
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
            passed = not end.holds and (held == PROBATION or not _is_in(t_ns, silent_ns))
            healed = link_was_up or not _is_in(t_ns, broken_ns)
            end.carried |= {pair} if healed else set()
            whole = FLAPPING not in end.holds.values() and not any(end.lost.values())
            if whole and end.found_ns is None and (healed or passed):
                end.found_ns = t_ns
    return end


def _is_in(t_ns: int, spans_ns: Sequence[tuple[int, float]]) -> bool:
    return any(from_ns <= t_ns < until_ns for from_ns, until_ns in spans_ns)


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


def _heal_began_ns(fault: Fault, strike: Mapping[str, Any]) -> float:
    """From when a path that returns can be one that the heal let return, where the core saw no link come up. `heal_ns`
    is read when the last command of the heal is over, some ms after the NIC can carry; older runs have only that."""
    assert fault.heal_ns is not None
    told = strike.get("heal_from_ns")
    # A healer whose time is over heals by itself, before it is told to.
    return min(told, fault.heal_ns) if isinstance(told, int) else fault.heal_ns
