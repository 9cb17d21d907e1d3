"""One training iteration: computation by operations and MFU, communication by our schedules on degraded hosts.

    computation    F / (GPUs peak MFU), or as measured; times 1 + (p-1)/(v m) for the pipeline's bubble
    tensor         4 AllReduce of b s h e bytes a layer and micro-batch, with the bubble as well
    pipeline       b s h e bytes each way over every boundary; what is not filling or draining is hidden
    expert         4 AllToAll of top_k b s h e / experts' degree bytes a layer and micro-batch
    data           gradients (and with ZeRO parameters), in buckets; the part `overlap` is hidden

Data-parallel groups of a stage share its hosts: every host holds their sums after the reduction over NVLink, with
tensor ranks' shards side by side. The slowest stage sets the pace.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import simai
from r2ccl_core.jobs.layout import Hosts, Layout
from r2ccl_core.jobs.model import ELEMENT_BYTES, Model
from r2ccl_core.jobs.network import Network

H100_FLOPS = 989e12
"""Dense bfloat16 operations per second."""


@dataclass(frozen=True)
class Compute:
    """The GPUs' computation: their peak and the part of it that a model reaches; with ``recompute`` activations are
    computed twice. Alternatively ``measured_s``, the time of an iteration's computation on one GPU, whatever its model
    (`measured`)."""

    mfu: float = 0.4
    peak_flops: float = H100_FLOPS
    recompute: bool = False
    measured_s: float | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.mfu <= 1.0 or self.peak_flops <= 0:
            raise UsageError(f"compute: mfu = {self.mfu:g} at {self.peak_flops:g} FLOP/s: give 0 to 1 of a peak")
        if self.measured_s is not None and self.measured_s <= 0:
            raise UsageError(f"compute: measured_s = {self.measured_s:g}: an iteration takes some time")

    def seconds(self, model: Model, layout: Layout) -> float:
        """Time of one iteration on one GPU, without waiting."""
        if self.measured_s is not None:
            return self.measured_s
        flops = model.operations(layout.sequences, recompute=self.recompute)
        return flops / (layout.gpus * self.peak_flops * self.mfu)


def measured(path: Path) -> Compute:
    """The computation in a SimAI workload file, all listed layers, as its generator measures them.

    Raises `UsageError` with file and line if it is no such file, or computes nothing.
    """
    layers = simai.read_workload(path).layers
    total_ns = sum(one.compute_ns for layer in layers for one in (layer.forward, layer.backward, layer.weights))
    total_ns += sum(layer.update_ns for layer in layers)
    if total_ns == 0:
        raise UsageError(f"{path}:3: no layer computes anything; give a workload with measured times")
    return Compute(measured_s=total_ns / 1e9)


@dataclass(frozen=True)
class Iteration:
    """Seconds by cause; communication is the part that computation does not hide. ``tokens`` of the whole batch."""

    compute_s: float
    bubble_s: float
    tensor_s: float
    pipeline_s: float
    expert_s: float
    data_s: float
    tokens: int

    @property
    def seconds(self) -> float:
        """The whole iteration."""
        waits = self.tensor_s + self.pipeline_s + self.expert_s + self.data_s
        return self.compute_s + self.bubble_s + waits

    @property
    def tokens_per_s(self) -> float:
        """Of all GPUs together."""
        return self.tokens / self.seconds


def iteration(model: Model, layout: Layout, network: Network, compute: Compute | None = None) -> Iteration:
    """One iteration of `model`, cut by `layout`; raises `UsageError` if it cannot be cut like that."""
    compute = compute or Compute()
    layout.check(model, network.topology.nhosts, network.gpus_per_host)
    compute_s = compute.seconds(model, layout)
    bubble = (layout.pipeline - 1) / (layout.interleave * layout.micro_batches)
    return Iteration(
        compute_s,
        compute_s * bubble,
        _tensor_s(model, layout, network) * (1 + bubble),
        _pipeline_s(model, layout, network),
        _expert_s(model, layout, network) * (1 + bubble),
        _data_s(model, layout, network) * (1 - layout.overlap),
        layout.sequences * model.sequence,
    )


def _tensor_s(model: Model, layout: Layout, network: Network) -> float:
    """All layers of a stage for all micro-batches; inside a host over NVLink."""
    times = 4 * model.layers / layout.pipeline * layout.micro_batches
    size_bytes = model.activation_bytes(layout.micro_batch)
    groups = layout.tensor_hosts(network.gpus_per_host)
    inside = min(layout.tensor, network.gpus_per_host)
    between_s = max((network.seconds("all_reduce", group, size_bytes) for group in groups), default=0.0)
    return times * (network.inner_s("all_reduce", inside, size_bytes) + between_s)


def _pipeline_s(model: Model, layout: Layout, network: Network) -> float:
    """Filling and draining: every boundary once in each direction. All data-parallel ranks of a stage send at once."""
    stages = layout.stages(network.gpus_per_host)
    total = 0.0
    for before, after in pairwise(stages):
        here, there = before[-1], after[0]
        if here != there:
            senders = min(network.gpus_per_host, layout.tensor * layout.data)
            each = model.activation_bytes(layout.micro_batch) / layout.tensor * senders
            total += 2 * max(network.point_to_point_s(a, b, each) for a, b in zip(before, after, strict=True))
    return total


def _expert_s(model: Model, layout: Layout, network: Network) -> float:
    """Dispatch and combine, forward and backward, among the ranks of the experts, which are adjacent."""
    if layout.expert == 1:
        return 0.0
    times = 4 * model.layers / layout.pipeline * layout.micro_batches
    sent = model.top_k * model.activation_bytes(layout.micro_batch) / layout.tensor
    gpus = network.gpus_per_host
    wide = -(-layout.expert * layout.tensor // gpus)
    if wide == 1:
        return times * network.inner_s("alltoall", layout.expert, sent)
    groups = [stage[at : at + wide] for stage in layout.stages(gpus) for at in range(0, len(stage), wide)]
    host_bytes = sent * gpus * wide  # the vector of all blocks: what each of the `wide` hosts sends to all
    return times * max(network.seconds("alltoall", group, host_bytes * 1.0) for group in groups)


def _data_s(model: Model, layout: Layout, network: Network) -> float:
    """The slowest stage's gradients and parameters."""
    gpus = network.gpus_per_host
    shared = max(1, gpus // (layout.tensor * layout.data))  # stages that share a host
    return max(_stage_s(model, layout, network, stage, shared) for stage in layout.stages(gpus))


def _stage_s(model: Model, layout: Layout, network: Network, stage: Hosts, shared: int) -> float:
    own = model.parameters / (layout.tensor * layout.pipeline)
    return sum(
        _over_hosts_s(collective, own * element_bytes, layout, network, stage, shared) * times
        for collective, element_bytes, times in _data_traffic(layout)
    )


def _data_traffic(layout: Layout) -> tuple[tuple[str, int, int], ...]:
    """Collective, bytes per parameter, and how often per iteration, by ZeRO's stage."""
    gradients, parameters = layout.gradient_bytes, ELEMENT_BYTES
    if layout.zero == 0:
        return (("all_reduce", gradients, 1),)
    if layout.zero == 1:
        return (("reduce_scatter", gradients, 1), ("all_gather", parameters, 1))
    if layout.zero == 2:  # gradients are kept as shards: every micro-batch is reduced
        return (("reduce_scatter", gradients, layout.micro_batches), ("all_gather", parameters, 1))
    many = layout.micro_batches
    return (("all_gather", parameters, 2 * many), ("reduce_scatter", gradients, many))


def _over_hosts_s(
    collective: str, rank_bytes: float, layout: Layout, network: Network, stage: Hosts, shared: int
) -> float:
    """All data-parallel groups of the stage at once, bucket by bucket."""
    gpus = network.gpus_per_host
    if layout.data == 1:
        return 0.0
    tensor_here = min(layout.tensor, gpus)
    members = max(1, min(layout.data, gpus // tensor_here))
    inner_s = network.inner_s(collective, members, rank_bytes) if members > 1 else 0.0
    buckets = max(1, round(rank_bytes / layout.bucket_bytes))
    host_bytes = rank_bytes * tensor_here * shared / buckets
    groups = _data_hosts(layout, stage, gpus)
    between_s = max((network.seconds(collective, group, host_bytes) for group in groups), default=0.0)
    return inner_s + buckets * between_s


def _data_hosts(layout: Layout, stage: Hosts, gpus: int) -> tuple[Hosts, ...]:
    """The hosts among which the shards of equal tensor ranks are reduced: every host, or every n-th."""
    wide = max(1, layout.tensor // gpus)
    return tuple(stage[first::wide] for first in range(wide))
