"""Bytes that each host receives per operation: counted by its NICs, and as the schedules say. Pure.

A NIC counts bytes of whole frames, acknowledgements among them; a schedule has no headers. So those of TCP are taken
away where the host's watch counted frames, too. A counter is read up to a sampling interval off the operations' ends;
between two samples bytes are taken to have come evenly, and over several operations the error is small.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from r2ccl_core.errors import R2cclError
from r2ccl_core.health import Health
from r2ccl_core.schedule import NOBODY, Schedule, chunk_offsets
from r2ccl_core.selection import Cost, read_settings, selection
from reports.after import After
from reports.setting import Setting
from reports.stats import Floats
from reports.trial import Iteration, Trial

MIN_SAMPLES = 5
"""Operations shorter than this many samples together are too short to count their bytes."""
HEADERS_BYTES = 66
"""Of a frame, or of what the kernel moves as one: Ethernet (14), IPv4 (20), TCP with time stamps (32)."""
MAX_RANKS = 64

Source = Literal["counters", "schedule"]


class HostBytes(NamedTuple):
    """What one host receives in one operation of a phase, in bytes."""

    host: str
    phase: str
    source: Source
    received_bytes: float


def counted(samples: pd.DataFrame, watched: pd.DataFrame | None, trial: Trial, rest: After) -> list[HostBytes]:
    """By the NICs' counters, in the operations before the fault and in the steady ones.

    `samples` are bytes (`reports.load.counters`), `watched` has the frames (`reports.load.watched`); without it, the
    headers of TCP are counted, too.
    """
    phases = {"before": [i for i in trial.iterations if i.phase == "before"], "after": rest.steady}
    frames = {} if watched is None else _by_nic(watched[watched["metric"] == "rx_packets"], "device", "value")
    found: dict[tuple[str, str], float | None] = {}
    for (host, nic), (times, counts) in _by_nic(samples, "nic", "rx_bytes").items():
        for phase, items in phases.items():
            received, others = _received(times, counts, items, MIN_SAMPLES), found.get((host, phase), 0.0)
            headers = HEADERS_BYTES * (_received(*frames[host, nic], items) or 0.0) if (host, nic) in frames else 0.0
            # One NIC that cannot be read makes the host's sum unknown.
            found[host, phase] = None if received is None or others is None else others + received - headers
    return [
        HostBytes(host, phase, "counters", received)
        for (host, phase), received in sorted(found.items(), key=lambda one: (one[0][1] != "before", one[0][0]))
        if received is not None
    ]


def _by_nic(table: pd.DataFrame, nic: str, count: str) -> dict[tuple[str, str], tuple[Floats, Floats]]:
    """By host and NIC when the counter was read, and what it said."""
    return {
        (str(host), str(name)): (rows["t_ns"].to_numpy(np.float64), rows[count].to_numpy(np.float64))
        for (host, name), rows in table.dropna(subset=[count]).groupby(["host", nic], sort=True)
    }


def _received(times: Floats, counts: Floats, items: Sequence[Iteration], least: int = 0) -> float | None:
    """Mean count in one of `items`; None with fewer than `least` samples in them, or where a counter was set back."""
    if not items or len(times) < 2 or np.any(np.diff(counts) < 0):
        return None
    # Each operation by itself: what moves between two of them is not theirs.
    starts = np.array([i.t_ns for i in items], dtype=np.float64)
    ends = starts + [i.duration_ns for i in items]
    inside = (times >= starts[0]) & (times <= ends[-1])
    if inside.sum() < least or times[0] > starts[0] or times[-1] < ends[-1]:
        return None
    return float(np.sum(np.interp(ends, times, counts) - np.interp(starts, times, counts))) / len(items)


def over_schedule(received: Sequence[HostBytes]) -> float | None:
    """Bytes counted over bytes scheduled, of the host and phase where that is farthest from 1; None where unknown."""
    planned = {(item.host, item.phase): item.received_bytes for item in received if item.source == "schedule"}
    counted_ones = [item for item in received if item.source == "counters" and planned.get((item.host, item.phase))]
    ratios = (item.received_bytes / planned[item.host, item.phase] for item in counted_ones)
    return max(ratios, key=lambda ratio: abs(ratio - 1), default=None)


def scheduled(trial: Trial, setting: Setting, system: Mapping[str, Any], lost_host: str | None) -> list[HostBytes]:
    """As the schedules of the trial's system say, whole and after one NIC of `lost_host` is lost.

    Empty where the report cannot know the schedule: another collective, a choice that depends on what was measured
    at run time.
    """
    hosts, nics, environ = setting.hosts or 0, setting.nics or 0, system.get("env")
    fits = hosts >= 2 and hosts * setting.gpus <= MAX_RANKS and nics >= 1 and len(trial.core) in (0, hosts)
    if trial.collective != "all_reduce" or not fits:
        return []
    env = tuple(sorted((str(k), str(v)) for k, v in environ.items())) if isinstance(environ, dict) else ()
    names = host_names(trial, hosts)
    phases: dict[str, int | None] = {"before": None}
    if lost_host in names and nics > 1:
        phases["after"] = names.index(lost_host)
    return [
        HostBytes(names[host], phase, "schedule", float(count))
        for phase, lost in phases.items()
        for host, count in enumerate(_by_schedule(trial.mode, env, setting, trial.size_bytes, lost))
    ]


def host_names(trial: Trial, hosts: int) -> list[str]:
    """In the order of their ranks: as the clocks were measured, or else ``host0``, ``host1``, ..."""
    offsets = (trial.evidence.model_extra or {}).get("clock_offsets_ns")
    measured = list(map(str, offsets)) if isinstance(offsets, dict) else []
    return measured if len(measured) == hosts else [f"host{host}" for host in range(hosts)]


@lru_cache(maxsize=64)
def _by_schedule(
    mode: int, env: tuple[tuple[str, str], ...], setting: Setting, size_bytes: int, lost: int | None
) -> tuple[int, ...]:
    health = Health.whole([setting.nics or 0] * (setting.hosts or 0), setting.gpus)
    try:
        settings = read_settings(mode, dict(env))
        if settings.algo == "auto":
            return ()
        health = health if lost is None else health.with_lost(lost, [0])
        schedule = selection(settings)("all_reduce", size_bytes, health, Cost())
        return received_bytes(schedule, size_bytes, setting.gpus)
    except R2cclError:
        return ()


def received_bytes(schedule: Schedule, size_bytes: int, gpus: int = 1) -> tuple[int, ...]:
    """What each host of `gpus` ranks receives from others when `schedule` runs once on a vector of `size_bytes`."""
    offsets = chunk_offsets(schedule.nchunks, size_bytes)
    received = [0] * (schedule.nranks // gpus)
    for rank, program in enumerate(schedule.programs):
        host = rank // gpus
        for steps in program:
            outside = (steps["recv"] != NOBODY) & (steps["recv"] // gpus != host)
            received[host] += int((offsets[steps["end"]] - offsets[steps["begin"]])[outside].sum())
    return tuple(received)
