"""What a trial learnt on its hosts' clocks, told on ours, once these were measured before and after it. Pure."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from harness.hosts.base import Reading, Sample
from harness.sweep.clock import Clock
from harness.sweep.events import RankRecord

Timed = TypeVar("Timed", Sample, Reading)


def on_our_clock(taken: Mapping[str, Sequence[Timed]], clocks: Mapping[str, Clock]) -> dict[str, list[Timed]]:
    """What was taken on each host, with our times."""
    return {
        name: [item._replace(t_ns=clocks[name].ours_ns(item.t_ns)) for item in items] for name, items in taken.items()
    }


def thinned(samples: Sequence[Sample], apart_ns: int) -> list[Sample]:
    """`samples` without those that follow another of their NIC more closely, as they do while a fault takes effect.

    Throughput between two that are very close tells the size of a burst and not a rate. The last of each NIC stays, and
    the one before it goes where they are too close: what a trial moved in all is counted to its end.
    """
    kept: dict[str, list[Sample]] = defaultdict(list)
    passed_over: dict[str, Sample] = {}
    for sample in samples:
        own = kept[sample.nic]
        if own and sample.t_ns - own[-1].t_ns < apart_ns:
            passed_over[sample.nic] = sample
        else:
            own.append(sample)
            passed_over.pop(sample.nic, None)
    for nic, last in passed_over.items():
        kept[nic][max(1, len(kept[nic]) - 1) :] = [last]
    return sorted(chain.from_iterable(kept.values()), key=attrgetter("t_ns"))


def event_rows(
    ranks: Sequence[RankRecord], hosts: Sequence[str], clocks: Mapping[str, Clock]
) -> Iterator[tuple[Any, ...]]:
    """What NCCL and the cores logged, as rows of `reports.series.EVENTS`; rank r ran on ``hosts[r]``."""
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
    """The core's events on the host's clock: those of the rank's last word, or else those that it told before."""
    told = record.core.get("events") if record.core is not None else record.core_events
    return [e for e in told or () if isinstance(e, dict) and isinstance(e.get("t_ns"), int) and "kind" in e]
