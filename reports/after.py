"""What the iterations after the fault are: on the old schedule, the first on a new one, or steady. Pure.

Where the ranks switch their schedule after a loss (the core's `switched` event), the operation that switches pays for
it, and those before it still run the old schedule: neither says how fast the new one is. So

    old       after the hit iteration, before the switch; empty where nothing switched
    switch    the operation that switched, one or none
    steady    what follows; all of them where nothing switched

Only a switch between fault and heal counts: the one back after a repair is another matter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reports.trial import Iteration, Trial


@dataclass(frozen=True)
class After:
    """The iterations that began after the fault, in three parts."""

    old: tuple[Iteration, ...] = ()
    switch: Iteration | None = None
    steady: tuple[Iteration, ...] = ()


def after(trial: Trial, events: Iterable[Mapping[str, Any]]) -> After:
    """The parts of `trial`; `events` are its core's (`reports.core_log.core_events`)."""
    items = tuple(i for i in trial.iterations if i.phase == "after")
    switch_ns = switched_ns(trial, events)
    if switch_ns is None:
        return After(steady=items)
    # Clocks of hosts differ a little, so the event may seem to come just before its operation.
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
