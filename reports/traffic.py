"""Bytes that each host receives per operation, as counted by its NICs and as the schedules give them. Pure.

A NIC counts whole frames, including acknowledgements; a schedule has no headers. TCP's headers are therefore subtracted
if the host's watch also counted frames. A counter is read up to one sampling interval away from the start of the first
operation and the end of the last; between two samples, bytes are assumed to arrive evenly.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from r2ccl_core.errors import R2cclError
from r2ccl_core.model.health import Health
from r2ccl_core.model.schedule import NOBODY, Schedule, chunk_offsets
from r2ccl_core.planning.selection import Cost, read_policy, selection
from reports.after import After
from reports.setting import Setting, env_of
from reports.stats import Floats
from reports.trial import Iteration, Trial

MIN_SAMPLES = 5
"""Operations that together span fewer samples than this are too short for counting their bytes."""
EXACT_SAMPLES = 100
"""With this many samples, the count is within one percent."""
HEADERS_BYTES = 66
"""Header bytes of a frame, or of an aggregate that the kernel moves as one: Ethernet (14), IPv4 (20), TCP with time
stamps (32)."""
MAX_RANKS = 64

Source = Literal["counters", "schedule"]


class HostBytes(NamedTuple):
    """The bytes that one host receives in one operation of a phase."""

    host: str
    phase: str
    source: Source
    received_bytes: float
    exact: bool = True
    """False if headers are counted as well, or if the operations were short."""


def counted(samples: pd.DataFrame, watched: pd.DataFrame | None, trial: Trial, rest: After) -> list[HostBytes]:
    """Bytes by the NICs' counters, in the operations before the fault and in the steady ones.

    `samples` are bytes (`reports.load.counters`), `watched` has the frames (`reports.load.watched`); without the
    frames, TCP's headers are counted too.
    """
    phases = {"before": [i for i in trial.iterations if i.phase == "before"], "after": rest.steady}
    frames = {} if watched is None else _by_nic(watched[watched["metric"] == "rx_packets"], "device", "value")
    found: dict[tuple[str, str], list[HostBytes | None]] = {}
    for (host, nic), counter in _by_nic(samples, "nic", "rx_bytes").items():
        for phase, items in phases.items():
            one = _of_nic(host, phase, items, counter, frames.get((host, nic)))
            found.setdefault((host, phase), []).append(one)
    sums = (_together(nics) for _, nics in sorted(found.items(), key=lambda one: (one[0][1] != "before", one[0][0])))
    return [known for known in sums if known is not None]


Counter = tuple[Floats, Floats]
"""Times of the readings, and their values."""


def _by_nic(table: pd.DataFrame, nic: str, count: str) -> dict[tuple[str, str], Counter]:
    return {
        (str(host), str(name)): (rows["t_ns"].to_numpy(np.float64), rows[count].to_numpy(np.float64))
        for (host, name), rows in table.dropna(subset=[count]).groupby(["host", nic], sort=True)
    }


def _of_nic(
    host: str, phase: str, items: Sequence[Iteration], counter: Counter, frames: Counter | None
) -> HostBytes | None:
    received = _received(counter, items)
    if received is None or received[1] < MIN_SAMPLES:
        return None
    moved = _received(frames, items) if frames is not None else None
    headers = HEADERS_BYTES * moved[0] if moved is not None else 0.0
    exact = moved is not None and received[1] >= EXACT_SAMPLES
    return HostBytes(host, phase, "counters", received[0] - headers, exact)


def _together(nics: Sequence[HostBytes | None]) -> HostBytes | None:
    """The sum over all NICs of a host; one unreadable NIC makes the sum unknown."""
    known = [one for one in nics if one is not None]
    if len(known) < len(nics):
        return None
    return known[0]._replace(received_bytes=sum(n.received_bytes for n in known), exact=all(n.exact for n in known))


def _received(counter: Counter, items: Sequence[Iteration]) -> tuple[float, int] | None:
    """The mean count per operation of `items`, and the number of samples in them; None if the counter cannot tell.

    It is counted from the start of the first operation to the end of the last: almost nothing moves between two
    operations, whereas a sample that spans the edge of one spreads its bytes over both sides.
    """
    times, counts = counter
    if not items or len(times) < 2 or np.any(np.diff(counts) < 0):
        return None
    begin, end = items[0].t_ns, items[-1].t_ns + items[-1].duration_ns
    if times[0] > begin or times[-1] < end or items[-1].iteration - items[0].iteration + 1 != len(items):
        return None
    count = float(np.interp(end, times, counts) - np.interp(begin, times, counts)) / len(items)
    return count, int(((times >= begin) & (times <= end)).sum())


def over_schedule(received: Sequence[HostBytes]) -> float | None:
    """Bytes counted over bytes scheduled, for the host and phase where the ratio is farthest from 1.

    None if nothing is known exactly.
    """
    planned = {(item.host, item.phase): item.received_bytes for item in received if item.source == "schedule"}
    exact = [item for item in received if item.source == "counters" and item.exact]
    ratios = (i.received_bytes / planned[i.host, i.phase] for i in exact if planned.get((i.host, i.phase)))
    return max(ratios, key=lambda ratio: abs(ratio - 1), default=None)


def scheduled(trial: Trial, setting: Setting, system: Mapping[str, Any], lost_host: str | None) -> list[HostBytes]:
    """Bytes by the schedules of the trial's system, on healthy hosts and after the loss of one NIC of `lost_host`.

    Empty if the report cannot know the schedule: another collective, a program other than our Communicator, or a choice
    that depends on costs that the trial does not record.
    """
    hosts, nics = setting.hosts or 0, setting.nics or 0
    cores = [core for core in trial.core.values() if isinstance(core, dict) and "algo" in core]
    fits = hosts >= 2 and hosts * setting.gpus <= MAX_RANKS and nics >= 1 and len(cores) == hosts
    if trial.collective != "all_reduce" or not fits:
        return []
    env = tuple(sorted(env_of(system).items()))
    names = host_names(trial, hosts)
    phases: dict[str, int | None] = {"before": None}
    if lost_host in names and nics > 1:
        phases["after"] = names.index(lost_host)
    cost = _agreed_cost(cores[0])
    return [
        HostBytes(names[host], phase, "schedule", float(count))
        for phase, lost in phases.items()
        for host, count in enumerate(_by_schedule(trial.mode, env, setting, trial.size_bytes, lost, cost))
    ]


def _agreed_cost(core: Mapping[str, Any]) -> Cost | None:
    """The costs by which all ranks chose: the default ones if the ranks measured none. None if they are not
    recorded."""
    if "cost" not in core:
        return None
    told = core["cost"]
    if told is None:
        return Cost()
    known = [told.get(name) for name in Cost._fields] if isinstance(told, dict) else []
    numbers = [float(value) for value in known if isinstance(value, int | float) and value > 0]
    return Cost(*numbers) if len(numbers) == len(Cost._fields) else None


def host_names(trial: Trial, hosts: int) -> list[str]:
    """The hosts in the order of their ranks: as in the clock measurements, otherwise ``host0``, ``host1``, ..."""
    offsets = (trial.evidence.model_extra or {}).get("clock_offsets_ns")
    measured = list(map(str, offsets)) if isinstance(offsets, dict) else []
    return measured if len(measured) == hosts else [f"host{host}" for host in range(hosts)]


@lru_cache(maxsize=64)
def _by_schedule(
    mode: int, env: tuple[tuple[str, str], ...], setting: Setting, size_bytes: int, lost: int | None, cost: Cost | None
) -> tuple[int, ...]:
    health = Health.whole([setting.nics or 0] * (setting.hosts or 0), setting.gpus)
    try:
        policy = read_policy(mode, dict(env))
        if policy.plans and cost is None:
            return ()
        health = health if lost is None else health.with_lost(lost, [0])
        schedule = selection(policy)("all_reduce", size_bytes, health, cost or Cost())
        return received_bytes(schedule, size_bytes, setting.gpus)
    except R2cclError:
        return ()


def received_bytes(schedule: Schedule, size_bytes: int, gpus: int = 1) -> tuple[int, ...]:
    """The bytes that each host of `gpus` ranks receives from other hosts when `schedule` runs once on a vector of
    `size_bytes`."""
    offsets = chunk_offsets(schedule.nchunks, size_bytes)
    received = [0] * (schedule.nranks // gpus)
    for rank, program in enumerate(schedule.programs):
        host = rank // gpus
        for steps in program:
            outside = (steps["recv"] != NOBODY) & (steps["recv"] // gpus != host)
            received[host] += int((offsets[steps["end"]] - offsets[steps["begin"]])[outside].sum())
    return tuple(received)
