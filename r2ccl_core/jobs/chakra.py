"""Writes schedules as Chakra traces, one file per rank, which ASTRA-sim runs in place of its own collectives; reads
them back.

A message is a send node of one rank and a receive node of another, of equal ``comm_size`` and ``comm_tag``.
Dependencies are those of our simulator:

    a step waits for what its lane has received before, its own send also for its own receive
    messages of a connection leave one after the other
    a step that only copies is a computation that takes no time

Chunk ranges, lanes and reductions are attributes of our own, which ASTRA-sim ignores; they make a trace of ours a
schedule again. Its analytical network has one bandwidth per dimension: a lost NIC can be expressed only in ns-3's
topology (`simai.write_topology`), so the trace describes what is sent, not how fast.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2ccl_core.errors import ScheduleError, UsageError
from r2ccl_core.jobs import chakra_format as form
from r2ccl_core.model.schedule import NOBODY, Schedule, chunk_offsets, lane
from r2ccl_core.text_file import is_there

Row = tuple[int, int, int, int, int]

SCHEDULE = "r2ccl_schedule"
"""The attribute of the metadata that marks a trace of ours: the schedule's name."""
SIZE = "size_bytes"
"""That of the vector's size."""


@dataclass(frozen=True)
class Node:
    """One node: its kind (`chakra_format`), its dependencies, and its attributes by name."""

    number: int
    name: str
    kind: int
    waits: tuple[int, ...]
    duration_us: int
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Trace:
    """What one rank does."""

    path: Path
    about: dict[str, Any]
    nodes: tuple[Node, ...]


