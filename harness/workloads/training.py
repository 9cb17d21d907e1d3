"""Training: steps of a small GPT on bytes, one rank per host, each replica and step on its own batch.

The simulator models a data-parallel step as DDP runs it: a third of its computation is the forward pass, two thirds the
backward pass, in which the gradients of a bucket are reduced when they are ready and the previous bucket is done.

The same seed gives the same weights, data and losses, so a run with a failure can be compared bit for bit with one
without (`reports.metrics.training`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any, ClassVar, Literal

from pydantic import Field

from harness.events import RankRecord, Timed
from harness.experiment.tables import Duration, Mistake, Size
from harness.workloads.base import BackendName, MemoryAdvice, Operation, SimulationModel, Workload
from harness.workloads.checkers import Checker, same_result
from harness.workloads.layout import FLOATS, LayoutModel, Shape
from r2ccl_core.host.memory import shown

PROCESS_BYTES = 200 << 20
"""A Python with PyTorch in it."""
FORWARD = 1 / 3
"""The forward pass's share of a step's computation: the backward pass takes twice as long (Narayanan 2021)."""
USUAL_FLOPS = 35e9
"""Operations per second of one processor as it trains, with all that a step does besides: 20 more steps of 1.6e9
operations ("1M", 4 sequences of 64 bytes) took a rank of `train_gloo` 0.045 s of a processor each, on the same machine
as `harness.backends.base.TORCH_START_S`."""
MOST_FLOPS = 1e12
"""Operations per second, more than the processors of a host achieve: a step is expected to take at least that long."""


SHAPES: Mapping[str, Shape] = {
    "1M": Shape(4, 144, 4),
    "10M": Shape(8, 320, 8),
    "30M": Shape(9, 528, 8),
    "120M": Shape(16, 784, 16),
}
"""Shapes by the approximate number of parameters."""


RESTART = ("failed_after_ms", "restart_ms", "reload_ms", "redo_ms", "steps_again")
"""What a restarted rank reports on the step in which it failed: when it noticed, how long until all ranks had met
again, how long reading the checkpoint took, and how long the repeated steps took."""


class TrainingSimulation(SimulationModel):
    """Adds how long a host computes, the only value taken from a calibration, which is a run of the same training."""

    compute_s: Duration | None = Field(default=None, alias="compute")
    """Time of a step's forward and backward pass; by default the calibration's, otherwise none."""


class TrainingWorkload(Workload):
    """``kind = "training"``."""

    kind: Literal["training"]
    backend: BackendName = "train_r2ccl"
    model: Literal["1M", "10M", "30M", "120M"] = "1M"
    layout: LayoutModel = LayoutModel()
    steps: int = Field(default=20, ge=1, le=100_000)
    batch: int = Field(default=4, ge=1, le=4096)
    """Sequences per replica and step."""
    micro_batches: int = Field(default=4, ge=1, le=4096)
    """Parts of a batch that the stages of a pipeline work on at the same time."""
    context: int = Field(default=64, ge=2, le=4096)
    """Bytes of a sequence."""
    text: str = ""
    """A file on every host whose bytes are learned from; by default words that are made from the seed."""
    bucket_bytes: Size = Field(default=1 << 20, alias="bucket", gt=0)
    """The size from which on DDP hands gradients to an AllReduce."""
    checkpoint_every: int = Field(default=10, ge=1, le=100_000)
    """Steps between checkpoints, for systems that restart from one."""
    forward_at_least_s: Duration = Field(default=0.0, alias="forward_at_least")
    """A rank whose forward pass is faster waits, as a host waits for its accelerator."""
    learning_rate: float = Field(default=1e-3, gt=0, lt=1, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    """Seed of weights and data."""
    simulation: TrainingSimulation = TrainingSimulation()

    counts: ClassVar[str] = "steps"
    checkers: ClassVar[Sequence[Checker]] = (same_result("weights"),)
    backends: ClassVar[Sequence[BackendName]] = (
        "train_r2ccl",
        "train_gloo",
        "train_nccl",
        "train_mixed",
        "train_torchft",
        "simulate",
    )

    @property
    def parameters(self) -> int:
        """The number of parameters of the model."""
        return SHAPES[self.model].parameters(self.context)

    def iterations_of(self, size_bytes: int, expected_s: float, faulted: bool, seen_s: float) -> int:
        """An iteration is a step."""
        return self.steps

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """The gradients over the NICs, after the operations of the step."""
        compute_s = self._operations / MOST_FLOPS
        return max(compute_s, self.forward_at_least_s) + self.host_bytes(size_bytes, ranks) / host_bytes_s

    @property
    def _operations(self) -> float:
        """Those of a step of one replica: six for each parameter and byte (Narayanan 2021)."""
        return 6.0 * self.parameters * self.batch * self.context

    def processor_s(self) -> float:
        """The same at the speed of a usual processor."""
        return self._operations / USUAL_FLOPS

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """A ring's share of the gradients, and the layout's other traffic."""
        return self.layout.least_host_bytes(hosts, SHAPES[self.model], self.context, self.batch)

    def buckets(self) -> list[int]:
        """Bytes of each bucket in the order of reduction: parameters are added from the last to the first, and a bucket
        is full at `bucket_bytes`."""
        full, filling = [], 0
        for numbers in reversed(SHAPES[self.model].tensors(self.context)):
            filling += FLOATS * numbers
            if filling >= self.bucket_bytes:
                full.append(filling)
                filling = 0
        return [*full, filling] if filling else full

    def operations(self, size_bytes: int, ranks: int, compute_s: float) -> Sequence[Operation]:
        """An AllReduce of each bucket; its gradients are ready after their part of the backward pass."""
        buckets = self.buckets()
        forward_s, backward_s = max(self.forward_at_least_s, compute_s * FORWARD), compute_s * (1 - FORWARD)
        ready = (forward_s + backward_s * done / sum(buckets) for done in accumulate(buckets))
        return [Operation("all_reduce", size, size, ready_s=at_s) for size, at_s in zip(buckets, ready, strict=True)]

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """Weights, gradients, optimizer, activations, and PyTorch itself."""
        return PROCESS_BYTES + self._weights_bytes(ranks) + self._activations_bytes(ranks)

    def memory_advice(self, size_bytes: int, ranks: int) -> MemoryAdvice:
        """Blames the batch if activations are most of it, otherwise the model."""
        weights, activations = self._weights_bytes(ranks), self._activations_bytes(ranks)
        parts = f"per rank {shown(weights)} of weights, gradients and optimizer, {shown(activations)} of activations"
        if activations > weights:
            return MemoryAdvice("workload.batch", str(self.batch), parts, "choose a smaller batch or context")
        less = "" if self.layout.data == "fsdp2" else ', or layout = "fsdp2"'
        return MemoryAdvice("workload.model", self.model, parts, f"choose a smaller model{less}")

    def fills_memory(self, backends: Sequence[str]) -> bool:
        """Not where it is only simulated; on GPUs it is in their memory."""
        return any(backend in ("train_r2ccl", "train_gloo", "train_torchft") for backend in backends)

    def _weights_bytes(self, ranks: int) -> int:
        return self.layout.weights_bytes(ranks, SHAPES[self.model], self.context)

    def _activations_bytes(self, ranks: int) -> int:
        shape = SHAPES[self.model]
        return self.layout.activations_bytes(ranks, shape, self.context, self.batch, self.micro_batches)

    def about(self, size_bytes: int) -> dict[str, Any]:
        """The kind, and a description in words."""
        shape = SHAPES[self.model]
        told = (
            f"training of a GPT with {self.parameters / 1e6:.3g} M parameters ({shape.layers} layers of {shape.width}, "
            f"{self.layout.told()}, {self.batch} x {self.context} bytes per replica)"
        )
        return {"workload": self.kind, "operation": told, "counts": self.counts}

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """The mean loss over the batches of all ranks, the longest forward pass, and the number of bytes in the
        batches."""
        losses = [t.said["loss"] for t in timed if "loss" in t.said]
        forwards = [t.said["forward_ms"] for t in timed if "forward_ms" in t.said]
        told = {"loss": fmean(losses)} if losses else {}
        told |= {"forward_ms": max(forwards)} if forwards else {}
        for name in RESTART:
            told |= {name: max(t.said[name] for t in timed if name in t.said)} if name in _all_said(timed) else {}
        return {"measures": {**told, "tokens": float(self.layout.on(ranks).dp * self.batch * self.context)}}

    def results(self, ranks: Sequence[RankRecord]) -> Mapping[str, Any]:
        """The digest of the weights, which all ranks must share."""
        return {"result": {k: v for k, v in ranks[0].result.items() if k == "weights"}} if ranks else {}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """Mistakes in hosts and layouts."""
        if hosts < 2:
            yield Mistake("cluster.hosts", hosts, "training over one host uses no NIC; give at least 2")
        if self.gpus > 1:
            yield Mistake("workload.gpus", self.gpus, "training has one rank per host")
        if self.text and not self.text.startswith("/"):
            yield Mistake("workload.text", self.text, "give an absolute path, which is read on every host")
        yield from self.layout.mistakes(hosts, SHAPES[self.model], self.batch, self.micro_batches)
        if self.forward_at_least_s and self.layout.pp > 1:
            remedy = "the passes of a pipeline's stages alternate, so none can be made longer; leave it out"
            yield Mistake("workload.forward_at_least", f"{self.forward_at_least_s:g} s", remedy)
        if "train_torchft" in backends and not (self.layout.alone and self.layout.data == "ddp"):
            yield Mistake("workload.layout", self.layout.told(hosts), "torchft supports only ddp; leave it out")
        if "simulate" in backends and not (self.layout.alone and self.layout.data == "ddp"):
            yield Mistake(
                "workload.layout", self.layout.told(hosts), "simulate supports only ddp; leave its systems out"
            )


def _all_said(timed: Sequence[Timed]) -> set[str]:
    return {name for one in timed for name in one.said}
