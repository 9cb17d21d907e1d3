"""Cuts a vector into segments: hosts of several GPUs reduce and gather one inside while others are on the network.

Pure. A segment is a range of chunks. NCCL's ReduceScatter inside the hosts has to be done before the first round that
touches the segment, its AllGather follows the last one. So chunks are numbered in the order in which rounds use them,
and a segment holds what some rounds in a row use first. The rounds themselves stay as they are.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, pairwise

from r2ccl_core.gpu.rounds import Rounds

MOST_SEGMENTS = 16
"""More add less than 1 % to what is hidden; each costs two calls of NCCL."""

AHEAD = 2
"""Segments that are reduced before a round needs them (native/cuda/runner.cc); more hide no more."""

Segments = tuple[int, ...]
"""The chunk that each segment ends before."""


def in_order_of_use(rounds: Rounds) -> Rounds:
    """The same rounds with their chunks numbered as they are first used; as they are if operations have several."""
    if not _is_fine(rounds):
        return rounds
    first = _first_uses(rounds)
    numbers = {chunk: number for number, chunk in enumerate(sorted(first, key=lambda chunk: (first[chunk], chunk)))}
    programs = tuple(
        tuple(op._replace(begin=numbers[op.begin], end=numbers[op.begin] + 1) for op in program)
        for program in rounds.programs
    )
    return replace(rounds, programs=programs)


def cuts(rounds: Rounds, most: int) -> Iterator[Segments]:
    """Ways to cut the vector of rounds that are `in_order_of_use` into 1, 2, 4, ... and at most `most` segments."""
    yield (rounds.nchunks,)
    if not _is_fine(rounds):
        return
    together = [len(list(chunks)) for _, chunks in groupby(sorted(_first_uses(rounds).values()))]
    ends = list(accumulate(together))
    count = 2
    while count <= min(most, len(ends)):
        yield tuple(ends[len(ends) * number // count - 1] for number in range(1, count + 1))
        count *= 2


def predicted_s(
    rounds: Rounds, segments: Segments, rounds_s: Sequence[float], inside_s: float, alpha_s: float
) -> float:
    """The time of a run whose rounds take `rounds_s`, if a ReduceScatter or AllGather of the whole vector takes
    `inside_s` and each of them `alpha_s` besides. Those inside run one after another, as the executor issues them."""
    needed, last = _uses(rounds, segments)
    each_s = [inside_s * (end - begin) / segments[-1] + alpha_s for begin, end in pairwise((0, *segments))]
    inner_s = now_s = 0.0
    reduced_s: list[float] = []
    gathered = 0
    for number, (segment, seconds) in enumerate(zip(needed, rounds_s, strict=True)):
        for one_s in each_s[len(reduced_s) : segment + 1 + AHEAD]:
            inner_s += one_s
            reduced_s.append(inner_s)
        now_s = max(now_s, reduced_s[segment]) + seconds
        while gathered < len(segments) and last[gathered] <= number:
            inner_s = max(inner_s, now_s) + each_s[gathered]
            gathered += 1
    return inner_s


def _uses(rounds: Rounds, segments: Segments) -> tuple[list[int], list[int]]:
    """By round, the last segment that it touches on any rank or that an earlier one touched; by segment, the last round
    that touches it or an earlier one."""
    needed, last = [0] * rounds.nrounds, [0] * len(segments)
    for program in rounds.programs:
        for op in program:
            segment = bisect_right(segments, op.begin)
            needed[op.round] = max(needed[op.round], segment)
            last[segment] = max(last[segment], op.round)
    return list(accumulate(needed, max)), list(accumulate(last, max))


def _is_fine(rounds: Rounds) -> bool:
    """Whether every operation has one chunk."""
    return all(op.end == op.begin + 1 for program in rounds.programs for op in program)


def _first_uses(rounds: Rounds) -> dict[int, int]:
    """By chunk, the first round that touches it on some rank."""
    first: dict[int, int] = {}
    for program in rounds.programs:
        for op in program:
            first[op.begin] = min(first.get(op.begin, op.round), op.round)
    return first
