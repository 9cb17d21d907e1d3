"""How many trees, how wide, how many chunks: the forest with the least guaranteed time, and the forest's record.

The guarantee of `forest.py`, ``(K + 2H - 1) (T_int u / K + alpha)`` with u = n/B, is minimised over the number of trees
C, the fan and the chunks per tree K; messages must not get too small or too many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules import forest, hierarchical
from r2ccl_core.schedules.algorithm import (
    LEAST_MESSAGE_BYTES,
    MOST_CHUNKS,
    Algorithm,
    OnCpu,
    Pairs,
    Parameters,
    Prediction,
    Problem,
    Shares,
)
from r2ccl_core.schedules.forest import degrees_of, height_of, integer_degrees

TREES = (*range(2, 17), 20, 24)
FANS = (2, 4, 8, 16)

MOST_SHAPED = 16
"""Number of hosts up to which every shape's trees are built if some hosts share few rails; with 32 that took a
second."""

TREES_ON_CPU = 6
"""Approximate number of trees of a forest on the CPU: few lanes do not share the NICs fairly, and have few buffers. 64
MiB on 3 hosts with one NIC of 9 lost took 1.40 of the healthy time with 2 trees, 1.17 with 6; with 10 trees on 6 hosts
filling cost more than that gained."""

CHUNKS_PER_HOP = 64
"""Chunks through each of those trees, per hop of filling: more chunks cost more in messages than they save."""


@dataclass(frozen=True)
class Shape:
    """A forest without its number of chunks. ``fluid`` is T_int in n/B, ``height`` that of the highest tree."""

    trees: int
    fan: int
    fluid: float
    height: int

    def seconds(self, unit_s: float, chunks: int, alpha_s: float) -> float:
        """The guaranteed time, for ``unit_s`` = n/B."""
        return (chunks + 2 * self.height - 1) * (self.fluid * unit_s / chunks + alpha_s)

    def best_chunks(self, unit_s: float, alpha_s: float, most_chunks: int) -> int:
        """K between one and ``most_chunks`` chunks in total."""
        most = max(1, most_chunks // self.trees)
        if alpha_s <= 0:
            return most
        best = sqrt((2 * self.height - 1) * self.fluid * unit_s / alpha_s)  # infinite for the least costs
        return max(1, round(min(most, best)))


@lru_cache(maxsize=256)
def shapes(shares: tuple[float, ...], pairs: Pairs | None = None) -> tuple[Shape, ...]:
    """Every shape worth considering for these bandwidths. ``fluid`` takes the pairs of hosts into account."""
    found = []
    for trees in TREES:
        totals = integer_degrees(shares, trees)
        fluid = max(total / trees / share for total, share in zip(totals, shares, strict=True))
        for fan in FANS:
            if fan == 2 or fan <= trees:
                if pairs is None:
                    height = max(map(height_of, degrees_of(shares, trees, fan)))
                    found.append(Shape(trees, fan, fluid, height))
                    continue
                made = forest.trees_of(shares, trees, fan, pairs)
                busiest = max(fluid, forest.pair_limit(made, pairs))
                found.append(Shape(trees, fan, busiest, max(tree.height for tree in made)))
    return tuple(found)


def best(
    shares: Sequence[float], unit_s: float, alpha_s: float, most_chunks: int, pairs: Pairs | None = None
) -> tuple[Shape, int]:
    """The shape and number of chunks with the least guaranteed time."""
    found = shapes(tuple(shares), pairs if len(shares) <= MOST_SHAPED else None)
    candidates = [(shape, shape.best_chunks(unit_s, alpha_s, most_chunks)) for shape in found]
    return min(candidates, key=lambda pair: pair[0].seconds(unit_s, pair[1], alpha_s))


def _predict(problem: Problem) -> Prediction | None:
    if problem.hosts < 3:
        return None
    shape, chunks = best(problem.shares, problem.unit_s, problem.alpha_s, problem.most_chunks, problem.pairs)
    seconds = shape.seconds(problem.unit_s, chunks, problem.alpha_s)
    return seconds, {"trees": shape.trees, "fan": shape.fan, "chunks": chunks}


def _build(shares: Shares, parameters: Parameters) -> Schedule:
    return forest.all_reduce(shares, trees=parameters["trees"], chunks=parameters["chunks"], fan=parameters["fan"])


def _build_on_rails(shares: Shares, pairs: Pairs, parameters: Parameters) -> Schedule:
    return forest.all_reduce(
        shares, trees=parameters["trees"], chunks=parameters["chunks"], fan=parameters["fan"], pairs=pairs
    )


def _on_cpu(asked: OnCpu, parameters: Parameters) -> Schedule:
    """The planner's forest with each of its trees several times: the same loads on more lanes."""
    trees = parameters["trees"] * max(1, round(TREES_ON_CPU / asked.gpus / parameters["trees"]))
    height = max(tree.height for tree in forest.trees_of(asked.shares, trees, parameters["fan"], asked.pairs))
    lanes = trees * asked.gpus
    most = min(CHUNKS_PER_HOP * (2 * height - 1), MOST_CHUNKS // lanes, asked.nbytes // LEAST_MESSAGE_BYTES // lanes)
    hosts = forest.all_reduce(asked.shares, trees=trees, chunks=max(1, most), fan=parameters["fan"], pairs=asked.pairs)
    return hierarchical.of_ranks(hosts, asked.gpus)


def _on_gpu(problem: Problem) -> Schedule:
    shape, chunks = best(problem.shares, problem.unit_s, problem.alpha_s, problem.most_chunks)
    return forest.all_reduce(problem.shares, trees=shape.trees, chunks=chunks, fan=shape.fan)


ALGORITHM = Algorithm(
    name="forest",
    alias="forest",
    title="forest",
    idea="trees whose degrees follow the bandwidths",
    letter="F",
    color="#56B4E9",
    predict=_predict,
    build=_build,
    build_on_rails=_build_on_rails,
    guaranteed=True,
    on_cpu=_on_cpu,
    on_gpu=_on_gpu,
)
