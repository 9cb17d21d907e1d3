"""How a model in training is distributed over ranks: ``layout = { data = "fsdp2", dp = 2, tp = 2, pp = 1 }``. Pure.

`dp` replicas see different data, `tp` ranks share each block, `pp` stages divide the blocks; their product is the
number of ranks. ``layout = "ddp"`` and ``"fsdp2"`` are data-parallel over all ranks.
"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from harness.experiment.tables import Mistake, Model

COPIES = 5
"""Copies of every parameter in memory: weights, gradients, DDP's buckets, and Adam's two moments."""
KEPT, KEPT_ALONE = 7, 13
"""Activations that a block keeps per byte of text for its backward pass, in widths: those that every tensor-parallel
rank has, and those that such ranks share. Measured: the sum is 20 within a tenth, for widths from 144 to 528."""
PASSING, SCORES = 8, 3
"""The same while one block or the scores of all bytes are computed: widths, and vocabularies."""
VOCABULARY = 256
FLOATS = 4
"""Bytes of a parameter, of its gradient, and of an activation."""


class Shape(NamedTuple):
    """The shape of a GPT."""

    layers: int
    width: int
    heads: int

    @property
    def block(self) -> int:
        """Trainable numbers of a block."""
        return 12 * self.width**2 + 13 * self.width

    def parameters(self, context: int) -> int:
        """Of the whole model: blocks, embeddings of bytes and positions, the last norm; the head is tied to the
        embedding."""
        return self.layers * self.block + (VOCABULARY + context + 2) * self.width

    def tensors(self, context: int) -> list[int]:
        """Numbers in each parameter, in the model's order; their sum is `parameters`."""
        w = self.width
        block = [w, w, w, w, 3 * w * w, 3 * w, w * w, w, 4 * w * w, 4 * w, 4 * w * w, w]
        return [VOCABULARY * w, context * w, *block * self.layers, w, w]


class Degrees(NamedTuple):
    """The layout on a given number of ranks."""

    dp: int
    tp: int
    pp: int


class LayoutModel(Model):
    """The table ``workload.layout``."""

    data: Literal["ddp", "fsdp2"] = "ddp"
    """How replicas hold the weights: as copies or as shards."""
    dp: int | None = Field(default=None, ge=1)
    """By default, the number of ranks that `tp` and `pp` leave."""
    tp: int = Field(default=1, ge=1)
    pp: int = Field(default=1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, values: Any) -> Any:
        return {"data": values} if isinstance(values, str) else values

    @property
    def alone(self) -> bool:
        """Whether it is only data-parallel."""
        return self.tp == self.pp == 1

    def on(self, ranks: int) -> Degrees:
        """The degrees on `ranks` ranks, which the layout must divide."""
        return Degrees(self.dp or max(1, ranks // (self.tp * self.pp)), self.tp, self.pp)

    def told(self, ranks: int | None = None) -> str:
        """A short text: ``ddp 2 x tp 2``; without a number of ranks ``tp 2, the rest ddp``."""
        split = [f"{name} {degree}" for name, degree in (("tp", self.tp), ("pp", self.pp)) if degree > 1]
        dp = self.dp if ranks is None else self.on(ranks).dp
        if dp is None:
            return f"{' x '.join(split)}, the rest {self.data}" if split else self.data
        return " x ".join([*([f"{self.data} {dp}"] if dp > 1 else []), *split]) or "alone"

    def least_host_bytes(self, ranks: int, shape: Shape, context: int, batch: int) -> float:
        """The least bytes that a rank sends in a step: its gradients or shards, its shares of activations, its stage
        boundary."""
        dp, tp, pp = self.on(ranks)
        times = 3 if self.data == "fsdp2" else 2  # gathered forward and backward, and reduced; or reduced and gathered
        data = times * (dp - 1) / dp * FLOATS * shape.parameters(context) / (tp * pp)
        activation = FLOATS * batch * context * shape.width
        shares = 4 * (shape.layers // pp) * 2 * (tp - 1) / tp * activation
        return data + shares + (activation if pp > 1 else 0)

    def weights_bytes(self, ranks: int, shape: Shape, context: int) -> int:
        """What a rank holds of weights, gradients and the optimizer. It begins with the whole model, of which it keeps
        its part."""
        dp, tp, pp = self.on(ranks)
        whole, share = FLOATS * shape.parameters(context), 1 / (tp * pp * (dp if self.data == "fsdp2" else 1))
        return int(max(COPIES * whole * share, whole * (1 + share)))

    def activations_bytes(self, ranks: int, shape: Shape, context: int, batch: int, micro_batches: int) -> int:
        """What a rank keeps of a step's forward pass until its backward pass. A stage of a pipeline keeps as many
        micro-batches as there are stages."""
        _, tp, pp = self.on(ranks)
        held = batch * context * min(1.0, pp / micro_batches if pp > 1 else 1.0)
        blocks = shape.layers / pp * (KEPT + KEPT_ALONE / tp) * shape.width
        return int(FLOATS * held * (blocks + PASSING * shape.width + SCORES * VOCABULARY))

    def mistakes(self, ranks: int, shape: Shape, batch: int, micro_batches: int) -> Iterator[Mistake]:
        """Degrees and sizes that do not divide."""
        dp, tp, pp = self.on(ranks)
        key, said = "workload.layout", self.told(ranks)
        if dp * tp * pp != ranks:
            remedy = f"{dp} x {tp} x {pp} are {dp * tp * pp} ranks, and the cluster has {ranks}, one per host"
            yield Mistake(key, said, f"{remedy}; dp x tp x pp must be the number of hosts")
        elif self.data == "fsdp2" and dp == 1:
            yield Mistake(key, said, "fsdp2 shards over dp, which is 1 here; leave data out, or give more hosts")
        elif shape.heads % tp:
            yield Mistake(key, said, f"tp = {tp} does not divide the {shape.heads} heads of the model")
        elif shape.layers % pp:
            yield Mistake(key, said, f"pp = {pp} does not divide the {shape.layers} layers of the model")
        elif pp > 1 and batch % micro_batches:
            yield Mistake("workload.micro_batches", micro_batches, f"does not divide workload.batch, which is {batch}")
        elif pp > 1 and micro_batches < pp:
            yield Mistake("workload.micro_batches", micro_batches, f"give at least as many as stages, which are {pp}")
