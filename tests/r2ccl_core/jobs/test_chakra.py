"""Schedules as Chakra traces and back, and what is wrong with others by file and node."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import chakra, chakra_format
from r2ccl_core.model import schedule_file
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.schedules import all_to_all, broadcast, forest, hierarchical, optcc, r2cc_all_reduce, ring

SHARES = (0.5, 1.0, 1.0, 0.875, 1.0)

SCHEDULES = (
    ring.all_reduce(4, slices=3, lanes=2),
    ring.all_gather(3),
    optcc.all_reduce(SHARES, segments=4),
    r2cc_all_reduce.all_reduce(SHARES, chunks=30),
    forest.all_reduce(SHARES, trees=3, chunks=12),
    hierarchical.all_reduce(ring.all_reduce(2), 2),
    all_to_all.all_to_all(4),
    broadcast.broadcast(4, 2, slices=3),
)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda one: f"{one.name} {one.collective}")
def test_a_schedule_comes_back_as_it_was(schedule: Schedule, tmp_path: Path) -> None:
    paths = chakra.write(schedule, 1_000_003, tmp_path, "one")
    assert [path.name for path in paths] == [f"one.{rank}.et" for rank in range(schedule.nranks)]
    back = chakra.schedule_of(chakra.read(tmp_path / "one"))
    assert schedule_file.to_bytes(back) == schedule_file.to_bytes(schedule)


def test_a_trace_sends_what_the_schedule_does(tmp_path: Path) -> None:
    chakra.write(SCHEDULES[0], 1_000_003, tmp_path, "one")
    traces = chakra.read(tmp_path / "one")
    for trace in traces:
        sent = sum(node.attributes["comm_size"] for node in trace.nodes if node.kind == chakra_format.SEND)
        assert abs(sent - 2 * 3 / 4 * 1_000_003) < 100
        assert all(node.attributes["is_cpu_op"] is False for node in trace.nodes)


def test_messages_of_a_connection_leave_in_turn_and_a_send_waits_for_what_it_passes_on(tmp_path: Path) -> None:
    chakra.write(ring.all_reduce(3), 300, tmp_path, "one")
    nodes = chakra.read_one(tmp_path / "one.0.et").nodes
    kinds = [(node.kind, node.waits) for node in nodes]
    send, receive = chakra_format.SEND, chakra_format.RECEIVE
    assert kinds[:3] == [(send, ()), (receive, ()), (send, (0, 1))]


def node(number: int, kind: int = chakra_format.COMPUTE, waits: tuple[int, ...] = (), **attributes: Any) -> Any:
    return chakra_format.node(number, "one", kind, ctrl=[], data=list(waits), **attributes)


def count(value: int) -> tuple[str, int]:
    return "uint64", value


def sends(number: int, target: int = 1, size: int = 8, tag: int = 0) -> Any:
    return node(number, chakra_format.SEND, comm_size=count(size), comm_dst=count(target), comm_tag=count(tag))


def receives(number: int, source: int = 0, size: int = 8, tag: int = 0) -> Any:
    return node(number, chakra_format.RECEIVE, comm_size=count(size), comm_src=count(source), comm_tag=count(tag))


def collective(number: int, kind: int, size: int = 8) -> Any:
    return node(number, chakra_format.COLLECTIVE, comm_type=count(kind), comm_size=count(size))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[node(3), node(3)]], r"one\.0\.et: node 3: there are two of this number"),
        ([[node(3, waits=(4,))]], r"one\.0\.et: node 3: waits for node 4, which is not there"),
        ([[node(1, waits=(2,)), node(2, waits=(1,))]], r"one\.0\.et: node 1: waits for itself, by nodes 1, 2"),
        ([[node(0), node(5, waits=(5, 0))]], r"one\.0\.et: node 5: waits for itself, by nodes 5"),
        ([[node(1, kind=99)]], r"one\.0\.et: node 1: its type 99 is unknown"),
        ([[collective(1, 17)]], r"one\.0\.et: node 1: the collective 17 is unknown"),
        ([[node(1, chakra_format.COLLECTIVE, comm_type=count(0))]], r"node 1: comm_size is None, not a count"),
        ([[sends(7)], []], r"one\.0\.et: node 7: rank 0 sends 1 messages of tag 0 to rank 1, which receives 0"),
        ([[sends(7)], [receives(2, tag=1)]], r"node 7: rank 0 sends 1 messages of tag 0"),
        ([[sends(7)], [receives(2, size=9)]], r"node 7: the two ends tell different sizes, \[8\] and \[9\]"),
        ([[sends(7, target=4)], []], r"node 7: its peer is 4; there are 2 ranks"),
    ],
)
def test_a_wrong_trace_is_refused_by_file_and_node(ranks: list[list[Any]], message: str, tmp_path: Path) -> None:
    for rank, nodes in enumerate(ranks):
        (tmp_path / f"one.{rank}.et").write_bytes(chakra_format.to_bytes([chakra_format.metadata(), *nodes]))
    with pytest.raises(UsageError, match=message):
        chakra.read(tmp_path / "one")


def test_a_rank_whose_file_is_missing_is_named(tmp_path: Path) -> None:
    paths = chakra.write(ring.all_reduce(4), 100, tmp_path, "one")
    paths[2].unlink()
    with pytest.raises(UsageError, match=r"one\.2\.et: does not exist, but one\.3\.et does"):
        chakra.read(tmp_path / "one")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[:-3], "a message of .* bytes, and .* follow"),
        (lambda data: data[:2] + b"\xff" * len(data), "is no metadata"),
        (lambda data: b"\xff" * 12, "byte 0: no length of a message"),
    ],
)
def test_damaged_files_are_refused(spoil: Callable[[bytes], bytes], message: str, tmp_path: Path) -> None:
    path = chakra.write(ring.all_reduce(2), 100, tmp_path, "one")[1]
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(UsageError, match=rf"one\.1\.et: .*{message}"):
        chakra.read(tmp_path / "one")


def test_what_is_no_schedule_of_ours_is_none(tmp_path: Path) -> None:
    for rank, nodes in enumerate(([sends(0)], [receives(0)])):
        (tmp_path / f"one.{rank}.et").write_bytes(chakra_format.to_bytes([chakra_format.metadata(), *nodes]))
    traces = chakra.read(tmp_path / "one")
    with pytest.raises(UsageError, match="not the trace of a schedule of ours"):
        chakra.schedule_of(traces)
    with pytest.raises(UsageError, match=r"two\.0\.et: does not exist"):
        chakra.read(tmp_path / "two")


def test_a_dropped_step_is_noticed(tmp_path: Path) -> None:
    """Negative control: a trace that lacks one message is not read."""
    path = chakra.write(ring.all_reduce(3), 300, tmp_path, "one")[2]
    head, nodes = chakra_format.read(path)
    kept = [one for one in nodes if one.id != len(nodes) - 1]
    path.write_bytes(chakra_format.to_bytes([head, *kept]))
    with pytest.raises(UsageError, match="receives"):
        chakra.read(tmp_path / "one")


def test_traces_do_not_mix(tmp_path: Path) -> None:
    chakra.write(ring.all_reduce(4), 100, tmp_path, "one")
    with pytest.raises(UsageError, match=r"one\.3\.et: belongs to a trace of more than 3 ranks"):
        chakra.write(ring.all_reduce(3), 100, tmp_path, "one")
