"""A Chakra trace on hosts as they are: how long all ranks take, with our schedules for its collectives.

A schedule of ours is simulated message by message (`planning.simulate`), for the size that it was written for.

Of any other trace the graph of nodes is run: a rank computes one node at a time, for as long as the trace says; a
message takes its bytes over the rate between its hosts; a collective begins when the last of its ranks has come to it,
and takes what `network` says of its hosts. What overlaps does not share bandwidth.

Rank r is GPU r of the topology. A collective belongs to the process group in its attribute ``pg_name``, by default to
all ranks; the k-th of a group on one rank meets the k-th on the others.
"""

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra_format as form
from r2ccl_core.jobs.chakra import SCHEDULE, Node, Trace, schedule_of, size_of
from r2ccl_core.jobs.network import Network
from r2ccl_core.planning.simulate import simulate

SIMULATED = ("all_reduce", "reduce", "all_gather", "broadcast", "alltoall", "reduce_scatter")
AS_ANOTHER = {"reduce_scatter_block": "reduce_scatter"}
BARRIER_BYTES = 8
"""A barrier is an AllReduce of so much."""
GROUP = "pg_name"

Place = tuple[int, int]
"""Rank and number of a node."""
Meeting = tuple[str, int]
"""Process group, and which of its collectives."""
Message = tuple[int, int, int]
"""Source, destination, tag."""


@dataclass(frozen=True)
class Replayed:
    """Seconds until the last node is done, and what the rank that computes most computes."""

    seconds: float
    compute_s: float


def replay(traces: Sequence[Trace], network: Network) -> Replayed:
    """Runs all ranks' traces.

    Raises `UsageError` with file and node for what cannot be simulated, and for collectives that ranks disagree on.
    """
    topology = network.topology
    if len(traces) != topology.nranks:
        raise UsageError(
            f"{traces[0].path}: a trace of {len(traces)} rank{'s' * (len(traces) > 1)}; the hosts have "
            f"{topology.nranks} GPUs"
        )
    if SCHEDULE in traces[0].about:
        timing = simulate(schedule_of(traces), topology, size_of(traces), alpha_s=network.alpha_s)
        return Replayed(timing.seconds, 0.0)
    return _Replay(traces, network).run()


@dataclass
class _Rank:
    """What a rank waits for, and the computations that are ready."""

    nodes: dict[int, Node]
    waits: dict[int, int]
    followers: dict[int, list[int]]
    ready: list[int] = field(default_factory=list)
    computes: bool = False
    computed_s: float = 0.0


@dataclass
class _Meeting:
    """A collective: the nodes of those that have come to it."""

    name: str
    size_bytes: int
    members: frozenset[int]
    came: list[Place] = field(default_factory=list)


