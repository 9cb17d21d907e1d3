"""Divides the iterations after a fault into those on the old schedule, the one that switches, and the steady rest.
Pure.

Where the ranks switch schedules after a loss (the core's `switched` event), the operation that switches bears the cost
of switching, and operations before it still run the old schedule. Neither shows the speed of the new schedule. The
parts are:

    old       after the hit iteration and before the switch; empty without a switch
    switch    the operation that switched, one or none
    steady    the rest; all iterations without a switch

Only a switch between fault and heal counts, not the switch back after a repair.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from reports.trial import Iteration, Trial


@dataclass(frozen=True)
class After:
    """The iterations that began after the fault, in three parts."""

    old: tuple[Iteration, ...] = ()
    switch: Iteration | None = None
    steady: tuple[Iteration, ...] = ()


def after(trial: Trial, events: Iterable[Mapping[str, Any]]) -> After:
    """Divides the iterations of `trial`; `events` are the events of its core (`reports.core_log.core_events`)."""
    items = tuple(i for i in trial.iterations if i.phase == "after")
    switch_ns = switched_ns(trial, events)
    if switch_ns is None:
        return After(steady=items)
    # The hosts' clocks differ slightly, so the event may appear to precede its operation.
    later = [i for i in items if i.t_ns + i.duration_ns > switch_ns]
    if not later:
        return After(steady=items)
    place = items.index(later[0])
    return After(items[:place], items[place], items[place + 1 :])


def switched_ns(trial: Trial, events: Iterable[Mapping[str, Any]]) -> int | None:
    """When the first rank switched its schedule between fault and heal; None if none did."""
    if trial.fault is None:
        return None
    until = trial.fault.heal_ns if trial.fault.heal_ns is not None else 2**63
    times = (e["t_ns"] for e in events if e.get("kind") == "switched")
    return min((int(t) for t in times if trial.fault.t_before_ns <= t < until), default=None)


def switched_back_ns(trial: Trial, events: Iterable[Mapping[str, Any]]) -> float:
    """From when the ranks run the schedule that they had before the fault again: the last switch, if it came after
    everything was healed. Infinite if none did after one that came earlier, 0 if there was no switch at all."""
    fault = trial.fault
    times = [int(e["t_ns"]) for e in events if e.get("kind") == "switched" and fault and e["t_ns"] >= fault.t_before_ns]
    healed_ns = max((inf if each.heal_ns is None else each.heal_ns for each in trial.faults), default=inf)
    last_ns = max(times, default=0)
    return last_ns if last_ns >= healed_ns or not times else inf
