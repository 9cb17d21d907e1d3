"""What an AllReduce algorithm is: one record with its names, its model, and how each executor builds its schedule.

The record stands at the end of the file that builds the schedule, and `r2ccl_core.planning.algorithms` lists it.
Planner, runtime, GPU tables, simulated jobs, systems of experiments, figures and documents take all that they know of
an algorithm from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from r2ccl_core.model.schedule import Schedule

Shares = tuple[float, ...]
Settings = dict[str, int]
Prediction = tuple[float, Settings]
Pairs = tuple[tuple[float, ...], ...]
"""``pairs[a][b]``: what hosts a and b carry between them, in the unit of the shares: the rails that both still have."""

LEAST_MESSAGE_BYTES = 128 * 1024
"""Smaller messages cost more than they save."""
MOST_CHUNKS = 4096

AHEAD = 3
"""Slices of a ring that are on their way at once on the CPU, but for one. A slice is cut over the NICs, and the last of
its pieces comes late where there are fewer NICs than pieces: with one of eight lost, most NICs idled for a third of the
time."""


@dataclass(frozen=True)
class Problem:
    """What is asked: relative bandwidths b of the hosts, ``unit_s`` = n/B (size over the best host's nominal rate),
    alpha, the fixed cost of a message in seconds, and into how many messages data may be cut."""

    shares: Shares
    unit_s: float
    alpha_s: float
    most_chunks: int
    repaired: Shares | None = None
    """The bandwidths when one back-up NIC carries what a lost one did; None where nothing is lost."""
    pairs: Pairs | None = None
    """None where every two hosts can do together what each can do alone."""

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return len(self.shares)

    @property
    def slowest(self) -> float:
        """min b."""
        return min(self.shares)

    @property
    def slowest_edge(self) -> float:
        """What a ring of the hosts in their order carries."""
        if self.pairs is None:
            return self.slowest
        return min(self.pairs[host - 1][host] for host in range(self.hosts))

    @property
    def stragglers(self) -> int:
        """Hosts below full rate."""
        full = max(self.shares) * (1 - 1e-9)
        return sum(share < full for share in self.shares)


@dataclass(frozen=True)
class OnCpu:
    """What the CPU runtime asks for: an AllReduce of ``nbytes`` over hosts of relative bandwidths ``shares`` with
    ``gpus`` ranks each."""

    nbytes: int
    shares: Shares
    gpus: int
    pipeline: int
    """K, as the user sets it (R2CC_AR_STAGE2_CHUNKS)."""
    ring: Callable[[int, int], Schedule]
    """The ring for so many bytes on so many ranks that runs while nothing is lost, the same object each time."""
    pairs: Pairs | None = None
    """As in `Problem`."""

    @property
    def nranks(self) -> int:
        """Ranks of all hosts."""
        return len(self.shares) * self.gpus


@dataclass(frozen=True)
class Algorithm:
    """One algorithm. The models are alpha-beta ones in ``u = n/B``, l = 1/min b and alpha, pure functions: every rank
    that evaluates them on the same bandwidths gets the same plan."""

    name: str
    """The schedule's: in plans, events and rows."""
    alias: str | None
    """R2CC_ALGO's word, and the name of a system; None: nothing that a user chooses by itself."""
    title: str
    """As people call it: ``R2CC-AllReduce``."""
    idea: str
    """One line that says what it does."""
    letter: str
    """Its mark in figures."""
    color: str
    """Its area in figures, as ``#RRGGBB``; the letter stands in it."""
    predict: Callable[[Problem], Prediction | None]
    """The time in seconds, and the settings of `build` that take it; None: not for this problem."""
    build: Callable[[Shares, Settings], Schedule]
    """The schedule, one rank a host."""
    guaranteed: bool = False
    """The model is a proved upper bound where ports are shared fairly, for any losses."""
    build_on_rails: Callable[[Shares, Pairs, Settings], Schedule] | None = None
    """`build` where hosts lost different rails; None: `build` for hosts in the order of `rerank`."""
    follows_health: bool = True
    """It is for lost NICs, and waits for the first; otherwise it runs from the start, and needs `on_cpu`."""
    keeps_small_on_ring: bool = False
    """Asked for by name, it leaves vectors below R2CC_AR_MIN_BYTES to the ring."""
    on_cpu: Callable[[OnCpu, Settings], Schedule] | None = None
    """The schedule as the CPU runtime runs it, for all ranks; None: `build`, made hierarchical."""
    on_gpu: Callable[[Problem, int], Schedule | None] | None = None
    """The schedule as rounds over NCCL run it, for so many pipes; None: it has none, there or for that problem."""
    slowdown: Callable[[int, float, int], float] | None = None
    """T/T0 as published, for so many ranks, the share that one host lost, and K."""
    pause_s: float = 0.2
    """What a failure stops a simulated job for: a black hole is noticed after 85 ms in the median, and the switch costs
    50."""


def segmented(problem: Problem, members: int, fluid: float) -> Prediction:
    """A model: k segments around a ring of ``members`` hosts h take (k+1)/k of the fluid time, 2 h messages a segment
    in a row.

    ``fluid`` includes what fair sharing loses between ring and leaves, as seen in simulations of p = 3 to 64.
    """
    work = fluid * problem.unit_s
    most = max(1, min(128, problem.most_chunks // members))
    count = most if problem.alpha_s <= 0 else round(sqrt(work / (2 * members * problem.alpha_s)))
    count = max(1, min(most, count))
    seconds = work * (count + 1) / count + 2 * members * (count + 1) * problem.alpha_s
    return seconds, {"segments": count}
