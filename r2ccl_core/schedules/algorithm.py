"""What an AllReduce algorithm is: one record with its names, its model, and how each executor builds its schedule.

The record stands at the end of the file that builds the schedule, and `r2ccl_core.planning.algorithms` lists it.
Planner, runtime, GPU tables, simulated jobs, systems of experiments, figures and documents take everything they know
about an algorithm from there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

from r2ccl_core.model.schedule import Schedule

Shares = tuple[float, ...]
Parameters = dict[str, int]
Prediction = tuple[float, Parameters]
Pairs = tuple[tuple[float, ...], ...]
"""``pairs[a][b]``: what hosts a and b can carry between them, in the unit of the shares, over the rails that both still
have."""

LEAST_MESSAGE_BYTES = 128 * 1024
"""Smaller messages cost more than they save."""
MOST_CHUNKS = 4096

AHEAD = 3
"""Slices of a ring that are in flight at once on the CPU, besides the first. A slice is cut over the NICs, and its last
piece arrives late if there are fewer NICs than pieces: with one of eight lost, most NICs idled for a third of the time.
"""


@dataclass(frozen=True)
class Problem:
    """The planner's question: relative bandwidths b of the hosts, ``unit_s`` = n/B (size over the best host's nominal
    rate), alpha (the fixed cost of a message in seconds), and how many messages the data may be cut into."""

    shares: Shares
    unit_s: float
    alpha_s: float
    most_chunks: int
    repaired: Shares | None = None
    """The bandwidths when one back-up NIC carries a lost one's load; None if nothing is lost."""
    pairs: Pairs | None = None
    """None if every two hosts can do together what each can do alone."""

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
        """What a ring of the hosts in their order can carry."""
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
    """A request of the CPU runtime: an AllReduce of ``nbytes`` over hosts of relative bandwidths ``shares`` with
    ``gpus`` ranks each."""

    nbytes: int
    shares: Shares
    gpus: int
    pipeline: int
    """K, as the user sets it (R2CC_AR_STAGE2_CHUNKS)."""
    ring: Callable[[int, int], Schedule]
    """The ring that runs while nothing is lost, for this number of bytes and ranks; the same object each time."""
    pairs: Pairs | None = None
    """As in `Problem`."""

    @property
    def nranks(self) -> int:
        """Ranks of all hosts."""
        return len(self.shares) * self.gpus


@dataclass(frozen=True)
class Algorithm:
    """One algorithm. The models are alpha-beta models in ``u = n/B``, l = 1/min b and alpha, and pure functions: every
    rank that evaluates them on the same bandwidths gets the same plan."""

    name: str
    """The schedule's name, in plans, events and rows."""
    alias: str | None
    """Its value of R2CC_ALGO, and the name of a system; None if users cannot select it by itself."""
    title: str
    """Its name for people: ``R2CC-AllReduce``."""
    idea: str
    """One line that says what it does."""
    letter: str
    """Its mark in figures."""
    color: str
    """As ``#RRGGBB``: that of its area in figures, in which the letter stands, and that of the system that runs it."""
    predict: Callable[[Problem], Prediction | None]
    """The time in seconds, and the arguments of `build` that achieve it; None: not for this problem."""
    build: Callable[[Shares, Parameters], Schedule]
    """The schedule, with one rank per host."""
    guaranteed: bool = False
    """Whether the model is a proved upper bound if ports are shared fairly, for any losses."""
    build_on_rails: Callable[[Shares, Pairs, Parameters], Schedule] | None = None
    """`build` for hosts that lost different rails; None: `build` for hosts in the order of `rerank`."""
    follows_health: bool = True
    """Whether it is for lost NICs and waits for the first loss; otherwise it runs from the start, and needs
    `on_cpu`."""
    keeps_small_on_ring: bool = False
    """Whether, if selected by name, it leaves vectors below R2CC_AR_MIN_BYTES to the ring."""
    on_cpu: Callable[[OnCpu, Parameters], Schedule] | None = None
    """The schedule as the CPU runtime runs it, for all ranks; None: `build`, made hierarchical."""
    on_gpu: Callable[[Problem], Schedule | None] | None = None
    """The schedule in the form that runs as rounds over NCCL; None if it has none, in general or for this problem."""
    slowdown: Callable[[int, float, int], float] | None = None
    """T/T0 as published, for this number of ranks, the share that one host lost, and K."""
    pause_s: float = 0.2
    """How long a failure stops a simulated job: a black hole is noticed after 85 ms in the median, and the switch costs
    50."""


def segmented(problem: Problem, members: int, fluid: float) -> Prediction:
    """A model: k segments around a ring of ``members`` hosts h take (k+1)/k of the fluid time, with 2 h messages per
    segment in a row.

    ``fluid`` includes the loss from fair sharing between ring and leaves, as seen in simulations of p = 3 to 64.
    """
    work = fluid * problem.unit_s
    most = max(1, min(128, problem.most_chunks // members))
    best = most if problem.alpha_s <= 0 else sqrt(work / (2 * members * problem.alpha_s))  # infinite for the least
    count = max(1, round(min(most, best)))
    seconds = work * (count + 1) / count + 2 * members * (count + 1) * problem.alpha_s
    return seconds, {"segments": count}
