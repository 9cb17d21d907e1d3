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

from collections.abc import Sequence

from r2ccl_core.errors import UsageError
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules.timed import Messages, compile_schedule
from r2ccl_core.schedules.tree import Tree, down, up

ABREAST_ROUNDS = 10
"""From so many chunks on the trees advance abreast: the last one to be done is the forest's end. Fewer are over before
streams drift apart, and with one to three of them the ranks could wait for each other in a circle."""


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
    while (excess := sum(degrees) - 2 * trees * (p - 1)) > 0:
        v = max((v for v in range(p) if degrees[v] > trees), key=lambda v: degrees[v] / shares[v])
        degrees[v] -= min(1, excess)
    for _ in range(2 * trees * (p - 1) - sum(degrees)):
        room = (v for v in range(p) if degrees[v] < trees * (p - 1))
        degrees[min(room, key=lambda v: ((degrees[v] + 1) / shares[v], v))] += 1
    return degrees


def trees_of(shares: Sequence[float], count: int, fan: int = 2) -> list[Tree]:
    """``count`` trees whose degrees add up to `integer_degrees`.

    A host's work is gathered in as few trees as possible, up to ``fan`` extra edges in each: it has many
    children here and is a leaf there, so the trees are about ``log(p) / log(fan)`` deep.
    """
    p = len(shares)
    extra = [d - count for d in integer_degrees(shares, count)]
    room = [p - 2] * count
    split = [[1] * p for _ in range(count)]
    for v in sorted(range(p), key=lambda v: (-extra[v], v)):
        left = extra[v]
        unit = max(fan, -(-left // count))
        while left:
            tree = min(
                (c for c in range(count) if room[c]),
                key=lambda c: (split[c][v] > 1, -room[c], (c - v) % count),
            )
            take = min(unit, left, room[tree])
            split[tree][v] += take
            room[tree] -= take
            left -= take
    return [tree_of_degrees(one, shares) for one in split]


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


def all_reduce(shares: Sequence[float], *, trees: int = 2, rounds: int = 64, fan: int = 2) -> Schedule:
    """A forest for hosts of relative bandwidths ``shares``: a lane per tree, ``rounds`` chunks through each.

    A lane holds both ways, up and down, interleaved so that a host at depth d sends chunk k + 2d up before
    it passes chunk k down: the order in which the chunks come by when every message takes one unit.
    """
    p = len(shares)
    if p < 2 or min(shares) <= 0 or trees < 1 or rounds < 1:
        raise UsageError("a forest needs two hosts or more, all with some bandwidth, a tree and a round")
    parts = []
    for lane, tree in enumerate(trees_of(shares, trees, fan)):
        parts += [up(tree, lane, lane * rounds, rounds), down(tree, lane, lane * rounds, rounds)]
    every, abreast = Messages.join(parts), (0,) * trees if rounds >= ABREAST_ROUNDS else ()
    return compile_schedule("forest", "all_reduce", p, trees * rounds, trees, every, abreast=abreast)
