"""Whether NICs still carried data when the ranks' silence reached its limit: then the ranks were slow, not hung. Pure.

A long iteration says nothing until it ends. What it moves shows in the counters; ranks that hang only keep their
connections alive.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby

from harness.hosts.base import Sample
from harness.sweep.carried import grown

LAST_PART = 0.25
"""The share of the limit, at its end, in which traffic counts. What was sent before may be from before the fault."""
KEEP_ALIVE_BYTES_S = 25_000
"""The most that keep-alives come to, per NIC and other host. The core asks a quiet path every 15 ms, and a question
and its answer are some 200 bytes; a rate limit of 1 Mbit/s lets 125,000 pass."""


def still_moving_bytes_s(
    samples: Mapping[str, Sequence[Sample]], ended_ns: int, limit_s: float, without: Container[tuple[str, str]] = ()
) -> float:
    """Bytes per second that all NICs together received in the last part of a limit that was over at `ended_ns`; 0 if
    that is no more than keep-alives.

    Only received bytes count: TCP goes on sending into a black hole. `without`: NICs (host and name) whose traffic is
    not that of the ranks alone.
    """
    since_ns = ended_ns - int(LAST_PART * limit_s * 1e9)
    of_ranks = [[s for s in taken if (host, s.nic) not in without] for host, taken in samples.items()]
    rates = [_rate(nic, since_ns, ended_ns) for taken in of_ranks for nic in _by_nic(taken)]
    together, others = sum(rates), max(1, len(samples) - 1)
    return together if together > KEEP_ALIVE_BYTES_S * len(rates) * others else 0.0


def _by_nic(taken: Iterable[Sample]) -> Iterable[list[Sample]]:
    ordered = sorted((s for s in taken if not s.is_gone), key=lambda s: (s.nic, s.t_ns))
    return [list(of_nic) for _, of_nic in groupby(ordered, key=lambda s: s.nic)]


def _rate(nic: Sequence[Sample], since_ns: int, until_ns: int) -> float:
    inside = [s for s in nic if since_ns <= s.t_ns <= until_ns]
    if len(inside) < 2 or inside[-1].t_ns == inside[0].t_ns:
        return 0.0
    return 1e9 * grown([s.received for s in inside]) / (inside[-1].t_ns - inside[0].t_ns)
