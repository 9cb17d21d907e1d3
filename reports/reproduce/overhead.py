"""The cost of failed NICs for training and inference: the share of an iteration that waits for the network, times the
slowdown of the network. Pure; failures are drawn with a seed.

    overhead = share * (T/T0 - 1)

`share` is the part of a healthy iteration that waits for communication (not hidden by computation). T/T0 is that of the
collective with the given failures: hot repair and Balance by their models (arXiv 2512.25059), the choice by this
program's planner, whose schedules the simulator times. The published figures do not state the share: it is derived from
one of them, which therefore confirms nothing; the others can.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import pandas as pd

from r2ccl_core.model.topology import Host, Nic, Topology, hot_repaired
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate
from reports import stats

STRATEGIES = ("hot repair", "Balance", "planner's choice")
MAX_SIMULATED_HOSTS = 16
"""Above this size the planner's own prediction is used, which other tests compare with the simulator."""
SIZE_BYTES = 256 << 20
CHUNKS = 1024


def share_of(overhead: float, ratio: float) -> float:
    """The share of an iteration that waits for the network if a slowdown of `ratio` costs `overhead`."""
    return overhead / (ratio - 1)


def overhead(share: float, ratio: float) -> float:
    """The cost for an iteration, as a share of it, of slowing its collectives down by `ratio`."""
    return share * (ratio - 1)


def ratio(topology: Topology, strategy: str) -> float:
    """T/T0 of an AllReduce on `topology` under `strategy`."""
    healthy = topology.healthy.rates_bytes_s[0]
    if strategy == "hot repair":
        return healthy / min(hot_repaired(topology).rates_bytes_s)
    if strategy == "Balance":
        return healthy / min(topology.rates_bytes_s)
    lost = sorted(sum(1 for nic in host.nics if nic.usable_bytes_s == 0) for host in topology.hosts)
    return _chosen(tuple(lost), len(topology.hosts[0].nics))


@lru_cache(maxsize=1024)
def _chosen(lost: tuple[int, ...], nics: int) -> float:
    """Among equal hosts, only the number of lost NICs per host matters, not which hosts lost them."""
    topology = cluster(len(lost), nics, lost)
    result = plan(topology, "all_reduce", SIZE_BYTES, most_chunks=CHUNKS)
    if len(lost) > MAX_SIMULATED_HOSTS:
        return result.chosen.ratio
    return simulate(result.schedule(), topology, SIZE_BYTES).seconds / result.fault_free_s


def cluster(hosts: int, nics: int, lost: Sequence[int]) -> Topology:
    """Equal hosts, of which number i has lost ``lost[i]`` NICs."""
    whole = [Nic(rail, 1e9) for rail in range(nics)]
    gone = [Nic(rail, 1e9, remaining=0.0) for rail in range(nics)]
    return Topology(tuple(Host((*gone[:n], *whole[n:])) for n in [*lost, *[0] * (hosts - len(lost))]))


def draws(hosts: int, nics: int, failures: int, count: int, seed: int = 0) -> Iterator[Topology]:
    """`count` clusters with `failures` randomly lost NICs; every host keeps at least one."""
    chance = random.Random(f"{seed}/{hosts}/{nics}/{failures}")
    drawn = 0
    while drawn < count:
        struck = Counter(place // nics for place in chance.sample(range(hosts * nics), failures))
        if max(struck.values(), default=0) < nics:
            drawn += 1
            yield cluster(hosts, nics, [struck.get(host, 0) for host in range(hosts)])


def table(
    workload: str, share: float, hosts: int, nics: int, failures: Sequence[int], *, count: int = 40, seed: int = 0
) -> pd.DataFrame:
    """Overheads by number of failures and strategy: mean over the draws, and their 5th and 95th percentile."""
    rows = []
    for k in failures:
        clusters = list(draws(hosts, nics, k, count, seed))
        for strategy in STRATEGIES:
            costs = [overhead(share, ratio(topology, strategy)) for topology in clusters]
            low, high = stats.percentile(costs, 5), stats.percentile(costs, 95)
            mean = sum(costs) / len(costs)
            rows.append((workload, strategy, k, mean, low, high, "model", count))
    columns = ["workload", "strategy", "failures", "overhead", "low", "high", "source", "draws"]
    return pd.DataFrame(rows, columns=columns)
