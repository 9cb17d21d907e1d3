"""Proves by the struck NICs' own counters that a fault hit a collective. Pure.

Ranks report that they were inside an iteration; only counters can show that a NIC was in use. Bytes are counted from
the beginning of the iteration on the struck host. A NIC that failed early in the iteration had little time to carry
anything, so the iterations right before count too. If ranks move no data, nothing is checked.

A NIC that carries nothing of the collective is not silent: the core asks idle paths whether they work, and the barrier
before each iteration may use a data NIC (gloo has one NIC for its collectives and another for the barriers between
them). Only what clearly exceeds both was a collective's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from harness.events import RankRecord
from harness.hosts.base import Sample
from harness.sweep.in_flight import InFlight, begin_ns

LEAST_SHARE = 0.01
"""Share of the bytes that a NIC carries in an evenly spread collective; a NIC with less was not in use. An idle NIC
carries a few probes."""
LEAST_BYTES = 256
"""More than a probe and its answer, or two ARP packets."""
LEAST_EACH_BYTES = 100
"""What an iteration at least carries over a NIC that it uses, on average: one message with its header and
acknowledgement. AllReduces of 8 bytes came to 158 and more, an idle NIC beside them to 66 at most."""
KEEP_ALIVE_BYTES_S = 30_000
KEEP_ALIVE_BURST_BYTES = 1_500
"""More than the core's probes of idle paths come to, sent and received: in 50 ms at most 2.3 kB, in 250 ms half of the
rate (AllReduces of 8 bytes to 4 KiB that used the other NIC of three hosts, on two busy processors)."""
BARRIERS = 1.25
"""What barriers may come to, over what they came to before the first iteration. They differ by 3 %; gloo's AllReduce of
8 bytes comes to 1.5 times its barrier."""
ENOUGH_SAMPLES = 25
"""Number of samples to collect from the iterations before."""


@dataclass(frozen=True)
class Carried:
    """Bytes of one NIC, sent and received; None if fewer than two samples fall into the time."""

    host: str
    nic: str
    in_flight: int | None
    """Bytes in the iteration (or batch of iterations) that was in flight, until its end or the heal."""
    before: int | None
    """Average bytes in one of the iterations right before it."""
    least: int
    """A NIC with fewer bytes in flight was not in use."""
    least_before: int
    """The same for one of the iterations before."""
    cut_short: bool
    """Whether the NIC was observed in the iteration only until the fault."""

    @property
    def in_use(self) -> bool:
        """Whether the iteration in flight used the NIC, as far as counters can tell."""
        if self.in_flight is not None and self.in_flight >= self.least:
            return True
        unsettled = self.cut_short or self.in_flight is None
        return unsettled and self.before is not None and self.before >= self.least_before

    def as_evidence(self) -> dict[str, Any]:
        """JSON values for the stored trial."""
        return {
            "host": self.host,
            "nic": self.nic,
            "in_flight_bytes": self.in_flight,
            "before_bytes": self.before,
            "least_bytes": self.least,
            "least_before_bytes": self.least_before,
        }

    def __str__(self) -> str:
        where = f"{self.host} {self.nic}"
        if self.in_flight is None and self.before is None:
            return f"the counters of {where} do not cover the collective that was in flight, nor those before it"
        known = [
            f"{count} bytes in {what}" + (f" ({least} would show that it was in use)" if count else "")
            for count, least, what in (
                (self.in_flight, self.least, "the collective that was in flight"),
                (self.before, self.least_before, "one before it"),
            )
            if count is not None
        ]
        return f"{where} carried {' and '.join(known)}"


def carried(
    samples: Mapping[str, Sequence[Sample]],
    record: RankRecord,
    batch: InFlight,
    nic: tuple[str, str],
    span_ns: tuple[int, int | None],
    even_bytes: float,
    effect_ns: int | None,
) -> Carried:
    """The bytes that `nic` (host and name) carried around the iterations in flight, by its host's `record`.

    `span_ns`: the time since which nothing else was broken, and the time until which the NIC's counters reflect the
    ranks' traffic. `even_bytes`: what each NIC carries in an iteration that is spread evenly. `effect_ns`: when the
    fault stopped all of the NIC's traffic or began to send over the NIC itself; None if it does neither.
    """
    host, name = nic
    mine = [s for s in samples.get(host, ()) if s.nic == name]
    since_ns, until_ns = span_ns
    end_ns = _end_ns(record, batch.last)
    if until_ns is not None:
        end_ns = until_ns if end_ns is None else min(end_ns, until_ns)
    inside = _inside(mine, begin_ns(record, batch.first), end_ns)
    in_flight = moved_bytes(inside) if len(inside) > 1 else None
    before, each_s = _before(mine, record, batch.first, since_ns)
    share = LEAST_SHARE * even_bytes
    least = max(LEAST_BYTES, *_least_in(inside, record, batch, effect_ns, share)) if inside else LEAST_BYTES
    other_before = max(BARRIERS * record.barrier_bytes, KEEP_ALIVE_BYTES_S * each_s)
    least_before = max(LEAST_EACH_BYTES, share, other_before)
    return Carried(host, name, in_flight, before, int(least), int(least_before), cut_short=effect_ns is not None)


def _least_in(
    inside: Sequence[Sample], record: RankRecord, batch: InFlight, effect_ns: int | None, share: float
) -> tuple[float, float, float]:
    """What a NIC has to carry from the first of some samples to the last so that it was in use: a share of each
    iteration, and more than barriers and probes come to."""
    since_ns, until_ns = inside[0].t_ns, inside[-1].t_ns
    until_ns = until_ns if effect_ns is None else max(since_ns, min(until_ns, effect_ns))
    last = min(batch.last, max(record.begun))  # a killed rank may not have begun what the others had
    begun = [begin_ns(record, number) for number in range(batch.first, last + 1)]
    # All of these iterations but the last ended in that time.
    later = sum(since_ns < t_ns <= until_ns for t_ns in begun)
    # A barrier comes before each iteration; other hosts may still be in that of the first one.
    barriers = BARRIERS * record.barrier_bytes * (1 + later)
    keep_alive = KEEP_ALIVE_BURST_BYTES + KEEP_ALIVE_BYTES_S * (until_ns - since_ns) / 1e9
    return share * max(1, later), barriers, keep_alive


def moved_bytes(samples: Sequence[Sample]) -> int:
    """Bytes that one NIC sent and received from the first sample to the last."""
    return grown([s.sent + s.received for s in samples if not s.is_gone])


def grown(counts: Sequence[int]) -> int:
    """The growth of a counter. The counter of a NIC that is made again restarts; its loss at that moment is unknown."""
    return sum(max(0, later - earlier) for earlier, later in pairwise(counts))


def _before(mine: Sequence[Sample], record: RankRecord, first: int, since_ns: int) -> tuple[int | None, float]:
    """The average bytes and seconds over as many iterations right before `first` as it takes for enough samples."""
    end_ns = start_ns = begin_ns(record, first)
    inside: list[Sample] = []
    count = 0
    for number in range(first - 1, min(record.finished, default=first) - 1, -1):
        if number not in record.finished or record.finished[number].t_ns < since_ns:
            break
        start_ns, count = record.finished[number].t_ns, count + 1
        inside = _inside(mine, start_ns, end_ns)
        if len(inside) >= ENOUGH_SAMPLES:
            break
    if len(inside) < 2:
        return None, 0.0
    share = (inside[-1].t_ns - inside[0].t_ns) / (end_ns - start_ns)
    return round(moved_bytes(inside) / max(share, 1e-9) / count), (end_ns - start_ns) / 1e9 / count


def _inside(mine: Sequence[Sample], begin_ns: int, end_ns: int | None) -> list[Sample]:
    """The samples that were surely read between the two times: each one before the time of the next sample."""
    return [
        sample
        for sample, following in pairwise(mine)
        if begin_ns <= sample.t_ns and (end_ns is None or following.t_ns <= end_ns)
    ]


def _end_ns(record: RankRecord, iteration: int) -> int | None:
    """When the iteration ended on that rank, if it did: normally, or with the rank's error."""
    timed = record.finished.get(iteration)
    if timed is not None:
        return timed.end_ns
    return record.error.t_ns if record.error else None
