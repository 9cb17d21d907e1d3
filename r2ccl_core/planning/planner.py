"""Predicts every algorithm's time on a topology, chooses one, and says why.

Pure: the same topology, size and alpha give the same plan on every rank, so ranks that agree on the topology need not
agree on anything else. Collectives other than AllReduce have one bandwidth-optimal algorithm under any loss, and a tree
for small messages.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf, log2

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.model.topology import Topology, hot_repaired
from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.planning.bound import bound_s
from r2ccl_core.schedules import all_to_all, broadcast, hierarchical, rerank, ring, send_recv
from r2ccl_core.schedules.algorithm import LEAST_MESSAGE_BYTES, MOST_CHUNKS, Algorithm, Pairs, Parameters, Problem

MARGIN = 0.03
"""Accuracy of the models: a schedule that replaces the ring must promise more than this."""

SWITCH_S = 0.05
"""Cost of a change of schedule to a job: agreement, connections and fresh streams (12 to 50 ms as measured here)."""


@dataclass(frozen=True)
class Candidate:
    """One algorithm's prediction; ``ratio`` is its time over the lower bound without a loss."""

    name: str
    seconds: float
    ratio: float
    idea: str
    parameters: Parameters
    build: Callable[[], Schedule]
    guaranteed: bool = False
    """The prediction is an upper bound, not a fit: no margin is needed."""


@dataclass(frozen=True)
class Plan:
    """All candidates, the fastest first, and the one that was chosen."""

    topology: Topology
    alpha_s: float
    collective: str
    size_bytes: int
    bound_s: float
    fault_free_s: float
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    reason: str

    def schedule(self) -> Schedule:
        """The chosen schedule, for all ranks of the topology."""
        return self.chosen.build()


