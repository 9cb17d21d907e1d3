"""The AllReduce algorithms the planner chooses from: each predicts its time and builds its schedule.

Predictions are alpha-beta models in ``u = n/B`` (size over the best host's nominal rate), l = 1/min b and
alpha, the fixed cost of a message on its connection. Every rank that evaluates them on the same
bandwidths gets the same plan.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log2, sqrt

from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules import (
    forest,
    forest_shape,
    leaf_ring,
    optcc,
    owner_skewed_ring,
    r2cc_all_reduce,
    ring,
    tree,
)

Shares = tuple[float, ...]
Settings = dict[str, int]


@dataclass(frozen=True)
class Problem:
    """What is asked: relative bandwidths b, ``unit_s`` = n/B, alpha, and how many messages data may be cut into."""

    shares: Shares
    unit_s: float
    alpha_s: float
    most_chunks: int

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.shares)

    @property
    def slowest(self) -> float:
        """min b."""
        return min(self.shares)

    @property
    def stragglers(self) -> int:
        """Hosts below full rate."""
        full = max(self.shares) * (1 - 1e-9)
        return sum(share < full for share in self.shares)


Prediction = tuple[float, Settings]


@dataclass(frozen=True)
class Algorithm:
    """A name, one line that says what it does, a model (None: not for this problem) and a builder."""

    name: str
    idea: str
    predict: Callable[[Problem], Prediction | None]
    build: Callable[[Shares, Settings], Schedule]
    guaranteed: bool = False
    """The model is a proved upper bound where ports are shared fairly."""


def _ring(problem: Problem) -> Prediction:
    """Sections are cut as long as that costs no more than 2 %: the reduction then overlaps the transfer."""
    p = problem.hosts
    section_s = problem.unit_s / (p * problem.slowest)
    free = 0.02 * section_s / problem.alpha_s if problem.alpha_s > 0 else 8
    slices = max(1, min(8, int(free), problem.most_chunks // p))
    return 2 * (p - 1) * (section_s + slices * problem.alpha_s), {"slices": slices}


def _tree(problem: Problem) -> Prediction:
    """Each level passes the whole vector; levels that share the root's port add a fifth each (simulated)."""
    depth = ceil(log2(problem.hosts))
    level_s = problem.unit_s / problem.slowest * (1 + 0.2 * (depth - 1)) + problem.alpha_s
    return 2 * depth * level_s, {"slices": 1}


