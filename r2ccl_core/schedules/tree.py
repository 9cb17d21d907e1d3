"""Trees: AllReduce up and down one tree, Broadcast and Reduce along one; the basis of the forest.

For small messages the number of messages in a row matters, not bandwidth: a binomial tree needs log2 p of them in each
direction where the ring needs 2(p-1).
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, log2

import numpy as np

from r2ccl_core.model.schedule import Schedule, copied
from r2ccl_core.schedules.algorithm import Algorithm, OnCpu, Parameters, Prediction, Problem
from r2ccl_core.schedules.timed import Messages, compile_schedule


@dataclass(frozen=True)
class Tree:
    """Parent and depth of every rank; the root's parent is -1 and its depth 0."""

    parent: tuple[int, ...]
    depth: tuple[int, ...]

    @property
    def height(self) -> int:
        """Depth of the deepest rank."""
        return max(self.depth)

    @property
    def degrees(self) -> tuple[int, ...]:
        """Edges of every rank."""
        return tuple((up >= 0) + self.parent.count(rank) for rank, up in enumerate(self.parent))


def binomial(nranks: int, root: int = 0) -> Tree:
    """The tree in which the number of ranks that hold the value doubles with every message time."""
    parent, depth = [-1] * nranks, [0] * nranks
    for index in range(1, nranks):
        above = index & (index - 1)
        rank = (index + root) % nranks
        parent[rank] = (above + root) % nranks
        depth[rank] = index.bit_count()
    return Tree(tuple(parent), tuple(depth))


def path(nranks: int, root: int = 0) -> Tree:
    """The chain root, root+1, ..., root-1."""
    ranks = range(nranks)
    parent = tuple(-1 if rank == root else (rank - 1) % nranks for rank in ranks)
    return Tree(parent, tuple((rank - root) % nranks for rank in ranks))


def all_reduce(nranks: int, *, slices: int = 1) -> Schedule:
    """Up and down a binomial tree with root 0, ``slices`` chunks one after another."""
    if nranks == 1:
        return copied("tree", "all_reduce")
    tree = binomial(nranks)
    messages = Messages.join([up(tree, 0, 0, slices), down(tree, 0, 0, slices)])
    return compile_schedule("tree", "all_reduce", nranks, slices, 1, messages)


def up(tree: Tree, lane: int, first: int, chunks: int) -> Messages:
    """Chunks ``first ...`` reduced to the root: chunk k leaves depth d at time k + height - d."""
    turn, child, parent, depth = _edges(tree, chunks)
    leave = turn + tree.height - depth
    order = turn * (4 * tree.height + 4) + tree.height - depth
    return _messages(leave, order, lane, child, parent, first + turn, 1)


def down(tree: Tree, lane: int, first: int, chunks: int) -> Messages:
    """Chunks ``first ...`` from the root to everybody: chunk k reaches depth d at k + height + d."""
    turn, child, parent, depth = _edges(tree, chunks)
    leave = turn + tree.height + depth - 1
    order = turn * (4 * tree.height + 4) + 2 * tree.height + depth
    return _messages(leave, order, lane, parent, child, first + turn, 0)


Ints = np.ndarray


def _edges(tree: Tree, chunks: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Every edge in every turn, as columns turn, child, parent and the child's depth."""
    child = np.array([rank for rank, parent in enumerate(tree.parent) if parent >= 0], dtype=np.int64)
    turn = np.repeat(np.arange(chunks), len(child))
    parent, depth = np.array(tree.parent)[child], np.array(tree.depth)[child]
    return turn, np.tile(child, chunks), np.tile(parent, chunks), np.tile(depth, chunks)


def _messages(
    leave: Ints, order: Ints, lane: int, source: Ints, destination: Ints, chunk: Ints, reduce: int
) -> Messages:
    same = np.ones_like(leave)
    made = Messages(leave, leave + 1, order, lane * same, source, destination, chunk, chunk + 1, reduce * same)
    return made.narrow()


def _predict(problem: Problem) -> Prediction:
    """Each level passes the whole vector; levels that share the root's port add a fifth each (simulated)."""
    depth = ceil(log2(problem.hosts))
    level_s = problem.unit_s / problem.slowest * (1 + 0.2 * (depth - 1)) + problem.alpha_s
    return 2 * depth * level_s, {"slices": 1}


@cache
def _for_ranks(nranks: int) -> Schedule:
    return all_reduce(nranks)


def _on_cpu(asked: OnCpu, parameters: Parameters) -> Schedule:
    """The same object for every size: connections are kept by schedule."""
    return _for_ranks(asked.nranks)


ALGORITHM = Algorithm(
    name="tree",
    alias="tree",
    title="tree",
    idea="one binomial tree, few messages in a row",
    letter="T",
    color="#F0E442",
    predict=_predict,
    build=lambda shares, parameters: all_reduce(len(shares), **parameters),
    follows_health=False,
    on_cpu=_on_cpu,
)
