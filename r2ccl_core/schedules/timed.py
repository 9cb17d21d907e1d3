"""Turns messages with nominal times into lanes of steps: the common back end of the irregular algorithms.

An algorithm says when each message would leave and arrive if every message took one unit of time. Each rank's lane then
simply follows these times. No clock is read at run time: the times only determine the order of the steps. Since
arrivals come after departures, the order is the same total order everywhere, so a few buffers per connection are enough
to avoid deadlock (`verify` proves this for each schedule).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from r2ccl_core.model.schedule import NOBODY, STEP, Lane, Program, Schedule

Ints = npt.NDArray[np.signedinteger]
Rows = npt.NDArray[np.int32]
"""One step per row: the columns of `STEP`."""


@dataclass(frozen=True)
class Messages:
    """Messages as columns of equal length.

    ``leave`` and ``arrive`` are nominal times; ``tie`` orders the events of one rank at one time. On one connection of
    one lane, the order by (leave, tie) must equal the order by (arrive, tie).
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

    def narrow(self) -> "Messages":
        """The same with 32 bits per value: half the memory, which limits the size of a schedule."""
        columns = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return Messages(**{name: column.astype(np.int32, copy=False) for name, column in columns})


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
    rows, owner = _fused(*_in_order(messages, nlanes))
    steps = rows.view(STEP).ravel()
    edges = np.searchsorted(owner, np.arange(nranks * nlanes + 1))
    return Schedule(name, collective, nranks, nchunks, _programs(steps, edges, nranks, nlanes), root, abreast)


def _in_order(m: Messages, nlanes: int) -> tuple[Rows, Ints]:
    """Every receive and every send as a row of `STEP`, by lane and nominal time, and the lane of each."""
    count = len(m.source)
    rows = np.empty((2 * count, len(STEP.names or ())), dtype=np.int32)
    receives, sends = rows[:count].T, rows[count:].T
    receives[:] = m.source, np.broadcast_to(NOBODY, count), m.begin, m.end, m.reduce
    sends[:] = np.broadcast_to(NOBODY, count), m.destination, m.begin, m.end, np.broadcast_to(0, count)
    owner = np.concatenate([m.destination, m.source]).astype(np.int64) * nlanes
    owner += np.concatenate([m.lane, m.lane])
    order = _order(owner, np.concatenate([m.arrive, m.leave]), np.concatenate([m.tie, m.tie]), count)
    return np.take(rows, order, axis=0), np.take(owner, order)


def _order(owner: Ints, when: Ints, tie: Ints, receives: int) -> Ints:
    """By lane, time and tie; if all three are equal, receives, which come first in the arrays, before sends."""
    when, tie = (column.astype(np.int64) - column.min(initial=0) for column in (when, tie))
    times, ties = int(when.max(initial=0)) + 1, int(tie.max(initial=0)) + 1
    if (int(owner.max(initial=0)) + 1) * times * ties * 2 >= 1 << 63:  # as one number they would not fit
        return np.lexsort((np.arange(len(owner)) >= receives, tie, when, owner))
    key = ((owner * times + when) * ties + tie) * 2
    key[receives:] += 1
    return np.argsort(key, kind="stable")


def _programs(steps: Lane, edges: Ints, nranks: int, nlanes: int) -> tuple[Program, ...]:
    return tuple(
        tuple(steps[edges[r * nlanes + i] : edges[r * nlanes + i + 1]] for i in range(nlanes)) for r in range(nranks)
    )


def _fused(rows: Rows, owner: Ints) -> tuple[Rows, Ints]:
    """Joins each receive with the send right after it, if both name the same chunks; changes `rows`."""
    recv, send, begin, end, _ = rows.T
    joins = recv[:-1] != NOBODY
    for column in (begin, end, owner):
        joins &= column[:-1] == column[1:]
    joins &= send[1:] != NOBODY
    heads = np.flatnonzero(joins)
    send[heads] = send[heads + 1]
    keep = np.ones(len(rows), dtype=bool)
    keep[heads + 1] = False
    kept = np.flatnonzero(keep)
    return np.take(rows, kept, axis=0), np.take(owner, kept)


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
    made = Messages(leave, arrive, whole + tie, whole + lane, source, destination, chunk, chunk + 1, whole + reduce)
    return made.narrow()
