"""What one collective takes in each kind of group that a job cuts its ranks into: tensor, expert and data parallel.

NVLink carries what stays inside a host; between hosts our schedules do, which heed what is lost. All groups of a kind
run at once and share the hosts; the slowest one counts.
"""

from itertools import pairwise

from r2ccl_core.jobs.layout import Hosts, Layout
from r2ccl_core.jobs.network import Network


def tensor_s(collective: str, size_bytes: float, layout: Layout, network: Network) -> float:
    """A vector of ``size_bytes`` among the ranks of a tensor-parallel group, which stand next to each other."""
    groups = layout.tensor_hosts(network.gpus_per_host)
    inside = min(layout.tensor, network.gpus_per_host)
    between_s = max((network.seconds(collective, group, size_bytes) for group in groups), default=0.0)
    return network.inner_s(collective, inside, size_bytes) + between_s


def expert_s(collective: str, size_bytes: float, layout: Layout, network: Network) -> float:
    """``size_bytes`` of every rank among those that hold a layer's experts, which stand next to each other."""
    gpus = network.gpus_per_host
    wide = -(-layout.expert * layout.tensor // gpus)
    if wide == 1:
        return network.inner_s(collective, layout.expert, size_bytes)
    groups = [stage[at : at + wide] for stage in layout.stages(gpus) for at in range(0, len(stage), wide)]
    # An AllToAll's vector holds all blocks: what each of the `wide` hosts sends to all.
    host_bytes = size_bytes * gpus * (wide if collective == "alltoall" else 1)
    return max(network.seconds(collective, group, host_bytes) for group in groups)


def data_s(
    collective: str, rank_bytes: float, layout: Layout, network: Network, stage: Hosts, *, per_expert: bool = False
) -> float:
    """A vector of ``rank_bytes`` a rank among all data-parallel groups of a stage at once, bucket by bucket.

    ``per_expert``: only among ranks that hold the same experts.
    """
    gpus = network.gpus_per_host
    apart = layout.tensor * (layout.expert if per_expert else 1)
    degree = layout.data // (layout.expert if per_expert else 1)
    if degree == 1:
        return 0.0
    shared = max(1, gpus // (layout.tensor * layout.data))  # stages that share a host
    members = max(1, min(degree, gpus // min(apart, gpus)))
    inner_s = network.inner_s(collective, members, rank_bytes) if members > 1 else 0.0
    buckets = max(1, round(rank_bytes / layout.bucket_bytes))
    host_bytes = rank_bytes * min(apart, gpus) * shared / buckets
    wide = max(1, apart // gpus)
    groups = [stage[first::wide] for first in range(wide)]
    between_s = max(network.seconds(collective, group, host_bytes) for group in groups)
    return inner_s + buckets * between_s


def boundaries_s(size_bytes: float, layout: Layout, network: Network) -> float:
    """``size_bytes`` of every rank once over each boundary between pipeline stages on different hosts, and back."""
    senders = min(network.gpus_per_host, layout.tensor * layout.data)
    stages = layout.stages(network.gpus_per_host)
    total = 0.0
    for before, after in pairwise(stages):
        if before[-1] != after[0]:
            pairs = zip(before, after, strict=True)
            total += 2 * max(network.point_to_point_s(a, b, size_bytes * senders) for a, b in pairs)
    return total