def write(
    schedule: Schedule, size_bytes: int, folder: Path, stem: str = "", *, begun: Callable[[], None] = lambda: None
) -> list[Path]:
    """Writes ``folder/stem.RANK.et`` for every rank, for a vector of this many bytes; the stem is the schedule's name.

    `begun` is called once the folder is there: the ranks may take minutes.

    Raises `UsageError` if the folder cannot be written, or contains such a trace of more ranks, which would mix with
    this one.
    """
    stem = stem or schedule.name
    if is_there(more := folder / f"{stem}.{schedule.nranks}.et"):
        raise UsageError(f"{more}: belongs to a trace of more than {schedule.nranks} ranks; give another folder")
    paths = [folder / f"{stem}.{rank}.et" for rank in range(schedule.nranks)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        begun()
        for rank, path in enumerate(paths):
            path.write_bytes(form.to_bytes(_Writer(schedule, size_bytes, rank).messages()))
    except OSError as error:
        raise UsageError(f"{error.filename}: cannot be written ({error.strerror}); give another folder") from error
    return paths


def read(stem: Path) -> list[Trace]:
    """The traces ``stem.0.et``, ``stem.1.et`` and so on, checked alone and against each other.

    Raises `UsageError` with file and node for unknown kinds and collectives, nodes that wait for missing nodes or in a
    circle, and messages that only one end knows.
    """
    paths: list[Path] = []
    while is_there(path := stem.with_name(f"{stem.name}.{len(paths)}.et")):
        paths.append(path)
    if not paths:
        raise UsageError(f"{stem}.0.et: does not exist; give a trace's name without the rank, as {stem.name}")
    if more := [path for path in stem.parent.iterdir() if _rank(path, stem.name) > len(paths)]:
        raise UsageError(f"{stem}.{len(paths)}.et: does not exist, but {more[0].name} does; a rank's file is missing")
    traces = [read_one(path) for path in paths]
    _check_pairs(traces)
    return traces


def _rank(path: Path, name: str) -> int:
    """The rank in a file's name, NAME.RANK.et; -1 if it is no file of that trace."""
    found = re.fullmatch(re.escape(name) + r"\.([0-9]+)\.et", path.name)
    return int(found[1]) if found else -1


def read_one(path: Path) -> Trace:
    """One rank's trace, checked by itself."""
    head, nodes = form.read(path)
    found: dict[int, Node] = {}
    for one in nodes:
        if one.id in found:
            raise UsageError(f"{path}: node {one.id}: there are two of this number")
        waits = (*one.ctrl_deps, *one.data_deps)
        found[one.id] = Node(one.id, one.name, one.type, waits, one.duration_micros, form.attributes_of(one))
    for node in found.values():
        _check(path, node, found)
    _check_order(path, found)
    return Trace(path, form.attributes_of(head), tuple(found.values()))


def schedule_of(traces: Sequence[Trace]) -> Schedule:
    """The schedule that `write` wrote; raises `UsageError` for other traces."""
    about = traces[0].about
    for trace in traces:
        if SCHEDULE not in trace.about:
            raise UsageError(f"{trace.path}: is not the trace of a schedule of ours: its steps name no chunks")
    try:
        programs = tuple(
            tuple(lane(steps) for steps in _steps(trace, rank, int(about["nlanes"])))
            for rank, trace in enumerate(traces)
        )
        nranks, nchunks, root = (int(about[key]) for key in ("nranks", "nchunks", "root"))
        return Schedule(
            about[SCHEDULE], about["collective"], nranks, nchunks, programs, root, abreast=tuple(about["abreast"])
        )
    except (KeyError, TypeError, ValueError, IndexError, ScheduleError) as error:
        raise UsageError(f"{traces[0].path}: the attributes of its schedule are damaged ({error})") from error


def size_of(traces: Sequence[Trace]) -> int:
    """The bytes of the vector for which `write` wrote them."""
    size = traces[0].about.get(SIZE)
    if not isinstance(size, int) or size < 0:
        raise UsageError(f"{traces[0].path}: {SIZE} of its vector is {size!r}, not a count; write the trace again")
    return size


@dataclass
class _Writer:
    """The nodes of one rank, lane by lane."""

    schedule: Schedule
    size_bytes: int
    rank: int
    nodes: list[Any] = field(default_factory=list)
    last_sent: dict[tuple[int, int], int] = field(default_factory=dict)
    sent: Counter[tuple[str, int, int]] = field(default_factory=Counter)

    def messages(self) -> list[Any]:
        """Metadata and nodes."""
        schedule = self.schedule
        about = {
            SCHEDULE: ("string", schedule.name),
            "collective": ("string", schedule.collective),
            SIZE: ("int64", self.size_bytes),
            **{key: ("int64", getattr(schedule, key)) for key in ("nranks", "nchunks", "nlanes", "root")},
        }
        head = form.metadata(**about)
        head.attr.add(name="abreast").int64_list.values.extend(schedule.abreast)
        head.attr[-1].int64_list.SetInParent()
        offsets = chunk_offsets(schedule.nchunks, self.size_bytes).tolist()
        for index, steps in enumerate(schedule.programs[self.rank]):
            before: list[int] = []  # the lane's latest receive
            for number, (recv, send, begin, end, reduce) in enumerate(steps.tolist()):
                size = offsets[end] - offsets[begin]
                ours = {"lane": ("int32", index), "step": ("int32", number), "reduce": ("bool", bool(reduce))}
                ours |= {"chunk_begin": ("int32", begin), "chunk_end": ("int32", end)}
                if recv != NOBODY:
                    before = [self._message("recv", form.RECEIVE, recv, index, size, before, [], ours)]
                if send != NOBODY:
                    earlier = self.last_sent.get((send, index))
                    waits = [earlier] if earlier is not None else []
                    self.last_sent[send, index] = self._message(
                        "send", form.SEND, send, index, size, waits, before, ours
                    )
                if recv == send == NOBODY:
                    before = [self._node("copy", form.COMPUTE, before, [], ours)]
        return [head, *self.nodes]

    def _message(
        self, way: str, kind: int, peer: int, index: int, size: int, ctrl: list[int], data: list[int], ours: Any
    ) -> int:
        """Tags count the messages of a connection, so that both ends use the same."""
        place = way, peer, index
        tag = index + self.schedule.nlanes * self.sent[place]
        self.sent[place] += 1
        ends = (self.rank, peer) if way == "send" else (peer, self.rank)
        attributes = {
            "comm_size": ("int64", size),
            "comm_src": ("int32", ends[0]),
            "comm_dst": ("int32", ends[1]),
            "comm_tag": ("int32", tag),
        }
        return self._node(f"{way}_{ends[0]}_{ends[1]}_{tag}", kind, ctrl, data, attributes | ours)

    def _node(self, name: str, kind: int, ctrl: list[int], data: list[int], attributes: Any) -> int:
        number = len(self.nodes)
        made = form.node(number, name, kind, ctrl=ctrl, data=data, is_cpu_op=("bool", False), **attributes)
        self.nodes.append(made)
        return number


def _steps(trace: Trace, rank: int, nlanes: int) -> list[list[Row]]:
    """Joins receives and sends into steps again."""
    lanes: list[dict[int, list[Node]]] = [defaultdict(list) for _ in range(nlanes)]
    for node in trace.nodes:
        lanes[node.attributes["lane"]][node.attributes["step"]].append(node)
    return [[_step(steps[number], rank) for number in range(len(steps))] for steps in lanes]


def _step(nodes: list[Node], rank: int) -> Row:
    peers = {form.RECEIVE: NOBODY, form.SEND: NOBODY}
    for node in nodes:
        if node.kind in peers:
            peers[node.kind] = node.attributes["comm_src" if node.kind == form.RECEIVE else "comm_dst"]
            if rank != node.attributes["comm_dst" if node.kind == form.RECEIVE else "comm_src"]:
                raise ValueError(f"node {node.number} is another rank's")
    about = nodes[0].attributes
    return peers[form.RECEIVE], peers[form.SEND], about["chunk_begin"], about["chunk_end"], int(about["reduce"])


def _check(path: Path, node: Node, nodes: dict[int, Node]) -> None:
    where = f"{path}: node {node.number}"
    if not form.METADATA <= node.kind <= form.COLLECTIVE:
        raise UsageError(f"{where}: its type {node.kind} is unknown; computation is 4, send 5, receive 6, collective 7")
    for other in node.waits:
        if other not in nodes:
            raise UsageError(f"{where}: waits for node {other}, which is not there")
    wanted = {
        form.SEND: ("comm_size", "comm_dst", "comm_tag"),
        form.RECEIVE: ("comm_size", "comm_src", "comm_tag"),
        form.COLLECTIVE: ("comm_type", "comm_size"),
    }.get(node.kind, ())
    for key in wanted:
        value = node.attributes.get(key)
        if not isinstance(value, int) or value < 0:
            raise UsageError(f"{where}: {key} is {value!r}, not a count")
    if node.kind == form.COLLECTIVE and node.attributes["comm_type"] >= len(form.COLLECTIVES):
        raise UsageError(f"{where}: the collective {node.attributes['comm_type']} is unknown; they are 0 to 9")


def _check_order(path: Path, nodes: dict[int, Node]) -> None:
    """No node waits for itself, directly or indirectly."""
    left = {number: len(node.waits) for number, node in nodes.items()}
    followers = defaultdict(list)
    for number, node in nodes.items():
        for other in node.waits:
            followers[other].append(number)
    free = [number for number, count in left.items() if not count]
    while free:
        done = free.pop()
        del left[done]
        for number in followers[done]:
            left[number] -= 1
            if not left[number]:
                free.append(number)
    if left:
        circle = _circle(nodes, left)
        raise UsageError(f"{path}: node {circle[0]}: waits for itself, by nodes {', '.join(map(str, circle))}")


def _circle(nodes: dict[int, Node], left: dict[int, int]) -> list[int]:
    """One circle among nodes each of which waits for another of them."""
    way: list[int] = [min(left)]
    while True:
        following = min(other for other in nodes[way[-1]].waits if other in left)
        if following in way:
            return way[way.index(following) :]
        way.append(following)


def _check_pairs(traces: Sequence[Trace]) -> None:
    """Every message has both its ends, and they agree about it."""
    ends: dict[tuple[int, int, int], list[tuple[Trace, Node]]] = defaultdict(list)
    for rank, trace in enumerate(traces):
        for node in trace.nodes:
            if node.kind not in (form.SEND, form.RECEIVE):
                continue
            sends = node.kind == form.SEND
            peer = node.attributes["comm_dst" if sends else "comm_src"]
            if peer >= len(traces) or peer == rank:
                raise UsageError(f"{trace.path}: node {node.number}: its peer is {peer}; there are {len(traces)} ranks")
            pair = (rank, peer) if sends else (peer, rank)
            ends[*pair, node.attributes["comm_tag"]].append((trace, node))
    for (source, target, tag), found in ends.items():
        kinds = Counter(node.kind for _, node in found)
        trace, node = found[0]
        if kinds[form.SEND] != kinds[form.RECEIVE]:
            raise UsageError(
                f"{trace.path}: node {node.number}: rank {source} sends {kinds[form.SEND]} messages of tag {tag} to "
                f"rank {target}, which receives {kinds[form.RECEIVE]}"
            )
        sizes = [sorted(n.attributes["comm_size"] for _, n in found if n.kind == kind) for kind in kinds]
        if sizes[0] != sizes[1]:
            raise UsageError(
                f"{trace.path}: node {node.number}: the two ends tell different sizes, {sizes[0]} and {sizes[1]}"
            )
