"""What failed NICs cost training and inference: how much of an iteration waits for the network, times how much slower
the network is. Pure; failures are drawn with a seed.

    overhead = share * (T/T0 - 1)

`share` is the part of a healthy iteration that waits for communication (what computation does not hide). T/T0 is that
of the collective with the failures at hand: hot repair and Balance by their models (arXiv 2512.25059), the choice by
this program's planner, whose schedules the simulator times. The published figures do not say the share: it is taken
from one of them, which that one then cannot confirm; the others can.
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
"""Above it the planner's own prediction is taken, which is checked against the simulator elsewhere."""
SIZE_BYTES = 256 << 20
CHUNKS = 1024


def share_of(overhead: float, ratio: float) -> float:
    """The share of an iteration that waits for the network if a slowdown of `ratio` cost `overhead`."""
    return overhead / (ratio - 1)


def overhead(share: float, ratio: float) -> float:
    """What a slowdown of the collectives to `ratio` costs an iteration, as a share of it."""
    return share * (ratio - 1)


def ratio(topology: Topology, strategy: str) -> float:
    """T/T0 of an AllReduce on `topology`, with what `strategy` does about its losses."""
    healthy = topology.healthy.rates_bytes_s[0]
    if strategy == "hot repair":
        return healthy / min(hot_repaired(topology).rates_bytes_s)
    if strategy == "Balance":
        return healthy / min(topology.rates_bytes_s)
    lost = sorted(sum(1 for nic in host.nics if nic.usable_bytes_s == 0) for host in topology.hosts)
    return _chosen(tuple(lost), len(topology.hosts[0].nics))


@lru_cache(maxsize=1024)
def _chosen(lost: tuple[int, ...], nics: int) -> float:
    """Of equal hosts only how many lost how much decides, not which."""
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
    """`count` clusters in which `failures` random NICs are lost; every host keeps one."""
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
