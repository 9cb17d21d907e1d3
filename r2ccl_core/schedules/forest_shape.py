"""How many trees, how wide, how many chunks: the forest of the least guaranteed time.

The guarantee of `forest.py`, ``(K + 2H - 1) (T_int u / K + alpha)`` with u = n/B, is minimised over the
number of trees C, the fan and the chunks per tree K; messages must not get too small or too many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt

from r2ccl_core.schedules.forest import degrees_of, height_of, integer_degrees

TREES = (*range(2, 17), 20, 24)
FANS = (2, 4, 8, 16)


@dataclass(frozen=True)
class Shape:
    """A forest without its number of chunks. ``fluid`` is T_int in n/B, ``height`` that of the highest tree."""

    trees: int
    fan: int
    fluid: float
    height: int

    def seconds(self, unit_s: float, rounds: int, alpha_s: float) -> float:
        """The guaranteed time, for ``unit_s`` = n/B."""
        return (rounds + 2 * self.height - 1) * (self.fluid * unit_s / rounds + alpha_s)

    def best_rounds(self, unit_s: float, alpha_s: float, most_chunks: int) -> int:
        """K between one and ``most_chunks`` chunks in all."""
        most = max(1, most_chunks // self.trees)
        if alpha_s <= 0:
            return most
        return max(1, min(most, round(sqrt((2 * self.height - 1) * self.fluid * unit_s / alpha_s))))


@lru_cache(maxsize=256)
def shapes(shares: tuple[float, ...]) -> tuple[Shape, ...]:
    """Every shape worth a look for these bandwidths."""
    found = []
    for trees in TREES:
        totals = integer_degrees(shares, trees)
        fluid = max(total / trees / share for total, share in zip(totals, shares, strict=True))
        for fan in FANS:
            if fan == 2 or fan <= trees:
                height = max(map(height_of, degrees_of(shares, trees, fan)))
                found.append(Shape(trees, fan, fluid, height))
    return tuple(found)


def best(shares: Sequence[float], unit_s: float, alpha_s: float, most_chunks: int) -> tuple[Shape, int]:
    """The shape and number of rounds with the least guaranteed time."""
    candidates = [(shape, shape.best_rounds(unit_s, alpha_s, most_chunks)) for shape in shapes(tuple(shares))]
    return min(candidates, key=lambda pair: pair[0].seconds(unit_s, pair[1], alpha_s))
