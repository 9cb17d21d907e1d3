"""The rate limit of one direction of a NIC, as the parameters of Linux's token bucket filter (tbf)."""

from dataclasses import dataclass
from math import ceil

GSO_BYTES = 65536 + 1024
"""The largest packet that TCP hands to a NIC at once, plus room for its headers."""

QUEUE_S = 0.016
"""How long a packet may wait behind a NIC's rate limit."""

BURST_S = 0.002
"""How much a NIC may send at once after a pause, as time at its rate; at least one GSO packet."""

HANDLE = "2:"
"""The handle of the permanent rate limits of a cluster's NICs."""


@dataclass(frozen=True)
class TokenBucket:
    """The parameters of one tbf."""

    rate_bytes_s: int
    burst_bytes: int
    limit_bytes: int

    @classmethod
    def for_rate(cls, rate_bit_s: float, burst_s: float = BURST_S) -> "TokenBucket":
        """The bucket for one direction of one NIC, which may send `burst_s` at once after a pause.

        The kernel would segment a packet larger than the burst and drop one larger than the queue, so both hold whole
        GSO packets even if the rate alone would need less. The kernel stores a burst as a time in ticks: it reads back
        smaller by up to a microsecond's bytes, depending on the program that wrote it.
        """
        rate = int(rate_bit_s / 8)
        return cls(rate, max(2 * GSO_BYTES, ceil(rate * burst_s)), max(4 * GSO_BYTES, int(rate * QUEUE_S)))

    @property
    def words(self) -> tuple[str, ...]:
        """In the form of ``tc qdisc``."""
        rate, burst, limit = self.rate_bytes_s * 8, self.burst_bytes, self.limit_bytes
        return ("tbf", "rate", f"{rate}bit", "burst", f"{burst}b", "limit", f"{limit}b")
