"""Whether NICs still carried data when the ranks' silence reached its limit: then the ranks were slow, not hung. Pure.

A long iteration says nothing until it ends. What it moves shows in the counters; ranks that hang only keep their
connections alive. Counters do not say whose bytes they count: traffic of other users over the data NICs can make a hang
look like slow ranks, so `Received` says how much came, where and how fast, for a reader to judge.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from harness.hosts.base import Sample
from harness.sweep.carried import grown

LAST_PART = 0.25
"""The share of the limit, at its end, in which traffic counts. What was sent before may be from before the fault."""
KEEP_ALIVE_BYTES_S = 25_000
"""The most that keep-alives come to, per NIC, other host and rank of a host: each rank is a process that keeps its own
connections alive. The core asks a quiet path every 15 ms, and a question and its answer are some 200 bytes; a rate
limit of 1 Mbit/s lets 125,000 pass."""


@dataclass(frozen=True)
class Received:
    """What NICs received in the last `seconds` of a limit."""

    seconds: float
    bytes_s: Mapping[tuple[str, str], float]
    """By host and NIC."""
    keep_alive_bytes_s: float
    """The most that keep-alives of all these NICs come to."""

    @property
    def together_bytes_s(self) -> float:
        """The rate of all NICs together."""
        return sum(self.bytes_s.values())

    def __str__(self) -> str:
        host, nic = max(self.bytes_s, key=lambda one: self.bytes_s[one])
        together = f"{_mega(self.together_bytes_s * self.seconds)}B in its last {self.seconds:.2g} s"
        most = f"{_mega(self.bytes_s[host, nic])}B/s of it on {host} {nic}"
        least = f"keep-alives are at most {_mega(self.keep_alive_bytes_s)}B/s"
        return f"{together} ({_mega(self.together_bytes_s)}B/s, {most}; {least})"


def still_moving(
    samples: Mapping[str, Sequence[Sample]],
    ended_ns: int,
    limit_s: float,
    ranks_per_host: int = 1,
    without: Container[tuple[str, str]] = (),
) -> Received | None:
    """What NICs received in the last part of a limit that was over at `ended_ns`; None if all of them together
    received no more than keep-alives.

    Only received bytes count: TCP goes on sending into a black hole. `without`: NICs (host and name) whose traffic is
    not that of the ranks alone.
    """
    since_ns = ended_ns - int(LAST_PART * limit_s * 1e9)
    rates = {
        (host, nic[0].nic): _rate(nic, since_ns, ended_ns)
        for host, taken in samples.items()
        for nic in _by_nic(s for s in taken if (host, s.nic) not in without)
    }
    others = max(1, len(samples) - 1)
    found = Received(LAST_PART * limit_s, rates, KEEP_ALIVE_BYTES_S * len(rates) * others * ranks_per_host)
    return found if found.together_bytes_s > found.keep_alive_bytes_s else None


def _mega(count: float) -> str:
    return f"{float(f'{count / 1e6:.2g}'):g} M"


def _by_nic(taken: Iterable[Sample]) -> Iterable[list[Sample]]:
    ordered = sorted((s for s in taken if not s.is_gone), key=lambda s: (s.nic, s.t_ns))
    return [list(of_nic) for _, of_nic in groupby(ordered, key=lambda s: s.nic)]


def _rate(nic: Sequence[Sample], since_ns: int, until_ns: int) -> float:
    inside = [s for s in nic if since_ns <= s.t_ns <= until_ns]
    if len(inside) < 2 or inside[-1].t_ns == inside[0].t_ns:
        return 0.0
    return 1e9 * grown([s.received for s in inside]) / (inside[-1].t_ns - inside[0].t_ns)
