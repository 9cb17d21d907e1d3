"""From messages with nominal times to lanes of steps: the common back end of the irregular algorithms.

An algorithm says which message would leave and arrive when if every message took one unit of time. Each
rank's lane then simply follows these times. No clock is read at run time: the times only fix the order
of the steps, and since arrivals come after departures the order is the same total order everywhere, so
a few buffers per connection are enough to never deadlock (`verify` proves it for each schedule).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from r2ccl_core.schedule import NOBODY, STEP, Lane, Program, Schedule

Ints = npt.NDArray[np.signedinteger]


@dataclass(frozen=True)
class Messages:
    """Messages as columns of equal length.

    ``leave`` and ``arrive`` are nominal times; ``tie`` orders what happens at one rank at one time.
    On one connection of one lane, the order by (leave, tie) must equal the order by (arrive, tie).
    """

    leave: Ints
    arrive: Ints
    tie: Ints
    lane: Ints
    source: Ints
    destination: Ints
    begin: Ints
    end: Ints
    reduce: Ints

    @classmethod
    def join(cls, parts: list["Messages"]) -> "Messages":
        """The messages of all parts."""
        names = cls.__dataclass_fields__
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def compile_schedule(
    name: str,
    collective: str,
    nranks: int,
    nchunks: int,
    nlanes: int,
    messages: Messages,
    *,
    root: int = 0,
    abreast: tuple[int, ...] = (),
) -> Schedule:
    """The schedule in which every rank acts in the order of the nominal times.

    A receive directly followed by the send of the same chunks becomes one step (receive-send).
    """
    m = messages
    count = len(m.source)
    peers = np.full(count, NOBODY, dtype=np.int32)
    rank = np.concatenate([m.destination, m.source])
    lanes = np.concatenate([m.lane, m.lane])
    when = np.concatenate([m.arrive, m.leave])
    tie = np.concatenate([m.tie, m.tie])
    sends = np.repeat(np.array([0, 1], dtype=np.int8), count)
    order = np.lexsort((sends, tie, when, lanes, rank))
    steps = np.zeros(2 * count, dtype=STEP)
    steps["recv"] = np.concatenate([m.source, peers])
    steps["send"] = np.concatenate([peers, m.destination])
    steps["begin"] = np.concatenate([m.begin, m.begin])
    steps["end"] = np.concatenate([m.end, m.end])
    steps["reduce"] = np.concatenate([m.reduce, np.zeros(count, dtype=np.int32)])
    steps, owner = _fused(steps[order], (rank * nlanes + lanes)[order])
    edges = np.searchsorted(owner, np.arange(nranks * nlanes + 1))
    return Schedule(name, collective, nranks, nchunks, _programs(steps, edges, nranks, nlanes), root, abreast)


def _programs(steps: Lane, edges: Ints, nranks: int, nlanes: int) -> tuple[Program, ...]:
    return tuple(
        tuple(steps[edges[r * nlanes + i] : edges[r * nlanes + i + 1]] for i in range(nlanes)) for r in range(nranks)
    )


def _fused(steps: Lane, owner: Ints) -> tuple[Lane, Ints]:
    """Joins each receive with the send right after it, if both name the same chunks."""
    if len(steps) < 2:
        return steps, owner
    first, second = steps[:-1], steps[1:]
    joins = (
        (first["recv"] != NOBODY)
        & (second["send"] != NOBODY)
        & (first["begin"] == second["begin"])
        & (first["end"] == second["end"])
        & (owner[:-1] == owner[1:])
    )
    heads = np.flatnonzero(joins)
    steps = steps.copy()
    steps["send"][heads] = steps["send"][heads + 1]
    keep = np.ones(len(steps), dtype=bool)
    keep[heads + 1] = False
    return steps[keep], owner[keep]


def messages(
    *,
    leave: Ints,
    arrive: Ints,
    lane: int | Ints,
    source: Ints,
    destination: Ints,
    chunk: Ints,
    reduce: int,
    tie: int | Ints = 0,
) -> Messages:
    """`Messages` of one chunk each; single numbers hold for all of them."""
    whole = np.zeros_like(leave)
    return Messages(leave, arrive, whole + tie, whole + lane, source, destination, chunk, chunk + 1, whole + reduce)
