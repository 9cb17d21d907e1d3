"""Training: data-parallel steps of a small GPT on bytes, one rank a host, each step on a batch of its own.

The simulator takes a step as DDP does it: a third of its computing forward, two thirds backward, where the gradients of
each bucket are reduced once they are there and the bucket before is done.

The same seed gives the same weights, data and losses, so a run with a failure can be held bit for bit against one
without (`reports.metrics.training`).
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from harness.events import RankRecord, Timed
from harness.experiment.tables import Duration, Mistake, Size
from harness.workloads.base import BackendName, Operation, SimulationModel, Workload
from harness.workloads.checkers import Checker, same_result

VOCABULARY = 256
FLOATS = 4
"""Bytes of a parameter and of its gradient."""
COPIES = 5
"""Of every parameter in memory: weights, gradients, DDP's buckets, and Adam's two moments."""
FORWARD = 1 / 3
"""The part of a step's computing that is the forward pass: backward takes twice as long (Narayanan 2021)."""
MOST_FLOPS = 1e12
"""More than the processors of a host compute in a second: a step is expected to take at least this long."""


class Shape(NamedTuple):
    """Of a GPT."""

    layers: int
    width: int
    heads: int

    def parameters(self, context: int) -> int:
        """Trainable numbers: blocks of 12 w^2 + 13 w, embeddings of bytes and places, the last norm; the head is tied
        to the embedding."""
        block = 12 * self.width**2 + 13 * self.width
        return self.layers * block + (VOCABULARY + context + 2) * self.width

    def tensors(self, context: int) -> list[int]:
        """Numbers in each parameter, in the order in which the model has them: those of `parameters`."""
        w = self.width
        block = [w, w, w, w, 3 * w * w, 3 * w, w * w, w, 4 * w * w, 4 * w, 4 * w * w, w]
        return [VOCABULARY * w, context * w, *block * self.layers, w, w]


SHAPES: Mapping[str, Shape] = {
    "1M": Shape(4, 144, 4),
    "10M": Shape(8, 320, 8),
    "30M": Shape(9, 528, 8),
    "120M": Shape(16, 784, 16),
}
"""By the size that they are about."""


class TrainingSimulation(SimulationModel):
    """And how long a host computes, which is all that a calibration, a run of the same training, tells here."""

    compute_s: Duration | None = Field(default=None, alias="compute")
    """Of a step, forward and backward; by default the calibration's, else nothing."""


class TrainingWorkload(Workload):
    """``kind = "training"``."""

    kind: Literal["training"]
    backend: BackendName = "train_r2ccl"
    model: Literal["1M", "10M", "30M", "120M"] = "1M"
    layout: Literal["ddp"] = "ddp"
    steps: int = Field(default=20, ge=1, le=100_000)
    batch: int = Field(default=4, ge=1, le=4096)
    """Sequences of each rank in a step."""
    context: int = Field(default=64, ge=2, le=4096)
    """Bytes of a sequence."""
    bucket_bytes: Size = Field(default=1 << 20, alias="bucket")
    """The size from which on DDP hands gradients to an AllReduce."""
    learning_rate: float = Field(default=1e-3, gt=0, lt=1, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=1 << 31)
    """Of weights and data."""
    simulation: TrainingSimulation = TrainingSimulation()

    counts: ClassVar[str] = "steps"
    checkers: ClassVar[Sequence[Checker]] = (same_result("weights"),)
    backends: ClassVar[Sequence[BackendName]] = ("train_r2ccl", "train_gloo", "simulate")

    @property
    def parameters(self) -> int:
        """Of the model."""
        return SHAPES[self.model].parameters(self.context)

    def iterations_of(self, size_bytes: int, expected_s: float) -> int:
        """An iteration is a step."""
        return self.steps

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """The gradients over the NICs, after six operations for each parameter and byte (Narayanan 2021)."""
        compute_s = 6 * self.parameters * self.batch * self.context / MOST_FLOPS
        return compute_s + self.host_bytes(size_bytes, ranks) / host_bytes_s

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """A ring's part of the gradients."""
        return 2 * (hosts - 1) / hosts * FLOATS * self.parameters

    def buckets(self) -> list[int]:
        """Bytes of each bucket in the order of their reduction: parameters from the last to the first, and a bucket is
        full once it has `bucket_bytes`."""
        full, filling = [], 0
        for numbers in reversed(SHAPES[self.model].tensors(self.context)):
            filling += FLOATS * numbers
            if filling >= self.bucket_bytes:
                full.append(filling)
                filling = 0
        return [*full, filling] if filling else full

    def operations(self, size_bytes: int, ranks: int, compute_s: float) -> Sequence[Operation]:
        """An AllReduce of each bucket; its gradients are there after their part of backward."""
        buckets = self.buckets()
        forward_s, backward_s = compute_s * FORWARD, compute_s * (1 - FORWARD)
        ready = (forward_s + backward_s * done / sum(buckets) for done in accumulate(buckets))
        return [Operation("all_reduce", size, size, ready_s=at_s) for size, at_s in zip(buckets, ready, strict=True)]

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """Without what a layer keeps for its backward, which is small beside it."""
        return COPIES * FLOATS * self.parameters

    def about(self, size_bytes: int) -> dict[str, Any]:
        """The kind, and what ran in words."""
        shape = SHAPES[self.model]
        told = (
            f"training of a GPT with {self.parameters / 1e6:.3g} M parameters ({shape.layers} layers of {shape.width}, "
            f"{self.layout}, {self.batch} x {self.context} bytes a rank)"
        )
        return {"workload": self.kind, "operation": told, "counts": self.counts}

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """The loss over the batches of all ranks, the longest forward, and the bytes that the batches were."""
        losses = [t.said["loss"] for t in timed if "loss" in t.said]
        forwards = [t.said["forward_ms"] for t in timed if "forward_ms" in t.said]
        told = {"loss": fmean(losses)} if losses else {}
        told |= {"forward_ms": max(forwards)} if forwards else {}
        return {"measures": {**told, "tokens": float(ranks * self.batch * self.context)}}

    def results(self, ranks: Sequence[RankRecord]) -> Mapping[str, Any]:
        """The weights' digest, which all ranks must share."""
        return {"result": {k: v for k, v in ranks[0].result.items() if k == "weights"}} if ranks else {}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """Of layouts."""
        if hosts < 2:
            yield Mistake("cluster.hosts", hosts, "training over one host uses no NIC; give at least 2")
        if self.gpus > 1:
            yield Mistake("workload.gpus", self.gpus, "training has one rank a host")
