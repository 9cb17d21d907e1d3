"""Selects the schedule of a collective: a `Select` answers for a collective, a size, the group's health and its costs.

The answer must be the same on every rank, and the same object for the same question: connections and executors are kept
by schedule.

Only AllReduce has schedules to choose from: the other collectives have one that is optimal under any loss.

    R2CC_ALGO               the alias of an algorithm (`r2ccl_core.planning.algorithms`; default ring), or auto: the
                            planner's choice. What follows the health runs the ring while no NIC is lost.
    R2CC_MODE=3             the same as R2CC_ALGO=r2cc: R2CC-AllReduce after a loss
    R2CC_OPERATIONS         how many AllReduces are still to come: auto leaves the ring for a little where that pays
    R2CC_AR_STAGE2_CHUNKS   its K, 1 to 16 (4)
    R2CC_AR_MIN_BYTES       smaller vectors stay with the ring (16 MiB)
    R2CC_TREE_BYTES         vectors up to this size take a tree where others take the ring (8 KiB; 0: none do)
    R2CC_SLICE_BYTES        the slices of what is pipelined (256 KiB)
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import NamedTuple, Protocol

from r2ccl_core.errors import UnitError, UsageError
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.model.health import Health
from r2ccl_core.model.schedule import Schedule, copied, relabelled
from r2ccl_core.planning.algorithms import ALGORITHMS, AUTO, by_alias
from r2ccl_core.planning.nic_shares import with_nic_shares
from r2ccl_core.planning.planner import Candidate, plan
from r2ccl_core.schedules import all_to_all, broadcast, rerank, ring, send_recv, tree
from r2ccl_core.schedules.algorithm import AHEAD, OnCpu, Pairs, Shares
from r2ccl_core.units import parse_size


class Cost(NamedTuple):
    """The planner's alpha and beta: seconds per message on its connection, bytes per second of one NIC."""

    alpha_s: float = 150e-6
    nic_bytes_s: float = 1e9


class Select(Protocol):
    """The schedule for a collective of this number of bytes on a rank; any thread may ask."""

    def __call__(self, collective: str, nbytes: int, health: Health, cost: Cost, root: int = 0) -> Schedule:
        """`nbytes` is nccl-tests' size: that of the larger of a rank's two buffers. Raises `UsageError` for unknown
        collectives."""
        ...


LEAST_MODE_RERANKED = 2
"""The lowest R2CC_MODE in which a ring is re-ranked: Balance. In mode 1 a back-up NIC carries the lost one's load."""
_ORDERED = ("all_gather", "reduce_scatter", "broadcast", "reduce")
"""Collectives besides AllReduce whose ring or chain may have any order."""
_MIN_SLICE_BYTES = 64 * 1024
_MOST_PIPELINE = 16


@dataclass(frozen=True)
class SchedulePolicy:
    """How schedules are to be chosen: what the environment requests, or the program."""

    algo: str = "ring"
    slice_bytes: int = 256 * 1024
    pipeline: int = 4
    min_bytes: int = 16 << 20
    tree_bytes: int = 8 << 10
    operations: int | None = None
    """Still to come, as far as is known."""
    reranks: bool = False
    """Whether the order of rings and chains follows losses, so that neighbouring hosts share more rails."""

    @property
    def plans(self) -> bool:
        """Whether the schedule depends on the costs of messages and bytes."""
        return self.algo == AUTO or by_alias()[self.algo].follows_health

    def follows(self, health: Health) -> bool:
        """Whether the schedule depends on which NICs are lost. Three hosts have one ring, and one NIC one rail."""
        return self.plans or (self.reranks and len(health.nics) > 3 and min(health.nics) > 1)


