"""A GPT in integer arithmetic, with the training workload's shapes, so that its tokens do not depend on the
computation.

Weights, activations, keys and values are integers of a few bits, as in engines that quantise. They are stored as
float32, in which every sum stays below 2^24 and is exact. Probabilities and the GELU come from tables. No order of
summation, batch, schedule or number of hosts therefore changes a single bit: any token that differs was computed from
other bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

VOCABULARY = 256
ONE = 16
"""The representation of 1.0 in activations, queries, keys and values."""
MOST = 63
"""The largest activation."""
RESIDUAL = 256
"""The representation of 1.0 in the residual stream."""
SPREAD = 20
"""The standard deviation of a weight; weights are uniformly distributed."""
CERTAIN = 256
"""The largest probability before normalisation."""
STEPS = 32
"""Steps of a score's difference to the largest one for which e^-difference is tabulated, down to -6."""
SHARPEN = 4
"""Scores and attention outputs are scaled up by this factor, since both are small with untrained weights."""

_FALLS = np.rint(CERTAIN * np.exp(-np.arange(6 * STEPS + 1) / STEPS)).astype(np.float32)
_FALLS[-1] = 0
_GIVEN = np.arange(-4 * ONE, 4 * ONE + 1) / ONE
_GELU = np.rint(ONE * 0.5 * _GIVEN * (1 + np.tanh(np.sqrt(2 / np.pi) * (_GIVEN + 0.044715 * _GIVEN**3)))).astype(
    np.float32
)

Reduce = Callable[[np.ndarray], np.ndarray]
"""Sums int32 arrays of (tokens, width) over the parts of the model."""
Attend = Callable[[int, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""Maps layer, queries, keys and values of (tokens, heads, depth) to the attention output, with the queries' shape."""


@dataclass(frozen=True)
class Shape:
    """The shape of the whole model; `context` is the most tokens of a sequence."""

    layers: int
    width: int
    heads: int
    context: int

    @property
    def depth(self) -> int:
        """Numbers in a key or value of one head."""
        return self.width // self.heads


class Model:
    """Part `part` of `parts`: an equal share of the heads and of the wide layer, and all of the rest."""

    def __init__(self, shape: Shape, seed: int, part: int = 0, parts: int = 1) -> None:
        self.shape, self.heads = shape, shape.heads // parts
        width, draw = shape.width, np.random.default_rng(seed)
        most = round(SPREAD * 3**0.5)

        def drawn(*size: int, scale: int = most) -> np.ndarray:
            return draw.integers(-scale, scale + 1, size).astype(np.float32)

        def own(weights: np.ndarray, axis: int) -> np.ndarray:
            return np.ascontiguousarray(np.split(weights, parts, axis)[part])

        self._bytes = drawn(VOCABULARY, width)
        self._places = drawn(shape.context, width)
        self._layers = []
        for _ in range(shape.layers):
            queries = own(drawn(width, 3, shape.heads, shape.depth), 2).reshape(width, -1)
            attended = own(drawn(shape.heads, shape.depth, width), 0).reshape(-1, width)
            wide, narrow = own(drawn(width, 4 * width), 1), own(drawn(4 * width, width), 0)
            self._layers.append((queries, attended, wide, narrow))

    def prefill(self, tokens: np.ndarray) -> np.ndarray:
        """Keys and values of a prompt: (tokens, layers, 2, heads, depth). Only for a model in one part."""
        made = np.empty((len(tokens), self.shape.layers, 2, self.heads, self.shape.depth), np.float32)

        def attend(layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
            made[:, layer, 0], made[:, layer, 1] = key, value
            return attention(query, key, value)

        self._run(tokens, np.arange(len(tokens)), attend, lambda part: part)
        return made

    def following(self, tokens: np.ndarray, places: np.ndarray, attend: Attend, reduce: Reduce) -> np.ndarray:
        """The most likely next token after each of `tokens`, one per sequence, at its position in the sequence."""
        x = self._run(tokens, places, attend, reduce)
        scores = _normed(x) @ self._bytes.T
        likely: np.ndarray = np.argmax(scores, axis=1)
        return likely

    def _run(self, tokens: np.ndarray, places: np.ndarray, attend: Attend, reduce: Reduce) -> np.ndarray:
        x: np.ndarray = np.rint((self._bytes[tokens] + self._places[places]) * (RESIDUAL / SPREAD)).astype(np.float64)
        width = self.shape.width
        for number, (queries, attended, wide, narrow) in enumerate(self._layers):
            made = _scaled(_normed(x) @ queries, width).reshape(len(tokens), 3, self.heads, -1)
            seen = attend(number, made[:, 0], made[:, 1], made[:, 2]).reshape(len(tokens), -1)
            x += _added(reduce((seen @ attended).astype(np.int32)), width)
            hidden = np.clip(np.rint(_normed(x) @ wide / (SPREAD * width**0.5)), -4 * ONE, 4 * ONE)
            between = _GELU[hidden.astype(np.int16) + 4 * ONE]
            x += _added(reduce((between @ narrow).astype(np.int32)), 4 * width)
        return x


def attention(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Attention of the last `len(query)` positions to all `len(key)` positions up to their own; (tokens, heads,
    depth)."""
    first = len(key) - len(query)
    scores = query.transpose(1, 0, 2) @ key.transpose(1, 2, 0)
    if len(query) > 1:
        hidden = np.arange(len(key)) > first + np.arange(len(query))[:, None]
        scores[:, hidden] = -np.inf
    below = scores.max(axis=2, keepdims=True) - scores
    below *= np.float32(SHARPEN * STEPS / (ONE * ONE * query.shape[2] ** 0.5))
    falls = _FALLS[np.minimum(below, len(_FALLS) - 1).astype(np.int16)]
    seen = (falls @ value.transpose(1, 0, 2)) / falls.sum(axis=2, keepdims=True)
    found: np.ndarray = np.clip(np.rint(SHARPEN * seen.transpose(1, 0, 2)), -MOST, MOST)
    return found


def _normed(x: np.ndarray) -> np.ndarray:
    """Normalises to mean 0 and deviation 1, as activations. Exact, because the sums are of integers."""
    centred = x * x.shape[1] - x.sum(axis=1, keepdims=True)
    deviation = np.sqrt((centred * centred).sum(axis=1, keepdims=True) / x.shape[1])
    found: np.ndarray = np.clip(np.rint(centred * ONE / np.maximum(deviation, 1)), -MOST, MOST).astype(np.float32)
    return found


def _scaled(sums: np.ndarray, terms: int) -> np.ndarray:
    """Converts sums of `terms` terms to activations."""
    found: np.ndarray = np.clip(np.rint(sums / (SPREAD * terms**0.5)), -MOST, MOST)
    return found


def _added(sums: np.ndarray, terms: int) -> np.ndarray:
    """Converts sums to the residual's unit."""
    found: np.ndarray = np.rint(sums * (RESIDUAL / (ONE * SPREAD * terms**0.5)))
    return found


def answer(model: Model, prompt: np.ndarray, count: int) -> Iterator[int]:
    """The tokens that follow `prompt`, by the simplest method: no pages, no batch, one host."""
    kept = list(model.prefill(prompt[:-1]).transpose(1, 2, 0, 3, 4))
    token = int(prompt[-1])

    def attend(layer: int, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> np.ndarray:
        kept[layer] = np.concatenate([kept[layer], np.stack([key, value])], axis=1)
        return attention(query, *kept[layer])

    for place in range(len(prompt) - 1, len(prompt) - 1 + count):
        token = int(model.following(np.array([token]), np.array([place]), attend, lambda part: part)[0])
        yield token