def plan(
    topology: Topology,
    collective: str,
    size_bytes: int,
    alpha_s: float = 0.0,
    *,
    root: int = 0,
    least_message_bytes: int = LEAST_MESSAGE_BYTES,
    most_chunks: int = MOST_CHUNKS,
    operations: int | None = None,
    switch_s: float = SWITCH_S,
) -> Plan:
    """The plan for one collective of ``size_bytes`` (the vector of `collective.py`).

    With this many ``operations`` to come, a guaranteed schedule that is less than `MARGIN` better than the ring is
    chosen too if it pays back the ``switch_s`` that leaving the ring costs. ``alpha_s`` is the fixed cost of a message
    on its connection. Raises `UsageError` if a participating host has no bandwidth left, or there are too few hosts.
    """
    rates = topology.rates_bytes_s
    if min(rates) <= 0:
        raise UsageError(f"host {rates.index(min(rates))} has no NIC left; no schedule can reach it")
    chunks = max(1, min(most_chunks, size_bytes // least_message_bytes))
    fault_free = bound_s(collective, topology.healthy.rates_bytes_s, size_bytes)
    if topology.nhosts < 2 and topology.nranks > 1:
        raise UsageError("a plan is about the network: give two hosts or more")
    if collective == "all_reduce" and topology.nhosts > 1:
        found = _all_reduce(topology, size_bytes, alpha_s, chunks)
    else:
        found = _others(topology, collective, size_bytes, alpha_s, chunks, root)
    limit = bound_s(collective, rates, size_bytes)
    # A formula that leaves something out may promise more than any schedule can keep: hence the maximum.
    possible = [(name, max(s, limit), idea, parameters, build) for name, s, idea, parameters, build in found]
    sure = {algorithm.name for algorithm in ALGORITHMS.values() if algorithm.guaranteed}
    candidates = tuple(
        Candidate(name, seconds, seconds / fault_free if fault_free else 1.0, idea, parameters, build, name in sure)
        for name, seconds, idea, parameters, build in sorted(possible, key=lambda one: one[1])
    )
    chosen, reason = _choose(candidates, operations, switch_s)
    return Plan(topology, alpha_s, collective, size_bytes, limit, fault_free, candidates, chosen, reason)


Found = tuple[str, float, str, Parameters, Callable[[], Schedule]]


def _all_reduce(topology: Topology, size_bytes: int, alpha_s: float, chunks: int) -> list[Found]:
    best = max(host.nominal_bytes_s for host in topology.hosts)
    repaired = hot_repaired(topology)
    others = repaired.shares if repaired != topology else None
    problem = Problem(topology.shares, size_bytes / best, alpha_s, chunks, others)
    inner_s = _inner_s(topology, size_bytes)
    pairs = rerank.narrow_pairs(topology)
    order = () if pairs is None else rerank.ring_order(topology)
    found: list[Found] = []
    for algorithm in ALGORITHMS.values():
        asked, build = _on_rails(algorithm, problem, pairs, order)
        cut = algorithm.build_on_rails is None and asked.slowest_edge <= 0
        if (prediction := algorithm.predict(replace(asked, pairs=None) if cut else asked)) is None:
            continue
        seconds, parameters = prediction
        if cut:  # in any order, two neighbours share no rail
            seconds = inf
        elif not (algorithm.build_on_rails or algorithm.name == ring.ALGORITHM.name):
            seconds *= asked.slowest / asked.slowest_edge  # as much as its ring loses; a rough guess
        made = _builder(topology, partial(build, parameters))
        found.append((algorithm.name, seconds + inner_s, algorithm.idea, parameters, made))
    return found


def _on_rails(
    algorithm: Algorithm, problem: Problem, pairs: Pairs | None, order: tuple[int, ...]
) -> tuple[Problem, Callable[[Parameters], Schedule]]:
    """The problem and the schedule of hosts that lost different rails: of the hosts as they are if the algorithm knows
    pairs of hosts, else of the hosts in another order."""
    if pairs is None:
        return problem, partial(algorithm.build, problem.shares)
    if algorithm.build_on_rails is not None:
        return replace(problem, pairs=pairs), partial(algorithm.build_on_rails, problem.shares, pairs)
    moved = replace(
        problem,
        shares=tuple(problem.shares[host] for host in order),
        repaired=None if problem.repaired is None else tuple(problem.repaired[host] for host in order),
        pairs=tuple(tuple(pairs[a][b] for b in order) for a in order),
    )

    def build(parameters: Parameters) -> Schedule:
        return rerank.in_order(order, problem.shares, lambda shares: algorithm.build(shares, parameters))

    return moved, build


def _builder(topology: Topology, build: Callable[[], Schedule]) -> Callable[[], Schedule]:
    """The schedule of hosts, turned into one of GPUs if hosts have several."""
    gpus = topology.hosts[0].gpus
    if any(host.gpus != gpus for host in topology.hosts):
        raise UsageError("hosts have different numbers of GPUs; the hierarchical form needs equal ones")
    return lambda: hierarchical.of_ranks(build(), gpus)


def _inner_s(topology: Topology, size_bytes: int) -> float:
    """Reduce-scatter and all-gather inside the host; they overlap in part, but are counted in full."""
    return max(2 * (host.gpus - 1) / host.gpus * size_bytes / host.inner_rate_bytes_s for host in topology.hosts)


def _others(
    topology: Topology, collective: str, size_bytes: int, alpha_s: float, chunks: int, root: int
) -> list[Found]:
    p = topology.nranks
    if p != topology.nhosts:
        raise UsageError(f"{collective} is planned for one GPU per host only; all_reduce for any number")
    optimal_s = bound_s(collective, topology.rates_bytes_s, size_bytes) + (p - 1) * alpha_s
    blocks = {"slices": max(1, min(64, chunks // p))}
    if collective == "reduce_scatter":
        return [
            (
                "ring",
                optimal_s,
                "the ring, which is optimal",
                blocks,
                lambda: ring.reduce_scatter(p, **blocks),
            )
        ]
    if collective == "all_gather":
        return [("ring", optimal_s, "the ring, which is optimal", blocks, lambda: ring.all_gather(p, **blocks))]
    if collective == "alltoall":
        return [("alltoall", optimal_s, "every distance in turn", {}, lambda: all_to_all.all_to_all(p))]
    if collective == "all_reduce":
        return [("ring", 0.0, "one rank alone", {}, lambda: ring.all_reduce(1))]
    whole = {"slices": max(1, min(64, chunks))}
    if collective == "sendrecv":
        return [("sendrecv", optimal_s, "round the ring by one", blocks, lambda: send_recv.send_recv(p, **blocks))]
    return _rooted(topology, collective, size_bytes, alpha_s, whole, root)


def _rooted(
    topology: Topology, collective: str, size_bytes: int, alpha_s: float, whole: Parameters, root: int
) -> list[Found]:
    """Broadcast and Reduce: a chain for long vectors, a binomial tree for short ones."""
    p, slices = topology.nranks, whole["slices"]
    make = broadcast.broadcast if collective == "broadcast" else broadcast.reduce
    once_s = size_bytes / min(topology.rates_bytes_s)
    chain_s = (slices + p - 2) * (once_s / slices + alpha_s)
    tree_s = ceil(log2(p)) * (once_s + alpha_s) if p > 1 else 0.0
    return [
        ("chain", chain_s, "a pipelined chain", whole, lambda: make(p, root, slices=slices)),
        ("tree", tree_s, "a binomial tree", {"slices": 1}, lambda: make(p, root, slices=1, tree=True)),
    ]


def _choose(candidates: tuple[Candidate, ...], operations: int | None, switch_s: float) -> tuple[Candidate, str]:
    fastest = candidates[0]
    ring_like = next((one for one in candidates if one.name == "ring"), None)
    if ring_like is None or fastest is ring_like:
        return fastest, "the least predicted time"
    limit_s = ring_like.seconds * (1 - MARGIN)
    if operations is None:
        if fastest.seconds > limit_s:
            return ring_like, f"{fastest.name} promises less than {100 * MARGIN:.0f} % over the ring"
        return fastest, f"{ring_like.seconds / fastest.seconds:.2f} times as fast as the ring"
    believed = [one for one in candidates if one.seconds <= (ring_like.seconds if one.guaranteed else limit_s)]
    best = believed[0] if believed else ring_like
    saved_s = (ring_like.seconds - best.seconds) * operations
    if saved_s <= switch_s:
        return ring_like, f"{operations} operations do not pay back the {switch_s * 1e3:g} ms that leaving it costs"
    return best, f"{operations} operations save {saved_s:.3g} s, for {switch_s * 1e3:g} ms that leaving the ring costs"


def as_record(result: Plan) -> dict[str, object]:
    """The plan as JSON values."""
    return {
        "schema": 2,
        "hosts": result.topology.nhosts,
        "ranks": result.topology.nranks,
        "shares": result.topology.shares,
        "alpha_s": result.alpha_s,
        "collective": result.collective,
        "size_bytes": result.size_bytes,
        "bound_s": result.bound_s,
        "fault_free_s": result.fault_free_s,
        "chosen": result.chosen.name,
        "reason": result.reason,
        "candidates": [
            {"name": one.name, "seconds": one.seconds, "ratio": one.ratio, "parameters": one.parameters}
            for one in result.candidates
        ],
    }
