"""Lower bounds on a collective's time for any vector of host bandwidths, ignoring latency.

Model: host i sends and receives at ``r_i`` bytes per second at once, through a non-blocking switch; a schedule stores,
adds and forwards partial sums (coding across elements is not covered). Two arguments:

cut     A host must send what only it has, and receive what it lacks, through its own port. volume  Every element needs
a number of messages between hosts however it travels; together they pass
        all sending ports (and all receiving ports), whose rate is the sum of the r_i.

The volume of AllReduce: take one element. Before any host has its sum, each of the other p-1 hosts' inputs has left its
host in some message, and the messages that carry inputs towards the first complete sum form a connected graph on p
hosts: at least p-1 messages. At that moment p-1 hosts lack the sum, and each must still receive a message: p-1 more. So
2(p-1)n bytes pass ports of sum(r) (after arXiv 2606.01680). With n bytes on each host:

    all_reduce      max( n/min r,               2(p-1) n / sum r )
    reduce_scatter  max( (p-1)/p n/min r,       (p-1) n / sum r )     n = the whole vector
    all_gather      the same, time reversed                           n = the whole result
    broadcast       max( n/min r,               (p-1) n / sum r )
    reduce          the same, time reversed
    sendrecv        max( 1/p n/min r,           n / sum r )           n = all p blocks
    alltoall        max( (p-1)/p^2 n/min r,     (p-1)/p n / sum r )   n = all p*p blocks
"""

from collections.abc import Sequence

from r2ccl_core.errors import UsageError
from r2ccl_core.model.collective import COLLECTIVES


def bound_s(collective: str, rates_bytes_s: Sequence[float], size_bytes: float) -> float:
    """The least time in seconds that any schedule can take; infinite if a needed host has no bandwidth.

    ``size_bytes`` is the vector of `collective.py`'s chunk space on one rank (see the table above).
    """
    hosts = len(rates_bytes_s)
    if collective not in COLLECTIVES:
        raise UsageError(f"the collective {collective!r} is unknown; it is one of {', '.join(COLLECTIVES)}")
    if hosts < 2 or size_bytes == 0:
        return 0.0
    cut, volume = _needs(collective, hosts)
    return max(_over(cut * size_bytes, min(rates_bytes_s)), _over(volume * size_bytes, sum(rates_bytes_s)))


def _needs(collective: str, hosts: int) -> tuple[float, float]:
    """The bytes that must pass each host's port, and all ports together, as multiples of the vector."""
    others = hosts - 1
    return {
        "all_reduce": (1.0, 2.0 * others),
        "broadcast": (1.0, 1.0 * others),
        "reduce": (1.0, 1.0 * others),
        "reduce_scatter": (others / hosts, 1.0 * others),
        "all_gather": (others / hosts, 1.0 * others),
        "sendrecv": (1 / hosts, 1.0),
        "alltoall": (others / hosts**2, others / hosts),
    }[collective]


def fault_free_ring_s(nhosts: int, rate_bytes_s: float, size_bytes: float) -> float:
    """T0: the ring AllReduce of equal hosts, ``2 (p-1)/p`` of the vector through every port."""
    return 2 * (nhosts - 1) / nhosts * size_bytes / rate_bytes_s


def _over(volume_bytes: float, rate_bytes_s: float) -> float:
    return volume_bytes / rate_bytes_s if rate_bytes_s > 0 else float("inf")
