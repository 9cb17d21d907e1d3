"""OptCC: AllReduce with one straggler, whose every element is sent once and received once.

After arXiv 2606.01680. The h = p-1 healthy hosts form a ring and own one section each of every segment;
segments alternate between four patterns of four stages

    S1 ring reduce-scatter among the healthy      S2 owner -> straggler
    S3 straggler -> healthy                       S4 ring all-gather among the healthy

    A, C:  S1 S2 S3 S4    the straggler adds its own section to the healthy sum and returns the result
    B, D:  S3 S1 S4 S2    the straggler's raw section enters at the ring's first hop; it gets the result

A body is the time in which the straggler moves one segment one way. In each body it sends one segment and
receives one, and the ring runs two stages; every dependency crosses a body's boundary. With l = 1/b of
the straggler the time is ``(k+1)/k max(l, (2p-3)/(p-1))`` in units of n/B, for k segments. A segment may be
carried in `slices`, each with the four stages of its segment's pattern; k is then segments times slices.

The healthy ports are busy all but 1/(2h) of the time, so the order in which the straggler turns to the
owners matters: a turn that travels with the ring's hops delays the same message again and again, up to
twice the time. `_turns` and the offsets below were searched for by simulation, for odd and even h.

They were searched for l >= 2, where the straggler sets the pace and the time is met within 1.5 % from p = 8 on. A
straggler that lost less leaves the pace to the healthy ring, and there fair sharing costs 1 to 15 % more than the
formula (most for p = 4, least for many hosts): whenever an owner also talks to the straggler, its hop of the ring gets
two thirds of the port, and a ring waits for its slowest hop. Independent reference points for l < 2 are lower, as they
stem from ports that serve one whole section after the other. Two lanes instead of one help for p = 4 alone. The planner
knows it, and takes a forest there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules.algorithm import Algorithm, Parameters, Prediction, Problem, Shares, segmented
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


@dataclass(frozen=True)
class Clock:
    """Nominal times within a body of 4h units, a hop of both ring stages taking 4."""

    hop_arrives: int
    turn_to: int  # offset of an owner's message to the straggler in its turn
    turn_from: int
    body_margin: int  # the straggler's messages are taken up so long before their body ends


ODD, EVEN = Clock(3, -1, 1, 2), Clock(4, -1, 1, 1)
TO_STRAGGLER_ARRIVES = 15


def all_reduce(
    shares: Sequence[float], *, segments: int = 64, slices: int = 2, straggler: int | None = None
) -> Schedule:
    """OptCC for the slowest host (or ``straggler``); ``segments`` is best a multiple of four."""
    p, bodies = len(shares), segments * slices
    if p < 3 or bodies < 1:
        raise UsageError("OptCC needs three hosts or more, one segment and one slice or more")
    slow = min(range(p), key=lambda v: shares[v]) if straggler is None else straggler
    ring = np.array([v for v in range(p) if v != slow])
    parts = [part for index in range(bodies) for part in _segment(ring, slow, index)]
    return compile_schedule("optcc", "all_reduce", p, bodies * (p - 1), 1, Messages.join(parts))


def _turns(h: int) -> Ints:
    """The turn in which owner j sends to the straggler: from every second host back, where h allows."""
    owner = np.arange(h)
    if h % 2 == 0 or h < 3:
        return (owner + 1) % h
    return owner * pow(-(h // 2) % h, -1, h) % h


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


def _clock(h: int) -> Clock:
    return ODD if h % 2 else EVEN


def _ring_stage(ring: Ints, start: int, shift: int, chunk: int, reduce: int) -> Messages:
    h = len(ring)
    owner, hop = (axis.ravel() for axis in np.indices((h, h - 1)))
    leave = start + 4 * hop
    source, destination = ring[(owner + shift + hop) % h], ring[(owner + shift + hop + 1) % h]
    return messages(
        leave=leave,
        arrive=leave + _clock(h).hop_arrives,
        lane=0,
        source=source,
        destination=destination,
        chunk=chunk + owner,
        reduce=reduce,
    )


def _to_straggler(ring: Ints, slow: int, start: int, chunk: int, add: bool) -> Messages:
    h = len(ring)
    owner = np.arange(h)
    leave = start + 4 * _turns(h) + _clock(h).turn_to
    answered = start + 4 * h + 4 * owner + _clock(h).turn_from  # S3 of A and C, one body later
    return messages(
        leave=leave,
        arrive=np.minimum(leave + TO_STRAGGLER_ARRIVES, answered),
        lane=0,
        source=ring,
        destination=np.full_like(ring, slow),
        chunk=chunk + owner,
        reduce=int(add),
    )


def _from_straggler(ring: Ints, slow: int, start: int, chunk: int, raw: bool) -> Messages:
    """Raw sections go to where the ring begins, finished ones to the owner."""
    h = len(ring)
    owner = np.arange(h)
    leave = start + 4 * owner + _clock(h).turn_from
    return messages(
        leave=leave,
        arrive=np.full_like(leave, start + 4 * h - _clock(h).body_margin),
        lane=0,
        source=np.full_like(ring, slow),
        destination=np.roll(ring, -1) if raw else ring,
        chunk=chunk + owner,
        reduce=int(raw),
        tie=owner,
    )


def _predict(problem: Problem) -> Prediction | None:
    p = problem.hosts
    if p < 3 or problem.stragglers != 1:
        return None
    fluid = max(1 / problem.slowest, (2 * p - 3) / (p - 1))
    seconds, parameters = segmented(problem, p - 1, fluid * (1.1 if problem.slowest > 0.5 else 1.05))
    count = parameters["segments"]
    return seconds, {"segments": count - count % 4 if count >= 4 else count}  # whole composites of four patterns


def _build(shares: Shares, parameters: Parameters) -> Schedule:
    return all_reduce(shares, slices=1, **parameters)


def _on_gpu(problem: Problem) -> Schedule | None:
    if problem.stragglers != 1:
        return None
    return _build(problem.shares, {"segments": max(1, min(32, problem.most_chunks // problem.hosts))})


ALGORITHM = Algorithm(
    name="optcc",
    alias="optcc",
    title="OptCC",
    idea="the straggler sends and receives once, four patterns",
    letter="O",
    color="#8C510A",
    predict=_predict,
    build=_build,
    on_gpu=_on_gpu,
)
