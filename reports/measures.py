"""One row per trial: what each trial measured, from its iterations, its core's events and its counters.

This frame is what every table and figure is made from. Only the last attempt of a trial is in it; an
inconclusive one has its status but no measure, since nothing can be said about it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pandas as pd

from reports import model, stats
from reports.load import LoadedRun, counters
from reports.recovery import recovery_ns, throughput
from reports.setting import Setting, setting_of
from reports.trial import Phase, Trial

MAX_COUNTERS = 600
"""Trials whose counters are read; a file takes a few milliseconds, so of more trials an even sample is taken."""

SHOWN_PHASES: tuple[Phase, ...] = ("before", "hit", "after")

MEASURES = (
    "before_gbs", "hit_gbs", "after_gbs", "before_ms", "hit_ms", "after_ms", "slowdown", "hit_cost_ms", "stall_ms",
    "error_after_ms", "detect_ms", "migrate_ms", "return_ms", "recover_ms", "replayed_chunks",
)  # fmt: skip
"""The columns that are measured; `_ms` are milliseconds, the last ones from the fault (return: from the heal)."""


def trial_frame(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """The last attempt of every trial of `runs`, one row each."""
    several = len(runs) > 1
    rows = []
    faulted = sum(1 for run in runs for t in run.final_trials if t.fault and t.status == "ok")
    every = max(1, -(-faulted // MAX_COUNTERS))
    for run in runs:
        setting = setting_of(run.run)
        for number, trial in enumerate(run.final_trials):
            row = _about(trial, run.name, setting, several)
            if trial.status != "inconclusive":
                row |= _measures(trial)
                row["recover_ms"] = _recover_ms(run, trial) if number % every == 0 else None
            rows.append(row)
    frame = pd.DataFrame(rows)
    for column in MEASURES:
        frame[column] = pd.to_numeric(frame[column]) if column in frame else float("nan")
    return frame.sort_values(["case", "size_bytes", "mode", "system", "repeat"], kind="stable").reset_index(drop=True)


def _about(trial: Trial, run: str, setting: Setting, several: bool) -> dict[str, Any]:
    checked = [i.wrong for i in trial.iterations if i.wrong is not None]
    lost_nic = trial.fault is not None and trial.fault.kind == "nic_down" and setting.nics is not None
    return {
        "run": run,
        "trial_id": trial.trial_id,
        "case": f"{trial.collective} of {trial.dtype} ({trial.op}, {trial.place} of place), {trial.scenario}",
        "scenario": trial.scenario,
        "collective": trial.collective,
        "system": f"{trial.system} ({run})" if several else trial.system,
        "mode": trial.mode,
        "size_bytes": trial.size_bytes,
        "repeat": trial.repeat,
        "status": trial.status,
        "expected": trial.expected,
        "faulted": trial.fault is not None,
        "wrong": sum(checked),
        "checked": len(checked),
        "hosts": setting.hosts,
        "nics": setting.nics,
        "limit_gbs": setting.limit_gbs,
        "limit_after_gbs": setting.limit_after_gbs if lost_nic else None,
        "model": model.of_mode(trial.mode, setting.nics or 0) if lost_nic else None,
        "floor": model.floor(trial.collective, setting.hosts or 0, setting.nics or 0) if lost_nic else None,
    }


def _measures(trial: Trial) -> dict[str, float | None]:
    durations = {p: [float(i.duration_ns) for i in trial.iterations if i.phase == p] for p in SHOWN_PHASES}
    measured: dict[str, float | None] = {}
    for phase in SHOWN_PHASES:
        measured[f"{phase}_gbs"] = stats.median(i.busbw_gbs for i in trial.iterations if i.phase == phase)
        measured[f"{phase}_ms"] = stats.median(durations[phase]) / 1e6
    measured["slowdown"] = stats.slowdown(durations["before"], durations["after"])
    measured["hit_cost_ms"] = stats.hit_cost_ns(durations["hit"], durations["after"]) / 1e6
    measured["stall_ms"] = _stall_ms(trial, durations)
    after_ns = trial.error.after_fault_ns if trial.error else None
    measured["error_after_ms"] = after_ns / 1e6 if after_ns is not None and after_ns >= 0 else None
    return measured | _event_times(trial)


def _stall_ms(trial: Trial, durations: dict[Phase, list[float]]) -> float | None:
    hit = [i for i in trial.iterations if i.phase == "hit"]
    if trial.fault is None or len(hit) != 1:
        return None
    until_fault_ns = trial.fault.t_before_ns - hit[0].t_ns
    usual = stats.median(durations["before"]), stats.median(durations["after"])
    return stats.stall_ns(float(hit[0].duration_ns), until_fault_ns, *usual) / 1e6


def _event_times(trial: Trial) -> dict[str, float | None]:
    """From the fault to the first sign of it in any core's log, and to the first migration; heal to return."""
    if trial.fault is None:
        return {}
    events, fault = core_events(trial), trial.fault
    replayed = [_number(core.get("replayed_chunks")) for core in trial.core.values() if isinstance(core, dict)]
    return {
        "detect_ms": _first_ms(events, lambda kind: kind == "path_down", fault.t_before_ns),
        "migrate_ms": _first_ms(events, lambda kind: kind == "migrated", fault.t_before_ns),
        "return_ms": _first_ms(events, lambda kind: kind == "path_returned", fault.heal_ns),
        "replayed_chunks": sum(stats.known(replayed)) if replayed else None,
    }


def core_events(trial: Trial) -> list[dict[str, Any]]:
    """The core events of all ranks by time, each with its `rank`, on the harness' clock; strange ones left out."""
    offsets = (trial.evidence.model_extra or {}).get("clock_offsets_ns")
    # One rank a host, in the order of the hosts.
    by_rank = [v if _is_time(v) else 0 for v in offsets.values()] if isinstance(offsets, dict) else []
    events = []
    for rank, core in trial.core.items():
        offset = dict(enumerate(by_rank)).get(int(rank), 0) if rank.isdecimal() and len(rank) < 7 else 0
        logged = core.get("events") if isinstance(core, dict) else None
        for event in logged if isinstance(logged, list) else ():
            if isinstance(event, dict) and _is_time(event.get("t_ns")):
                events.append(event | {"rank": rank, "t_ns": event["t_ns"] - offset})
    return sorted(events, key=lambda e: int(e["t_ns"]))


def _first_ms(events: Iterable[dict[str, Any]], wanted: Callable[[str], bool], since_ns: int | None) -> float | None:
    if since_ns is None:
        return None
    found = (e["t_ns"] for e in events if e["t_ns"] >= since_ns and wanted(str(e.get("kind"))))
    first = next(found, None)
    return None if first is None else float(first - since_ns) / 1e6


def _recover_ms(run: LoadedRun, trial: Trial) -> float | None:
    """From the fault until the struck host sends at its later speed again, by its NIC counters."""
    hit = [i for i in trial.iterations if i.phase == "hit"]
    after = [i for i in trial.iterations if i.phase == "after"]
    if trial.fault is None or not hit or not after:
        return None
    samples = counters(run, trial)
    if isinstance(samples, str) or samples.empty:
        return None
    span = after[0].t_ns, after[-1].t_ns + after[-1].duration_ns
    hit_end_ns = hit[-1].t_ns + hit[-1].duration_ns
    took = recovery_ns(throughput(samples), trial.fault.host, trial.fault.t_before_ns, hit_end_ns, span)
    return None if took is None else took / 1e6


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