def read_policy(mode: int = 2, environ: Mapping[str, str] = os.environ) -> SchedulePolicy:
    """The policy in `environ` and R2CC_MODE; raises a one-line `UsageError` for a wrong value."""
    algo = environ.get("R2CC_ALGO") or ("r2cc" if mode == 3 else "ring")
    words = (*by_alias(), AUTO)
    if algo not in words:
        close = get_close_matches(algo, words, n=1)
        hint = f"did you mean {close[0]}?" if close else f"use one of {', '.join(words)}"
        raise UsageError(f"R2CC_ALGO={algo}: no such algorithm; {hint}")
    policy = SchedulePolicy(
        algo,
        _size(environ, "R2CC_SLICE_BYTES", SchedulePolicy.slice_bytes),
        _size(environ, "R2CC_AR_STAGE2_CHUNKS", SchedulePolicy.pipeline),
        _size(environ, "R2CC_AR_MIN_BYTES", SchedulePolicy.min_bytes, least=0),
        _size(environ, "R2CC_TREE_BYTES", SchedulePolicy.tree_bytes, least=0),
        _count(environ, "R2CC_OPERATIONS"),
        reranks=mode >= LEAST_MODE_RERANKED,
    )
    if mode == 0 and policy.plans:
        raise UsageError(f"R2CC_ALGO={algo} needs a transport that survives a loss; R2CC_MODE is 0 (fail-stop)")
    if policy.pipeline > _MOST_PIPELINE:
        raise UsageError(f"R2CC_AR_STAGE2_CHUNKS={policy.pipeline}: give 1 to {_MOST_PIPELINE}")
    return policy


