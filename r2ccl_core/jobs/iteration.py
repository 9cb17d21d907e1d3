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
from pathlib import Path

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import groups, simai
from r2ccl_core.jobs.layout import Layout
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
    return times * groups.tensor_s("all_reduce", model.activation_bytes(layout.micro_batch), layout, network)


def _pipeline_s(model: Model, layout: Layout, network: Network) -> float:
    """Filling and draining: every boundary once each way. All data-parallel ranks of a stage send at once."""
    return groups.boundaries_s(model.activation_bytes(layout.micro_batch) / layout.tensor, layout, network)


def _expert_s(model: Model, layout: Layout, network: Network) -> float:
    """Dispatch and combine, forward and backward."""
    if layout.expert == 1:
        return 0.0
    times = 4 * model.layers / layout.pipeline * layout.micro_batches
    sent = model.top_k * model.activation_bytes(layout.micro_batch) / layout.tensor
    return times * groups.expert_s("alltoall", sent, layout, network)


def _data_s(model: Model, layout: Layout, network: Network) -> float:
    """The slowest stage's gradients and parameters."""
    own = model.parameters / (layout.tensor * layout.pipeline)
    return max(
        sum(
            groups.data_s(collective, own * element_bytes, layout, network, stage) * times
            for collective, element_bytes, times in _data_traffic(layout)
        )
        for stage in layout.stages(network.gpus_per_host)
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
