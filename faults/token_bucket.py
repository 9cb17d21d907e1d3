"""The rate limit of one direction of a NIC, as the parameters of Linux' token bucket filter (tbf)."""

from dataclasses import dataclass
from math import ceil

GSO_BYTES = 65536 + 1024
"""The largest packet TCP hands to a NIC at once, and room for its headers."""

QUEUE_S = 0.016
"""How long a packet may wait behind a NIC's rate limit."""

BURST_S = 0.002
"""How much a NIC may send at once after a pause, as time at its rate; at least one GSO packet."""

HANDLE = "2:"
"""The handle of the rate limits that a cluster's NICs have for good."""


@dataclass(frozen=True)
class TokenBucket:
    """The parameters of one tbf."""

    rate_bytes_s: int
    burst_bytes: int
    limit_bytes: int

    @classmethod
    def for_rate(cls, rate_bit_s: float) -> "TokenBucket":
        """For one direction of one NIC.

        A packet larger than the burst would be cut up by the kernel, one larger than the queue dropped; so both
        hold GSO packets whole even where the rate alone would ask for less. The kernel keeps a burst as a time in
        ticks: it reads back up to a microsecond's bytes smaller, how much depends on the program that wrote it.
        """
        rate = int(rate_bit_s / 8)
        return cls(rate, max(2 * GSO_BYTES, ceil(rate * BURST_S)), max(4 * GSO_BYTES, int(rate * QUEUE_S)))

    @property
    def words(self) -> tuple[str, ...]:
        """As ``tc qdisc`` takes them."""
        rate, burst, limit = self.rate_bytes_s * 8, self.burst_bytes, self.limit_bytes
        return ("tbf", "rate", f"{rate}bit", "burst", f"{burst}b", "limit", f"{limit}b")
