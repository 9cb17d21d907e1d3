"""OptCC: AllReduce with one straggler, whose every element is sent once and received once.

After arXiv 2606.01680. The h = p-1 healthy hosts form a ring and own one section each of every segment;
segments alternate between four patterns of four stages

    S1 ring reduce-scatter among the healthy      S2 owner -> straggler
    S3 straggler -> healthy                       S4 ring all-gather among the healthy

    A, C:  S1 S2 S3 S4    the straggler adds its own section to the healthy sum and returns the result
    B, D:  S3 S1 S4 S2    the straggler's raw section enters at the ring's first hop; it gets the result

A body is the time in which the straggler moves one segment one way. In each body it sends one segment and
receives one, and the ring runs two stages; every dependency crosses a body's boundary. With l = 1/b of
the straggler the time is ``(k+1)/k max(l, (2p-3)/(p-1))`` in units of n/B, for k segments.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules.timed import Ints, Messages, compile_schedule, messages


@dataclass(frozen=True)
class Pattern:
    """In which body, counted from the composite's first, each stage of a segment runs."""

    gather: int  # S1
    to_straggler: int  # S2
    from_straggler: int  # S3
    spread: int  # S4
    ring_turn: tuple[int, int]  # which of a body's two ring places S1 and S4 take
    raw: bool  # S3 carries the straggler's raw section (B, D), not the result (A, C)


PATTERNS = (
    Pattern(0, 1, 2, 3, (0, 0), raw=False),
    Pattern(1, 3, 0, 2, (0, 0), raw=True),
    Pattern(1, 2, 3, 4, (1, 1), raw=False),
    Pattern(2, 4, 1, 3, (1, 1), raw=True),
)


def all_reduce(shares: Sequence[float], *, segments: int = 64, straggler: int | None = None) -> Schedule:
    """OptCC for the slowest host (or ``straggler``); ``segments`` is k, best a multiple of four."""
    p = len(shares)
    if p < 3 or segments < 1:
        raise UsageError("OptCC needs three hosts or more and one segment or more")
    slow = min(range(p), key=lambda v: shares[v]) if straggler is None else straggler
    ring = np.array([v for v in range(p) if v != slow])
    parts = [part for index in range(segments) for part in _segment(ring, slow, index)]
    return compile_schedule("optcc", "all_reduce", p, segments * (p - 1), 1, Messages.join(parts))


def _segment(ring: Ints, slow: int, index: int) -> list[Messages]:
    pattern = PATTERNS[index % 4]
    first = index - index % 4
    h = len(ring)
    body = 4 * h  # nominal units: a hop of either ring stage and one straggler message every 4
    chunk = index * h
    return [
        _ring_stage(ring, (first + pattern.gather) * body + 2 * pattern.ring_turn[0], 1, chunk, 1),
        _ring_stage(ring, (first + pattern.spread) * body + 2 * pattern.ring_turn[1], 0, chunk, 0),
        _to_straggler(ring, slow, (first + pattern.to_straggler) * body, chunk, not pattern.raw),
        _from_straggler(ring, slow, (first + pattern.from_straggler) * body, chunk, pattern.raw),
    ]


def _ring_stage(ring: Ints, start: int, shift: int, chunk: int, reduce: int) -> Messages:
    h = len(ring)
    owner, hop = (axis.ravel() for axis in np.indices((h, h - 1)))
    leave = start + 4 * hop
    source, destination = ring[(owner + shift + hop) % h], ring[(owner + shift + hop + 1) % h]
    return messages(
        leave=leave,
        arrive=leave + 1,
        lane=0,
        source=source,
        destination=destination,
        chunk=chunk + owner,
        reduce=reduce,
    )


def _to_straggler(ring: Ints, slow: int, start: int, chunk: int, add: bool) -> Messages:
    owner = np.arange(len(ring))
    leave = start + 4 * owner + 1
    return messages(
        leave=leave,
        arrive=leave + 3,
        lane=0,
        source=ring,
        destination=np.full_like(ring, slow),
        chunk=chunk + owner,
        reduce=int(add),
    )


def _from_straggler(ring: Ints, slow: int, start: int, chunk: int, raw: bool) -> Messages:
    """Raw sections go to where the ring begins, finished ones to the owner."""
    owner = np.arange(len(ring))
    leave = start + 4 * owner + 1
    return messages(
        leave=leave,
        arrive=np.full_like(leave, start + 4 * len(ring) - 1),
        lane=0,
        source=np.full_like(ring, slow),
        destination=np.roll(ring, -1) if raw else ring,
        chunk=chunk + owner,
        reduce=int(raw),
        tie=owner,
    )
