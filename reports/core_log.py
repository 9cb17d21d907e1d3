"""Merges the event logs of a trial's cores into one list, on the harness's clock. Pure."""

from typing import Any

from reports.trial import Trial


def core_events(trial: Trial) -> list[dict[str, Any]]:
    """The core events of all ranks by time, each with its `rank`, on the harness's clock; malformed ones are left
    out."""
    offsets = (trial.evidence.model_extra or {}).get("clock_offsets_ns")
    # One process per host, in the order of the hosts.
    by_rank = [v if _is_time(v) else 0 for v in offsets.values()] if isinstance(offsets, dict) else []
    events = []
    for rank, core in trial.core.items():
        offset = dict(enumerate(by_rank)).get(int(rank), 0) if rank.isdecimal() and len(rank) < 7 else 0
        logged = core.get("events") if isinstance(core, dict) else None
        for event in logged if isinstance(logged, list) else ():
            if isinstance(event, dict) and _is_time(event.get("t_ns")):
                events.append(event | {"rank": rank, "t_ns": event["t_ns"] - offset})
    return sorted(events, key=lambda e: int(e["t_ns"]))


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