def ring_slices(nbytes: int, nranks: int, slice_bytes: int) -> int:
    """The number of pieces in which each of the ring's sections is pipelined: pieces of about `slice_bytes`, at least
    two if they stay above 64 KiB, so that a hop overlaps the next."""
    section = nbytes // nranks
    return max(1, round(section / slice_bytes), min(2, section // _MIN_SLICE_BYTES))


def selection(policy: SchedulePolicy) -> Select:
    """The selection by this policy."""
    rings = cache(ring.all_reduce)

    def plain(nbytes: int, nranks: int) -> Schedule:
        return rings(nranks, slices=ring_slices(nbytes, nranks, policy.slice_bytes), ahead=AHEAD)

    def asked(nbytes: int, health: Health, shares: Shares) -> OnCpu:
        return OnCpu(nbytes, shares, health.gpus, policy.pipeline, plain, _pairs(health))

    @lru_cache(maxsize=256)
    def reranked(nbytes: int, health: Health) -> Schedule:
        if not _is_moved(health):
            return plain(nbytes, health.nranks)
        return rerank.in_order(_order(health), health.shares, lambda _: plain(nbytes, health.nranks))

    @lru_cache(maxsize=256)
    def planned(nbytes: int, health: Health, cost: Cost) -> Schedule:
        candidate = _candidate(policy, nbytes, health, cost)
        if candidate is None:
            return reranked(nbytes, health)
        algorithm, parameters = ALGORITHMS[candidate.name], candidate.parameters
        on_cpu = algorithm.on_cpu
        if on_cpu is None:
            return candidate.build()
        if algorithm.build_on_rails is not None or _pairs(health) is None:
            return on_cpu(asked(nbytes, health, health.shares), parameters)
        return rerank.in_order(
            _order(health), health.shares, lambda shares: on_cpu(asked(nbytes, health, shares), parameters)
        )

    @lru_cache(maxsize=256)
    def moved(collective: str, nbytes: int, health: Health, root: int) -> Schedule:
        nranks = health.nranks
        slices = _slices(collective, nbytes, nranks, policy.slice_bytes)
        ranks = rerank.rank_order(_order(health), nranks)
        return relabelled(_only(collective, nranks, ranks.index(root), slices), ranks)

    @lru_cache(maxsize=256)
    def of_small(health: Health) -> Schedule | None:
        """The tree, whatever is lost, unless two of its hosts have no rail in common."""
        small, pairs = trees(health.nranks), _pairs(health)
        hosts = [(source // health.gpus, target // health.gpus) for source, target, _ in small.connections()]
        return small if pairs is None or all(a == b or pairs[a][b] > 0 for a, b in hosts) else None

    only, trees = cache(_only), cache(tree.all_reduce)
    own = by_alias().get(policy.algo)
    takes_ring = own is None or own.follows_health or own is ring.ALGORITHM

    @lru_cache(maxsize=256)
    def divided(collective: str, nbytes: int, health: Health, cost: Cost, root: int) -> Schedule:
        return with_nic_shares(choose(collective, nbytes, health, cost, root), health.topology(1.0))

    def select(collective: str, nbytes: int, health: Health, cost: Cost, root: int = 0) -> Schedule:
        if _pairs(health) is None:
            return choose(collective, nbytes, health, cost, root)
        return divided(collective, nbytes, health, cost, root)

    def choose(collective: str, nbytes: int, health: Health, cost: Cost, root: int) -> Schedule:
        nranks = health.nranks
        if collective != "all_reduce":
            if collective in _ORDERED and not health.is_whole and policy.follows(health) and _is_moved(health):
                return moved(collective, nbytes, health, root)
            return only(collective, nranks, root, _slices(collective, nbytes, nranks, policy.slice_bytes))
        if takes_ring and nranks > 1 and nbytes <= policy.tree_bytes and (small := of_small(health)) is not None:
            return small
        if policy.algo == ring.ALGORITHM.alias or nranks == 1:
            follows = not health.is_whole and policy.follows(health)
            return reranked(nbytes, health) if follows else plain(nbytes, nranks)
        if own is not None and not own.follows_health and own.on_cpu is not None:
            return own.on_cpu(asked(nbytes, health, health.shares), {})
        waits = health.is_whole and own is not None
        stays = own is not None and own.keeps_small_on_ring and nbytes < policy.min_bytes
        if len(health.nics) < 2 or waits:
            return plain(nbytes, nranks)
        if stays:
            return reranked(nbytes, health)
        return planned(nbytes, health, cost)

    return select


@lru_cache(maxsize=64)
def _pairs(health: Health) -> Pairs | None:
    return rerank.narrow_pairs(health.topology(1.0))


@lru_cache(maxsize=64)
def _order(health: Health) -> tuple[int, ...]:
    return rerank.ring_order(health.topology(1.0))


def _is_moved(health: Health) -> bool:
    return _order(health) != tuple(range(len(health.nics)))


def _only(collective: str, nranks: int, root: int, slices: int) -> Schedule:
    """The schedule of a collective that has one; a rooted one of a single slice uses a tree."""
    if collective == "all_gather":
        return ring.all_gather(nranks, slices=slices, ahead=AHEAD)
    if collective == "reduce_scatter":
        return ring.reduce_scatter(nranks, slices=slices, ahead=AHEAD)
    if collective == "broadcast":
        return broadcast.broadcast(nranks, root, slices=slices, tree=slices == 1)
    if collective == "reduce":
        return broadcast.reduce(nranks, root, slices=slices, tree=slices == 1)
    if collective == "alltoall":
        return all_to_all.all_to_all(nranks, slices=slices)
    if collective == "sendrecv":
        return send_recv.send_recv(nranks, slices=slices, ahead=AHEAD) if nranks > 1 else copied("sendrecv", "sendrecv")
    raise UsageError(f"the collective {collective!r} is unknown; it is one of {', '.join(COLLECTIVES)}")


def _slices(collective: str, nbytes: int, nranks: int, slice_bytes: int) -> int:
    """The number of pieces in which a rank's block travels."""
    blocks = 1 if collective in ("broadcast", "reduce", "sendrecv") else nranks
    return ring_slices(nbytes, blocks, slice_bytes)


def _candidate(policy: SchedulePolicy, nbytes: int, health: Health, cost: Cost) -> Candidate | None:
    """The planner's choice, or its form of the algorithm asked for; None where that has none for this health."""
    topology = health.topology(cost.nic_bytes_s)
    result = plan(topology, "all_reduce", nbytes, cost.alpha_s, operations=policy.operations)
    if policy.algo == AUTO:
        return result.chosen
    return next((one for one in result.candidates if one.name == by_alias()[policy.algo].name), None)


def _count(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    if not text:
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{name}={text}: give a whole number, such as 1000")
    return int(text)


def _size(environ: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    text = environ.get(name, "")
    try:
        value = parse_size(text) if text else default
    except UnitError as error:
        raise UsageError(f"{name}={text}: {error}") from error
    if value < least:
        raise UsageError(f"{name}={text}: give at least {least}, such as {default}")
    return value
