"""A transformer from a job's point of view: parameters, operations and bytes, by the formulas of Narayanan et al.
(2021).

With l layers, h hidden, s sequence, V vocabulary and B sequences:

    parameters  P = 12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h))
    operations  F = 72 B s l h^2 (1 + s/(6 h) + V/(12 l h)), forward and backward; 96 with full recomputation
"""

from dataclasses import dataclass

from r2ccl_core.errors import UsageError

ELEMENT_BYTES = 2
"""Activations and parameters travel in bfloat16."""


@dataclass(frozen=True)
class Model:
    """A GPT-like model. With ``experts`` every layer has that many, of which a token visits ``top_k``."""

    name: str
    layers: int
    hidden: int
    heads: int
    sequence: int = 2048
    vocabulary: int = 51200
    experts: int = 1
    top_k: int = 1

    def __post_init__(self) -> None:
        sizes = ("layers", "hidden", "heads", "sequence", "vocabulary", "experts", "top_k")
        for key in sizes:
            if getattr(self, key) < 1:
                raise UsageError(f"model {self.name}: {key} = {getattr(self, key)}: must be 1 or more")
        if self.top_k > self.experts:
            raise UsageError(f"model {self.name}: a token cannot visit {self.top_k} of {self.experts} experts")

    @property
    def parameters(self) -> float:
        """P, of one expert per layer."""
        h, count = self.hidden, self.layers
        return 12 * count * h**2 * (1 + 13 / (12 * h) + (self.vocabulary + self.sequence) / (12 * count * h))

    def operations(self, sequences: float, *, recompute: bool = False) -> float:
        """F: floating-point operations of an iteration over this number of sequences."""
        h, count, s = self.hidden, self.layers, self.sequence
        each = (96 if recompute else 72) * s * count * h**2
        return sequences * each * (1 + s / (6 * h) + self.vocabulary / (12 * count * h))

    def activation_bytes(self, sequences: int) -> int:
        """The bytes that one layer passes to the next for this number of sequences."""
        return sequences * self.sequence * self.hidden * ELEMENT_BYTES


MODELS = {
    one.name: one
    for one in (
        Model("gpt3-2.7b", 32, 2560, 32),
        Model("gpt3-6.7b", 32, 4096, 32),
        Model("gpt3-13b", 40, 5120, 40),
        Model("gpt3-175b", 96, 12288, 96),
    )
}
"""The sizes of GPT-3's paper that R2CCL's evaluation names."""


def model_named(name: str) -> Model:
    """The preset; raises `UsageError` with the available names."""
    if name not in MODELS:
        raise UsageError(f"no model is called {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]
