"""Times a schedule on a topology: an event-driven simulation of lanes, FIFO connections and fair ports.

The model is in ``native/simulate/simulator.h``; this file turns a `Topology` into ports and names the results. The
simulated schedule is the one that the runtime executes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from r2ccl_core import native
from r2ccl_core.errors import ScheduleError
from r2ccl_core.model.schedule import STEP, Schedule, chunk_offsets
from r2ccl_core.model.topology import Topology

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

UNEVEN = 1e-3
"""No two ports are quite alike. Ports that are may keep a dense schedule in step, 3 to 5 % faster than where they
differ by 1e-6, 1e-4, this or ten times this (32 hosts, 16 trees, 20 us a message)."""


@dataclass(frozen=True)
class Change:
    """From ``at_s`` on the network is ``topology`` (same hosts and ranks)."""

    at_s: float
    topology: Topology


@dataclass(frozen=True)
class Loop:
    """Steps that each lane runs again and again, ``rounds`` times at most: those from ``begin`` to ``end``, which count
    the steps of all lanes, rank by rank.

    ``enough`` is called after each round with the mean time at which lanes were done with it. Once it is true, rounds
    end that no lane has begun.
    """

    begin: Places
    end: Places
    rounds: int
    enough: Callable[[float], bool] | None = None


@dataclass(frozen=True)
class Link:
    """What one rank sent another, over all lanes; ``busy_s`` is summed over lanes."""

    source: int
    destination: int
    messages: int
    size_bytes: int
    busy_s: float


@dataclass(frozen=True)
class Timing:
    """Result of a simulation: seconds of the whole collective, and use of every link. So many ``rounds`` of a `Loop`
    were run."""

    seconds: float
    links: tuple[Link, ...]
    rounds: int = 1

    def received_bytes(self, rank: int) -> int:
        """Bytes that ``rank`` received from other ranks."""
        return sum(link.size_bytes for link in self.links if link.destination == rank)

    def sent_bytes(self, rank: int) -> int:
        """Bytes that ``rank`` sent to other ranks."""
        return sum(link.size_bytes for link in self.links if link.source == rank)


def simulate(
    schedule: Schedule,
    topology: Topology,
    size_bytes: int,
    *,
    alpha_s: float = 0.0,
    inner_alpha_s: float = 0.0,
    slots: int = 4,
    changes: Sequence[Change] = (),
    tolerance: float = 0.0,
    seed: int | None = None,
    loop: Loop | None = None,
) -> Timing:
    """Runs ``schedule`` for a vector of ``size_bytes`` on ``topology``, which may change during the run.

    ``alpha_s`` delays each message on its connection; a sender may be ``slots`` messages ahead of its
    receiver. Raises `ScheduleError` if the schedule does not fit the topology or can never finish. With a
    ``tolerance``, a port's flows may need that part more or less than it has before they are shared out anew: dense
    patterns are simulated many times as fast. With a ``seed``, ports of equal rates differ by `UNEVEN`, as it says.
    """
    if schedule.nranks != topology.nranks:
        raise ScheduleError(f"{schedule.name} is for {schedule.nranks} ranks, the topology has {topology.nranks}")
    epochs = [Change(0.0, topology), *sorted(changes, key=lambda change: change.at_s)]
    paired = any(_has_narrow_pairs(epoch.topology) for epoch in epochs)
    lanes = [steps_ for program in schedule.programs for steps_ in program]
    lane_begin = np.cumsum([0, *map(len, lanes)], dtype=np.int64)
    flat = np.concatenate(lanes) if lanes else np.zeros(0, dtype=STEP)
    seconds, rounds, stalled, table = native.load().simulate(
        nhosts=topology.nhosts,
        host_of_rank=np.array(topology.host_of_rank, dtype=np.int32),
        nlanes=schedule.nlanes,
        steps=np.ascontiguousarray(flat).view(np.int32),
        lane_begin=lane_begin,
        chunk_offset=chunk_offsets(schedule.nchunks, size_bytes),
        epoch_start_s=np.array([epoch.at_s for epoch in epochs]),
        capacities=np.array([_ports(epoch.topology, paired) for epoch in epochs]) * _unevenness(seed, topology, paired),
        paired=paired,
        latency_s=alpha_s,
        inner_latency_s=inner_alpha_s,
        slots=slots,
        tolerance=tolerance,
        loops=np.concatenate([loop.begin, loop.end]) if loop else np.zeros(0, dtype=np.int64),
        rounds=loop.rounds if loop else 1,
        enough=loop.enough if loop else None,
    )
    if stalled:
        raise ScheduleError(f"{schedule.name}: {stalled}")
    return Timing(seconds, _links(table), rounds)


def looped_steps(few: Schedule, more: Schedule) -> tuple[Places, Places]:
    """Where the steps that ``few`` lacks begin and end in each lane of ``more``.

    A `Loop` over them makes schedules of any length, if more of the same only adds such steps in one place.
    """
    short, long = ([lane_ for program in one.programs for lane_ in program] for one in (few, more))
    counts, longer = (np.array([len(lane_) for lane_ in lanes], dtype=np.int64) for lanes in (short, long))
    firsts, longer_firsts = np.cumsum(counts) - counts, np.cumsum(longer) - longer
    owner = np.repeat(np.arange(len(counts)), counts)
    place = np.arange(len(owner)) - firsts[owner]
    steps, others = np.concatenate(short), np.concatenate(long)[longer_firsts[owner] + place]
    differ = np.flatnonzero((steps["recv"] != others["recv"]) | (steps["send"] != others["send"]))
    alike = counts.copy()
    np.minimum.at(alike, owner[differ], place[differ])
    return longer_firsts + alike, longer_firsts + alike + longer - counts


def _unevenness(seed: int | None, topology: Topology, paired: bool) -> Floats:
    """What the rates of all ports are multiplied by."""
    ports = np.ones(len(_ports(topology, paired)))
    return ports if seed is None else ports + UNEVEN * np.random.default_rng(seed).uniform(-1, 1, len(ports))


def _has_narrow_pairs(topology: Topology) -> bool:
    """Whether two hosts share rails for less than both could do: only then pairs need ports of their own."""
    if not topology.isolated_rails:
        return False
    kinds = dict.fromkeys(topology.hosts)
    pairs = (Topology(pair, topology.isolated_rails) for pair in combinations(kinds, 2))
    return any(pair.pair_rate_bytes_s(0, 1) < min(pair.rates_bytes_s) * (1 - 1e-12) for pair in pairs)


def _ports(topology: Topology, paired: bool) -> Floats:
    """Capacities in the order that simulator.h numbers the ports."""
    rates = np.array(topology.rates_bytes_s)
    inner = np.array([topology.hosts[host].inner_rate_bytes_s for host in topology.host_of_rank])
    ports = [rates, rates, inner, inner]
    if paired:
        hosts = range(topology.nhosts)
        ports.append(np.array([topology.pair_rate_bytes_s(a, b) for a in hosts for b in hosts]))
    return np.concatenate(ports)


def _links(table: Floats) -> tuple[Link, ...]:
    """Lanes of one pair of ranks together, ordered by source and destination."""
    if not len(table):
        return ()
    pairs, where = np.unique(table[:, :2], axis=0, return_inverse=True)
    sums = [np.bincount(where.ravel(), weights=table[:, column]) for column in (3, 4, 5)]
    return tuple(
        Link(int(source), int(destination), int(messages), int(size), float(busy))
        for (source, destination), messages, size, busy in zip(pairs, *sums, strict=True)
    )