def _r2cc(problem: Problem) -> Prediction | None:
    """The paper's T/T0; several degraded hosts may be limited by the helper that adds all their values.

    A lane that holds s slices of each section fills its ring in 2 (p-1) messages and moves all its p s chunks in stage
    2, in and out by turns; it ends one and a half of its chunks later than a fluid would. Both as seen in simulations
    of p = 3 to 16.
    """
    p, lost = problem.hosts, 1 - problem.slowest
    if p < 3 or not 0 < lost < 1 or p - problem.stragglers < 2:
        return None
    ideal = 2 * (p - 1) / p * problem.unit_s

    helper = sum(1 - share for share in problem.shares) * (problem.stragglers > 1)
    second = max(lost / (1 - lost), helper) * problem.unit_s
    whole = p * r2cc_all_reduce.LEAST_LANES  # chunks, if every lane holds one slice of each section

    def seconds(form: tuple[int, int]) -> float:
        pipeline, slices = form
        in_a_row = 2 * (p - 1) + 2 * p * slices + 2 * pipeline
        late = 1.5 / (p * slices) * problem.unit_s
        return ideal + second * (1 + 1 / pipeline) + late + in_a_row * problem.alpha_s

    most = max(1, problem.most_chunks // whole)
    cuts = [s for s in (1, 2, 4, 8, 16, 32, 64) if s < most] + [most]
    pipeline, slices = min(((k, s) for k in (1, 2, 4, 8, 16) for s in cuts if k <= p * s), key=seconds)
    chunks = min(slices * whole, max(p, problem.most_chunks))
    return seconds((pipeline, slices)), {"pipeline": pipeline, "chunks": chunks}


def _optcc(problem: Problem) -> Prediction | None:
    p = problem.hosts
    if p < 3 or problem.stragglers != 1:
        return None
    fluid = max(1 / problem.slowest, (2 * p - 3) / (p - 1))
    seconds, settings = _segmented(problem, p - 1, fluid * (1.1 if problem.slowest > 0.5 else 1.05))
    count = settings["segments"]
    return seconds, {"segments": count - count % 4 if count >= 4 else count}  # whole composites of four patterns


def _leaf_ring(problem: Problem) -> Prediction | None:
    members = problem.hosts - problem.stragglers
    if problem.stragglers == 0 or members < 2:
        return None
    fluid = max(1 / problem.slowest, 1 + (problem.hosts - 2) / members)
    loss = 1.01 if problem.slowest <= 0.5 else 1.07
    return _segmented(problem, members, fluid * (loss if problem.stragglers == 1 else 1.3))


def _segmented(problem: Problem, members: int, fluid: float) -> Prediction:
    """k segments around a ring of ``members``: (k+1)/k of the fluid time, 2 h messages a segment in a row.

    ``fluid`` includes what fair sharing loses between ring and leaves, as seen in simulations of p = 3 to 64.
    """
    work = fluid * problem.unit_s
    most = max(1, min(128, problem.most_chunks // members))
    count = most if problem.alpha_s <= 0 else round(sqrt(work / (2 * members * problem.alpha_s)))
    count = max(1, min(most, count))
    seconds = work * (count + 1) / count + 2 * members * (count + 1) * problem.alpha_s
    return seconds, {"segments": count}


def _owner_skewed(problem: Problem) -> Prediction | None:
    """Whole lanes are given away, and filling the chains costs about half a slice (seen in simulation)."""
    p, lanes = problem.hosts, 4
    if p < 3 or problem.stragglers != 1:
        return None
    skew = owner_skewed_ring.skewed_lanes(problem.shares, lanes) / lanes
    work = problem.unit_s * owner_skewed_ring.load(problem.shares, skew)

    def seconds(slices: int) -> float:
        return work * (1 + 0.5 / slices) + 2 * (p - 1) * slices * problem.alpha_s

    most = max(1, problem.most_chunks // (lanes * p))
    slices = min((s for s in (1, 2, 4, 8, 16, 32) if s <= most), key=seconds)
    return seconds(slices), {"lanes": lanes, "slices": slices}


def _forest(problem: Problem) -> Prediction | None:
    if problem.hosts < 3:
        return None
    shape, rounds = forest_shape.best(problem.shares, problem.unit_s, problem.alpha_s, problem.most_chunks)
    seconds = shape.seconds(problem.unit_s, rounds, problem.alpha_s)
    return seconds, {"trees": shape.trees, "fan": shape.fan, "rounds": rounds}


ALGORITHMS = (
    Algorithm(
        "ring",
        "one ring, load balanced over the surviving NICs",
        _ring,
        lambda b, s: ring.all_reduce(len(b), **s),
    ),
    Algorithm(
        "tree",
        "one binomial tree, few messages in a row",
        _tree,
        lambda b, s: tree.all_reduce(len(b), **s),
    ),
    Algorithm(
        "r2cc_all_reduce",
        "a global ring, a partial ring, and a second stage",
        _r2cc,
        lambda b, s: r2cc_all_reduce.all_reduce(b, **s),
    ),
    Algorithm(
        "optcc",
        "the straggler sends and receives once, four patterns",
        _optcc,
        lambda b, s: optcc.all_reduce(b, slices=1, **s),
    ),
    Algorithm(
        "leaf_ring",
        "slow hosts are leaves of a ring of the others",
        _leaf_ring,
        lambda b, s: leaf_ring.all_reduce(b, **s),
    ),
    Algorithm(
        "owner_skewed_ring",
        "the straggler owns more sections of a plain ring",
        _owner_skewed,
        lambda b, s: owner_skewed_ring.all_reduce(b, **s),
    ),
    Algorithm(
        "forest",
        "trees whose degrees follow the bandwidths",
        _forest,
        lambda b, s: forest.all_reduce(b, **s),
        guaranteed=True,
    ),
)
"""In the order in which ties are broken."""