class _Replay:
    def __init__(self, traces: Sequence[Trace], network: Network) -> None:
        self._traces, self._network = traces, network
        self._host_of = network.topology.host_of_rank
        self._ranks = [_rank(trace) for trace in traces]
        self._meeting_of: dict[Place, Meeting] = {}
        self._meetings = self._meet()
        self._arrived: dict[Message, list[float]] = defaultdict(list)
        self._receivers: dict[Message, list[Place]] = defaultdict(list)
        self._ends: list[tuple[float, Place]] = []
        self._now_s = 0.0

    def run(self) -> Replayed:
        for rank, state in enumerate(self._ranks):
            for number in [one for one, left in state.waits.items() if not left]:
                self._begin(rank, number)
        while self._ends:
            self._now_s, (rank, number) = heapq.heappop(self._ends)
            self._done(rank, number)
        for trace, state in zip(self._traces, self._ranks, strict=True):
            if state.waits:
                raise UsageError(f"{trace.path}: node {min(state.waits)}: waits for other ranks for ever")
        return Replayed(self._now_s, max(state.computed_s for state in self._ranks))

    def _begin(self, rank: int, number: int) -> None:
        """All that the node waits for is done."""
        node = self._ranks[rank].nodes[number]
        if node.kind == form.SEND:
            self._send(rank, node)
        elif node.kind == form.RECEIVE:
            self._receive(rank, node)
        elif node.kind == form.COLLECTIVE:
            self._come(rank, number)
        else:
            heapq.heappush(self._ranks[rank].ready, number)
            self._compute(rank)

    def _compute(self, rank: int) -> None:
        state = self._ranks[rank]
        if state.computes or not state.ready:
            return
        node = state.nodes[heapq.heappop(state.ready)]
        state.computes = True
        state.computed_s += node.duration_us / 1e6
        self._end(node.duration_us / 1e6, (rank, node.number))

    def _send(self, rank: int, node: Node) -> None:
        target = node.attributes["comm_dst"]
        seconds = self._message_s(self._host_of[rank], self._host_of[target], node.attributes["comm_size"])
        self._end(seconds, (rank, node.number))
        key = rank, target, node.attributes["comm_tag"]
        if self._receivers[key]:
            self._end(seconds, self._receivers[key].pop(0))
        else:
            self._arrived[key].append(self._now_s + seconds)

    def _receive(self, rank: int, node: Node) -> None:
        key = node.attributes["comm_src"], rank, node.attributes["comm_tag"]
        if self._arrived[key]:
            self._end(max(0.0, self._arrived[key].pop(0) - self._now_s), (rank, node.number))
        else:
            self._receivers[key].append((rank, node.number))

    def _message_s(self, source: int, target: int, size_bytes: int) -> float:
        if source == target:
            return size_bytes / self._network.topology.hosts[source].inner_rate_bytes_s
        return self._network.point_to_point_s(source, target, size_bytes)

    def _come(self, rank: int, number: int) -> None:
        meeting = self._meetings[self._meeting_of[rank, number]]
        meeting.came.append((rank, number))
        if len(meeting.came) == len(meeting.members):
            seconds = self._collective_s(meeting)
            for place in meeting.came:
                self._end(seconds, place)

    def _collective_s(self, meeting: _Meeting) -> float:
        """Inside the hosts over NVLink, then between them; an AllToAll's vector holds the blocks of all pairs."""
        hosts = sorted({self._host_of[rank] for rank in meeting.members})
        members = -(-len(meeting.members) // len(hosts))
        inner_s = self._network.inner_s(meeting.name, members, meeting.size_bytes) if members > 1 else 0.0
        blocks = members * len(hosts) if meeting.name == "alltoall" else 1
        return inner_s + self._network.seconds(meeting.name, hosts, meeting.size_bytes * blocks)

    def _end(self, after_s: float, place: Place) -> None:
        heapq.heappush(self._ends, (self._now_s + after_s, place))

    def _done(self, rank: int, number: int) -> None:
        state = self._ranks[rank]
        del state.waits[number]
        if state.nodes[number].kind not in (form.SEND, form.RECEIVE, form.COLLECTIVE):
            state.computes = False
        for other in state.followers[number]:
            state.waits[other] -= 1
            if not state.waits[other]:
                self._begin(rank, other)
        self._compute(rank)

    def _meet(self) -> dict[Meeting, _Meeting]:
        """Every collective of every group, with the ranks that have it."""
        members: dict[str, set[int]] = defaultdict(set)
        found: dict[Meeting, list[tuple[int, Node]]] = defaultdict(list)
        for rank, trace in enumerate(self._traces):
            counts: dict[str, int] = defaultdict(int)
            for node in trace.nodes:
                if node.kind != form.COLLECTIVE:
                    continue
                group = str(node.attributes.get(GROUP, ""))
                members[group].add(rank)
                found[group, counts[group]].append((rank, node))
                self._meeting_of[rank, node.number] = group, counts[group]
                counts[group] += 1
        return {key: self._agreed(ranks, frozenset(members[key[0]])) for key, ranks in found.items()}

    def _agreed(self, ranks: list[tuple[int, Node]], members: frozenset[int]) -> _Meeting:
        first_rank, first = ranks[0]
        name, size = self._told(first_rank, first)
        for rank, node in ranks[1:]:
            if self._told(rank, node) != (name, size):
                other, other_size = self._told(rank, node)
                raise UsageError(
                    f"{self._traces[rank].path}: node {node.number}: {other} of {other_size} bytes, where rank "
                    f"{first_rank} has {name} of {size} in node {first.number}"
                )
        if len(ranks) < len(members):
            absent = min(members - {rank for rank, _ in ranks})
            raise UsageError(
                f"{self._traces[first_rank].path}: node {first.number}: rank {absent} is of this process group and "
                "has fewer collectives"
            )
        return _Meeting(name, size, members)

    def _told(self, rank: int, node: Node) -> tuple[str, int]:
        """Our name of the collective, and its bytes."""
        name = form.COLLECTIVES[node.attributes["comm_type"]]
        name = AS_ANOTHER.get(name, name)
        if name == "barrier":
            return "all_reduce", BARRIER_BYTES
        if name not in SIMULATED:
            raise UsageError(
                f"{self._traces[rank].path}: node {node.number}: {name} is not simulated; {', '.join(SIMULATED)} are"
            )
        return name, node.attributes["comm_size"]


def _rank(trace: Trace) -> _Rank:
    followers: dict[int, list[int]] = defaultdict(list)
    for node in trace.nodes:
        for other in node.waits:
            followers[other].append(node.number)
    return _Rank(
        {node.number: node for node in trace.nodes}, {node.number: len(node.waits) for node in trace.nodes}, followers
    )
