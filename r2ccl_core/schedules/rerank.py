"""Re-ranking: an order of the ring in which neighbours share rails.

If a NIC reaches only NICs of its own rail, two neighbours in the ring that lost different rails have few rails in
common, and the ring runs at the rate of that edge. A host that has both sets of rails, placed between them, raises the
rate (after arXiv 2512.25059; the procedure is a reconstruction).
"""

from collections.abc import Callable, Sequence

from r2ccl_core.model.schedule import Schedule, relabelled
from r2ccl_core.model.topology import Topology
from r2ccl_core.schedules import ring
from r2ccl_core.schedules.algorithm import Pairs, Shares

MOST_HOSTS = 64
"""Larger clusters keep their order, and their pairs of hosts are not examined: with 64 hosts that takes 0.5 s, with 256
it took 7."""


def ring_order(topology: Topology) -> tuple[int, ...]:
    """Hosts in an order whose weakest edge is no weaker than that of 0, 1, 2, ...

    Repeatedly takes the weakest edge (i, j) that is below what i and j could each do, and moves between them the host
    that raises the ring's sorted edge rates most; stops when no move raises them.
    """
    order = list(range(topology.nhosts))
    if topology.nhosts > MOST_HOSTS:
        return tuple(order)
    while (better := _better(topology, order)) is not None:
        order = better
    return tuple(order)


def narrow_pairs(topology: Topology) -> Pairs | None:
    """What every two hosts can carry between them, relative to the best host's nominal rate. None if no two hosts are
    limited by rails that one of them has lost, and for more hosts than `MOST_HOSTS`."""
    if topology.nhosts > MOST_HOSTS:
        return None
    best = max(host.nominal_bytes_s for host in topology.hosts)
    hosts = range(topology.nhosts)
    pairs = tuple(tuple(topology.pair_rate_bytes_s(a, b) / best for b in hosts) for a in hosts)
    shares = topology.shares
    narrow = any(pairs[a][b] < min(shares[a], shares[b]) * (1 - 1e-9) for a in hosts for b in hosts if a != b)
    return pairs if narrow else None


def in_order(order: Sequence[int], shares: Shares, build: Callable[[Shares], Schedule]) -> Schedule:
    """The schedule that `build` makes from the hosts' shares, with host ``order[i]`` and its ranks in the place of host
    i; as it is if they stay in theirs."""
    schedule = build(tuple(shares[host] for host in order))
    stays = list(order) == sorted(order)
    return schedule if stays else relabelled(schedule, rank_order(order, schedule.nranks))


def rank_order(order: Sequence[int], nranks: int) -> list[int]:
    """The ranks of hosts in this order."""
    gpus = nranks // len(order)
    return [host * gpus + rank for host in order for rank in range(gpus)]


def ring_rate_bytes_s(topology: Topology, order: tuple[int, ...]) -> float:
    """The rate of the ring in this order: that of its weakest edge."""
    return _edges(topology, list(order))[0]


def all_reduce(topology: Topology, *, slices: int = 1, lanes: int = 1) -> Schedule:
    """The ring AllReduce over hosts in `ring_order`."""
    plain = ring.all_reduce(topology.nhosts, slices=slices, lanes=lanes)
    return relabelled(plain, ring_order(topology))


def _edges(topology: Topology, order: list[int]) -> list[float]:
    """Rates of all edges of the ring, the weakest first, so that rings compare like lists."""
    pairs = zip(order, order[1:] + order[:1], strict=True)
    return sorted(min(topology.pair_rate_bytes_s(a, b), topology.pair_rate_bytes_s(b, a)) for a, b in pairs)


def _better(topology: Topology, order: list[int]) -> list[int] | None:
    rates = topology.rates_bytes_s
    now = _edges(topology, order)
    size = len(order)
    for at in sorted(range(size), key=lambda at: topology.pair_rate_bytes_s(order[at], order[(at + 1) % size])):
        here, there = order[at], order[(at + 1) % size]
        if topology.pair_rate_bytes_s(here, there) >= min(rates[here], rates[there]):
            continue
        moves = [_moved(order, host, here) for host in order if host not in (here, there)]
        best = max(moves, key=lambda move: _edges(topology, move), default=order)
        if _edges(topology, best) > now:
            return best
    return None


def _moved(order: list[int], host: int, behind: int) -> list[int]:
    rest = [other for other in order if other != host]
    place = rest.index(behind) + 1
    return [*rest[:place], host, *rest[place:]]
