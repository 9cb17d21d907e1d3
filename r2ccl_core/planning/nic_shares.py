"""How the bytes of a schedule are divided over NICs if hosts have lost different rails.

Two such hosts share few rails. Hosts that share more have to leave those rails to them: otherwise the schedule, whose
loads on hosts are even, overloads some NICs while others idle. A host cannot know this from its own NICs, since it does
not see what the others send to its peers. So the planner divides what each pair of hosts exchanges such that the
busiest NIC of all, in either direction, has the least to do.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from r2ccl_core.model.schedule import NOBODY, Schedule
from r2ccl_core.model.topology import Topology

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_ROUNDS = 500
ENOUGH = 1.003
"""How much more than necessary the busiest NIC may have."""
LEAST_SHARE = 0.02
"""Smaller ones are left to the others: single chunks would be more than that."""


def with_nic_shares(schedule: Schedule, topology: Topology) -> Schedule:
    """The schedule with the NICs' shares for every pair of ranks on different hosts; as it is where an even division is
    as good, since the transport does better with NICs that turn out to be slower than planned."""
    gpus = schedule.nranks // topology.nhosts
    pairs, loads = host_loads(schedule, gpus)
    parts = divided(pairs, loads, nic_rates(topology))
    if parts is None:
        return schedule
    places = range(gpus)
    shares: dict[tuple[int, int], tuple[float, ...]] = {}
    for (a, b), part in zip(pairs.tolist(), parts.tolist(), strict=True):
        own = tuple(part[: len(topology.hosts[a].nics)])
        if any(own):
            shares |= {(a * gpus + one, b * gpus + other): own for one in places for other in places}
    return replace(schedule, nic_shares=shares)


def host_loads(schedule: Schedule, gpus: int) -> tuple[Ints, Floats]:
    """The pairs of hosts that exchange something, sender first, and what part of the vector."""
    loads: dict[tuple[int, int], float] = {}
    for rank, program in enumerate(schedule.programs):
        for steps in program:
            sent = steps[steps["send"] != NOBODY]
            chunks = np.bincount(sent["send"] // gpus, weights=sent["end"] - sent["begin"])
            for host in np.flatnonzero(chunks):
                pair = rank // gpus, int(host)
                loads[pair] = loads.get(pair, 0.0) + float(chunks[host]) / schedule.nchunks
    between = sorted(pair for pair in loads if pair[0] != pair[1])
    return np.array(between, dtype=np.int64).reshape(-1, 2), np.array([loads[pair] for pair in between])


def nic_rates(topology: Topology) -> Floats:
    """``[host, nic]``: what each NIC still carries, relative to the best; 0 for NICs that a host does not have."""
    rates = np.zeros((topology.nhosts, max(len(host.nics) for host in topology.hosts)))
    for number, host in enumerate(topology.hosts):
        rates[number, : len(host.nics)] = [nic.usable_bytes_s for nic in host.nics]
    best: float = rates.max()
    return rates / best


def divided(pairs: Ints, loads: Floats, rates: Floats) -> Floats | None:
    """``[pair, nic]``: the part of what each pair of hosts exchanges that goes over the NICs of this number of both;
    zeros for hosts that share no NIC. None: an even division is as good.

    Every pair repeatedly moves bytes away from NICs that are busier than others (multiplicative weights). This circles
    around the best division, so the mean of recent rounds is tried as well.
    """
    ends = [np.equal.outer(np.arange(len(rates)), pairs[:, end]).astype(float) for end in (0, 1)]
    costs = _over(np.ones_like(rates), rates)

    def times(parts: Floats) -> list[Floats]:
        return [(end @ (parts * loads[:, None])) * costs for end in ends]

    common = np.minimum(rates[pairs[:, 0]], rates[pairs[:, 1]])
    parts = mean = best = _normalized(common)
    of_hosts = [_over(end @ loads, rates.sum(axis=1)) for end in ends]
    bound = max(float(one.max()) for one in (*of_hosts, _over(loads, common.sum(axis=1))))
    least = np.inf
    for number in range(MOST_ROUNDS):
        for tried in (parts, mean):
            busiest = max(float(of_end.max()) for of_end in times(tried))
            if busiest < least:
                best, least = tried, busiest
        if least <= ENOUGH * bound:
            break
        busy = times(parts)
        busiest = max(float(of_end.max()) for of_end in busy)
        sharpness = 20 + number / 4
        sent, received = ((of_end / busiest) ** sharpness * costs for of_end in busy)
        prices = sent[pairs[:, 0]] + received[pairs[:, 1]]
        parts = _normalized(parts * np.exp(-0.1 * prices / prices.max()))
        mean = 0.95 * mean + 0.05 * parts if number > 20 else parts
    return _normalized(np.where(best < LEAST_SHARE, 0.0, best)) if number else None


def _normalized(parts: Floats) -> Floats:
    return _over(parts, parts.sum(axis=1, keepdims=True))


def _over(above: Floats, below: Floats) -> Floats:
    """The quotient; 0 where nothing can be carried."""
    quotient: Floats = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient
