"""Forest: AllReduce over many small trees whose degrees follow the hosts' bandwidths.

A chunk is reduced up a tree to its root and broadcast down again. In a tree a host of degree d sends d
chunks and receives d chunks, root or not. So the mean degree is a host's load, and integers >= 1 are the
degrees of some tree exactly when they sum to 2(p-1). With ``d = max(1, c b)`` summing to 2(p-1) (water
filling), the time is ``max(1/min b, 2(p-1)/sum b)``: the lower bound, for every vector b.

The trees are few, fixed, and run side by side, one lane each, chunk after chunk. Every flow gets at least
its share ``1/D`` of a port, so with C trees, K chunks through each, H the height of the highest:

    T <= (K + 2H - 1) (T_int / K + alpha),    T_int = max_v D_v / (C b_v)   in units of n/B

Two losses: rounding, at most ``p / (2C(p-1))``, wants many trees; filling, ``(2H-1)/K``, wants few, or
low ones: with `fan` children and more per inner host the height is ``log(p)/log(fan)``.
"""

import heapq
from collections.abc import Callable, Sequence

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules.algorithm import Pairs
from r2ccl_core.schedules.timed import Messages, compile_schedule
from r2ccl_core.schedules.tree import Tree, down, up

ABREAST_CHUNKS = 10
"""From this number of chunks on the trees advance together, because the last one to finish ends the forest. Fewer
chunks are over before streams drift apart, and with one to three of them the ranks could wait for each other in a
circle."""


def mean_degrees(shares: Sequence[float]) -> list[float]:
    """``d_v = max(1, c b_v)`` with the water level c that makes them sum to 2(p-1)."""
    total = 2.0 * (len(shares) - 1)
    order = sorted(range(len(shares)), key=lambda v: shares[v])
    clipped, rest = 0, sum(shares)
    for v in order:
        if (total - clipped) / rest * shares[v] >= 1.0:
            break
        clipped += 1
        rest -= shares[v]
    level = (total - clipped) / rest
    return [max(1.0, level * share) for share in shares]


def integer_degrees(shares: Sequence[float], trees: int) -> list[int]:
    """Degrees summed over ``trees`` trees that minimise ``max D_v / b_v`` (greedy, which is optimal)."""
    p = len(shares)
    mean = mean_degrees(shares)
    degrees = [max(trees, int(trees * d)) for d in mean]
    total = 2 * trees * (p - 1)
    _move(degrees, -1, sum(degrees) - total, lambda v: -degrees[v] / shares[v], lambda v: degrees[v] > trees)
    _move(
        degrees, 1, total - sum(degrees), lambda v: (degrees[v] + 1) / shares[v], lambda v: degrees[v] < trees * (p - 1)
    )
    return degrees


def _move(degrees: list[int], by: int, times: int, key: Callable[[int], float], may: Callable[[int], bool]) -> None:
    """Changes the degree with the smallest `key` among those that `may` change (the first of equals), this many
    times."""
    if times <= 0:
        return
    heap = [(key(v), v) for v in range(len(degrees)) if may(v)]
    heapq.heapify(heap)
    for _ in range(times):
        _, v = heapq.heappop(heap)
        degrees[v] += by
        if may(v):
            heapq.heappush(heap, (key(v), v))


def trees_of(shares: Sequence[float], count: int, fan: int = 2, pairs: Pairs | None = None) -> list[Tree]:
    """``count`` trees whose degrees add up to `integer_degrees`, each as low as its degrees allow.

    With `pairs`, hosts of one degree in a tree exchange places until edges connect hosts that share most rails.
    """
    trees = [tree_of_degrees(one, shares) for one in degrees_of(shares, count, fan, narrow_hosts(pairs))]
    return trees if pairs is None else _on_rails(trees, pairs)


def narrow_hosts(pairs: Pairs | None) -> frozenset[int]:
    """Hosts that share fewer rails with some other host than either has. With many children such a host would have that
    other host among them."""
    hosts = range(len(pairs or ()))
    return frozenset(a for a in hosts for b in hosts if a != b and pairs and _lacks(pairs, a, b) > 0)


def _lacks(pairs: Pairs, a: int, b: int) -> float:
    """How many times more the slower of the two could do alone than both can do together, less one; 0 if they share all
    rails."""
    return max(0.0, min(pairs[a][a], pairs[b][b]) / max(pairs[a][b], 1e-6) - 1 - 1e-9)


def pair_limit(trees: Sequence[Tree], pairs: Pairs) -> float:
    """The time of the busiest pair of hosts, in units of n/B: every edge of a tree carries its part once in each
    direction."""
    return max(load / pairs[a][b] if pairs[a][b] else float("inf") for (a, b), load in _loads(trees).items())


def _loads(trees: Sequence[Tree]) -> dict[tuple[int, int], float]:
    loads: dict[tuple[int, int], float] = {}
    for tree in trees:
        for edge in _edges(tree.parent):
            loads[edge] = loads.get(edge, 0.0) + 1 / len(trees)
    return loads


def _edges(parent: Sequence[int]) -> list[tuple[int, int]]:
    return [(min(v, above), max(v, above)) for v, above in enumerate(parent) if above >= 0]


def _on_rails(trees: Sequence[Tree], pairs: Pairs) -> list[Tree]:
    """The trees after all exchanges that remove edges between hosts that share few rails, one tree at a time.

    Degrees, shapes and heights stay the same.
    """
    loads = _loads(trees)
    part = 1 / len(trees)
    made = []
    for tree in trees:
        current, moved = tree, True
        while moved:
            moved = False
            degrees = current.degrees
            for a in sorted({v for edge in _edges(current.parent) for v in edge if _lacks(pairs, *edge)}):
                for b in range(len(degrees)):
                    if degrees[a] != degrees[b] or a == b:
                        continue
                    other = _exchanged(current, a, b)
                    change = dict.fromkeys(_edges(current.parent), -part)
                    for edge in _edges(other.parent):
                        change[edge] = change.get(edge, 0.0) + part
                    if _worth(loads, change, pairs) < -1e-9:
                        for edge, by in change.items():
                            loads[edge] = loads.get(edge, 0.0) + by
                        current, moved = other, True
        made.append(current)
    return made


def _worth(loads: dict[tuple[int, int], float], change: dict[tuple[int, int], float], pairs: Pairs) -> float:
    """What the change adds to the sum over pairs of load² times what the pair lacks."""
    total = 0.0
    for (a, b), by in change.items():
        before = loads.get((a, b), 0.0)
        total += ((before + by) ** 2 - before**2) * _lacks(pairs, a, b)
    return total


def _exchanged(tree: Tree, a: int, b: int) -> Tree:
    """The tree with a and b in each other's place."""
    names = list(range(len(tree.parent)))
    names[a], names[b] = b, a
    parent, depth = [-1] * len(names), [0] * len(names)
    for v, above in enumerate(tree.parent):
        parent[names[v]] = names[above] if above >= 0 else -1
        depth[names[v]] = tree.depth[v]
    return Tree(tuple(parent), tuple(depth))


def degrees_of(
    shares: Sequence[float], count: int, fan: int = 2, narrow: frozenset[int] = frozenset()
) -> list[list[int]]:
    """The degrees of every host in each of ``count`` trees; they add up to `integer_degrees`.

    A host's work is gathered in as few trees as possible, up to ``fan`` extra edges in each: it has many children in
    one tree and is a leaf in another, so the trees are about ``log(p) / log(fan)`` deep. The work of ``narrow`` hosts
    is spread over as many trees as possible, apart from each other.
    """
    p = len(shares)
    extra = [d - count for d in integer_degrees(shares, count)]
    room = [p - 2] * count
    split = [[1] * p for _ in range(count)]
    for v in sorted(range(p), key=lambda v: (v not in narrow, -extra[v], v)):
        left = extra[v]
        unit = max(1 if v in narrow else fan, -(-left // count))
        while left:  # once, but for where room is short; then the trees in which the host has children already
            for tree in sorted(range(count), key=lambda c: (-room[c], (c - v) % count)):
                take = min(unit, left, room[tree])
                split[tree][v] += take
                room[tree] -= take
                left -= take
                if not left:
                    break
    return split


def height_of(degrees: Sequence[int]) -> int:
    """The height of the `tree_of_degrees`, without building the tree."""
    below = np.cumsum(-np.sort(-np.asarray(degrees)) - 1) + 2  # hosts down to the children of the first so many
    seen, height = 1, 0
    while seen < len(degrees):
        seen, height = int(below[seen - 1]), height + 1
    return height


def tree_of_degrees(degrees: Sequence[int], shares: Sequence[float]) -> Tree:
    """The shallowest tree with these degrees: breadth first, high degrees and fast hosts on top."""
    p = len(degrees)
    order = sorted(range(p), key=lambda v: (-degrees[v], -shares[v], v))
    parent, depth = [-1] * p, [0] * p
    following = 1
    for v in order:
        for child in order[following : following + degrees[v] - (v != order[0])]:
            parent[child], depth[child] = v, depth[v] + 1
        following += degrees[v] - (v != order[0])
    return Tree(tuple(parent), tuple(depth))


def all_reduce(
    shares: Sequence[float], *, trees: int = 2, chunks: int = 64, fan: int = 2, pairs: Pairs | None = None
) -> Schedule:
    """A forest for hosts of relative bandwidths ``shares``: a lane per tree, ``chunks`` chunks through each.

    A lane holds both directions, up and down, interleaved so that a host at depth d sends chunk k + 2d up before it
    passes chunk k down: the order in which the chunks arrive if every message takes one unit.
    """
    p = len(shares)
    if p < 2 or min(shares) <= 0 or trees < 1 or chunks < 1:
        raise UsageError("a forest needs two hosts or more, all with some bandwidth, a tree and a chunk")
    parts = []
    for lane, tree in enumerate(trees_of(shares, trees, fan, pairs)):
        parts += [up(tree, lane, lane * chunks, chunks), down(tree, lane, lane * chunks, chunks)]
    every, abreast = Messages.join(parts), (0,) * trees if chunks >= ABREAST_CHUNKS else ()
    return compile_schedule("forest", "all_reduce", p, trees * chunks, trees, every, abreast=abreast)
