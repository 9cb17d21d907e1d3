"""Converts the times of a trial from its hosts' clocks to ours, which were compared before and after it. Pure."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from harness.events import RankRecord
from harness.hosts.base import Reading, Sample
from harness.sweep.clock import Clock

Timed = TypeVar("Timed", Sample, Reading)


def on_our_clock(taken: Mapping[str, Sequence[Timed]], clocks: Mapping[str, Clock]) -> dict[str, list[Timed]]:
    """The samples or readings of each host, with times on our clock."""
    return {
        name: [item._replace(t_ns=clocks[name].ours_ns(item.t_ns)) for item in items] for name, items in taken.items()
    }


def event_rows(
    ranks: Sequence[RankRecord], hosts: Sequence[str], clocks: Mapping[str, Clock]
) -> Iterator[tuple[Any, ...]]:
    """The events that NCCL and the cores logged, as rows of `reports.series.EVENTS`; rank r ran on ``hosts[r]``."""
    for record in ranks:
        host = hosts[record.rank]
        for t_ns, event in record.nccl:
            fields = json.dumps(dict(event.fields))
            yield t_ns, host, record.rank, "nccl", event.kind, event.level, event.text, fields, event.is_trouble
        for logged in core_events(record):
            t_ns = clocks[host].ours_ns(int(logged["t_ns"]))
            fields = json.dumps({name: logged.get(name) for name in ("nic", "peer")})
            kind, text = str(logged["kind"]), str(logged.get("detail", ""))
            yield t_ns, host, record.rank, "core", kind, None, text, fields, None


def core_events(record: RankRecord) -> list[dict[str, Any]]:
    """The core's events on the host's clock: those of the rank's final report, or else those reported before."""
    told = record.core.get("events") if record.core is not None else record.core_events
    return [e for e in told or () if isinstance(e, dict) and isinstance(e.get("t_ns"), int) and "kind" in e]
