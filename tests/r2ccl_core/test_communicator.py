"""Collectives on real sockets: every type, operation, size and group against NumPy."""

import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import r2ccl_core
from r2ccl_core.control.rendezvous import free_root
from r2ccl_core.errors import MismatchedCallError, PeerLostError, TransportError, UsageError
from r2ccl_core.host.nics import find_nics, unmatched
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.perf import pattern
from r2ccl_core.planning.selection import ring_slices
from r2ccl_core.runtime.buffers import DTYPES, MOVED, check, operations
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.schedules import forest, hierarchical, optcc, r2cc_all_reduce, ring, tree


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


class Group:
    """`size` ranks as threads of this process, each with NICs of its own on the loopback network."""

    def __init__(self, size: int, mode: int = 2, nics: int = 2) -> None:
        root = free_root()
        self._pool = ThreadPoolExecutor(size)
        addresses = [[("lo", f"127.{1 + rank}.0.{1 + nic}") for nic in range(nics)] for rank in range(size)]
        made = [
            self._pool.submit(Communicator, rank, size, root, nics=addresses[rank], mode=mode) for rank in range(size)
        ]
        self.comms = [future.result(timeout=120) for future in made]

    def run(self, work: Callable[[Communicator], Any]) -> list[Any]:
        futures = [self._pool.submit(work, comm) for comm in self.comms]
        return [future.result(timeout=240) for future in futures]

    def close(self) -> None:
        self.run(Communicator.close)
        self._pool.shutdown()


@pytest.fixture(params=[1, 2, 3, 5])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(request.param)
    yield made
    made.close()


def values(name: str, op: str, count: int, rank: int, ranks: int) -> np.ndarray:
    """What a rank brings; of bool, some true and some false."""
    made = pattern.values(count, rank, ranks, 0, 5, "sum" if op == "avg" else op)
    return made > (1 if op == "prod" else 2) if name == "bool" else made.astype(dtype_of(name))


def combined(name: str, op: str, count: int, ranks: int) -> np.ndarray:
    """NumPy's combination of all ranks' values."""
    brought = [values(name, op, count, rank, ranks) for rank in range(ranks)]
    if name == "bool":
        return np.any(brought, axis=0) if op == "max" else np.all(brought, axis=0)
    if op == "avg":
        total = np.sum(np.asarray(brought, np.float64), axis=0)
        return (total.astype(np.float32 if np.dtype(dtype_of(name)).itemsize == 2 else dtype_of(name)) / ranks).astype(
            dtype_of(name)
        )
    return pattern.result(count, ranks, 0, 5, op).astype(dtype_of(name))


def test_the_expectation_for_bools_has_both_values() -> None:
    for op in ("min", "max", "prod"):
        assert 0 < combined("bool", op, 10007, 3).sum() < 10007, op


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_every_type_and_operation_is_exact(mode: int) -> None:
    group = Group(3, mode=mode)
    for name in DTYPES:
        for op in operations(name):
            want = combined(name, op, 10007, 3)

            def work(comm: Communicator, name: str = name, op: str = op) -> np.ndarray:
                return comm.all_reduce(values(name, op, 10007, comm.rank, comm.size), op=op)

            for got in group.run(work):
                assert got.tobytes() == want.tobytes(), (name, op)
    group.close()


def test_every_size_in_and_out_of_place(group: Group) -> None:
    for count in (0, 1, 2, 3, 7, 1000, 65536, 300001):
        want = pattern.result(count, group.comms[0].size, count, 0, "sum").astype(np.float32)

        def work(comm: Communicator, count: int = count) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            own = pattern.values(count, comm.rank, comm.size, count, 0, "sum").astype(np.float32)
            kept = own.copy()
            apart = comm.all_reduce(own)
            assert own.tobytes() == kept.tobytes(), "out of place must leave its input alone"
            return apart, comm.all_reduce(own, own), own

        for apart, within, own in group.run(work):
            assert apart.tobytes() == want.tobytes()
            assert within is own and within.tobytes() == want.tobytes()


def test_every_collective_against_numpy(group: Group) -> None:
    ranks = len(group.comms)
    root = ranks - 1
    for count in (0, 1, 7, 100_003):
        data = [np.random.default_rng(rank).integers(-9, 9, count * ranks) for rank in range(ranks)]
        kept = [own.copy() for own in data]
        total = np.sum(data, axis=0)

        def work(comm: Communicator, count: int = count, data: list[np.ndarray] = data) -> dict[str, Any]:
            own, rank = data[comm.rank], comm.rank
            within = np.concatenate(data) * 0
            mine = within[rank * own.size : (rank + 1) * own.size]
            mine[...] = own
            scattered = own.copy()
            part = scattered[rank * count : (rank + 1) * count]
            return {
                "all_gather": comm.all_gather(own).ravel(),
                "all_gather in place": comm.all_gather(mine, within),
                "reduce_scatter": comm.reduce_scatter(own),
                "reduce_scatter in place": comm.reduce_scatter(scattered, part).copy(),
                "broadcast": comm.broadcast(own, np.empty_like(own), root=root),
                "broadcast in place": comm.broadcast(own.copy(), root=root),
                "reduce": comm.reduce(own, np.empty_like(own), root=root),
                "reduce in place": comm.reduce(within := own.copy(), within, root=root),
                "sendrecv": comm.send_recv(own),
                "alltoall": comm.all_to_all(own),
            }

        for rank, got in enumerate(group.run(work)):
            block = slice(rank * count, (rank + 1) * count)
            want = {
                "all_gather": np.concatenate(data),
                "reduce_scatter": total[block],
                "broadcast": data[root],
                "reduce": total if rank == root else None,
                "sendrecv": data[(rank - 1) % ranks],
                "alltoall": np.concatenate([other[block] for other in data]),
            }
            for name, result in got.items():
                np.testing.assert_array_equal(result, want[name.removesuffix(" in place")], f"{name}, rank {rank}")
        for own, before in zip(data, kept, strict=True):
            np.testing.assert_array_equal(own, before, "out of place must leave its input alone")


@pytest.mark.parametrize("mode", [0, 2])
def test_types_that_cannot_be_reduced_are_moved(mode: int) -> None:
    group = Group(3, mode=mode)
    for name in MOVED:
        data = [((np.arange(99) + 10 * rank) % 100 / 4).astype(dtype_of(name)) for rank in range(3)]

        def work(comm: Communicator, data: list[np.ndarray] = data) -> list[np.ndarray]:
            own = data[comm.rank]
            with pytest.raises(UsageError, match=f"^all_reduce: data type .*{own.dtype}.* is not supported"):
                comm.all_reduce(own)
            return [comm.all_gather(own), comm.broadcast(own.copy(), root=1), comm.send_recv(own), comm.all_to_all(own)]

        for rank, got in enumerate(group.run(work)):
            blocks = [other[33 * rank : 33 * rank + 33] for other in data]
            want = [np.stack(data), data[1], data[(rank - 1) % 3], np.concatenate(blocks)]
            for result, expected in zip(got, want, strict=True):
                assert (result.dtype, result.tobytes()) == (expected.dtype, expected.tobytes()), name
    group.close()


def test_types_of_one_size_are_told_apart() -> None:
    group = Group(2)

    def work(comm: Communicator) -> str:
        with pytest.raises(MismatchedCallError) as caught:
            comm.broadcast(np.ones(10, np.int16 if comm.rank == 0 else np.uint16))
        return str(caught.value)

    for told in group.run(work):
        assert "10 int16" in told and "10 uint16" in told
    group.close()


def test_arrays_that_do_not_fit_the_ranks_are_one_line() -> None:
    group = Group(2)
    three = np.ones(3, np.float32)
    comm = group.comms[0]
    for call, words in [
        (lambda: comm.all_gather(three, three), "over 2 ranks: recv has 3 elements; give one of 6 elements"),
        (lambda: comm.reduce_scatter(three, three), "2 ranks need as many equal blocks"),
        (lambda: comm.all_to_all(three), "equal blocks"),
        (lambda: comm.send_recv(three, three), "use two arrays"),
        (lambda: comm.broadcast(three, root=2), "root 2"),
        (lambda: comm.reduce_scatter(np.ones(8)[:4], np.ones(2, ">f8")), "data type"),
    ]:
        with pytest.raises(UsageError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
    group.close()


@pytest.mark.parametrize("mode", [0, 2])
def test_an_exception_on_one_rank_ends_the_collective_of_the_others(mode: int) -> None:
    group = Group(3, mode=mode)
    group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))

    def work(comm: Communicator) -> str:
        with pytest.raises((PeerLostError, RuntimeError)) as caught, comm:
            if comm.rank == 1:
                raise RuntimeError("out of luck")
            for _ in range(3):
                comm.all_reduce(np.ones(1_000_000, np.float32))
        return str(caught.value)

    assert group.run(work) == ["rank 1: RuntimeError: out of luck", "out of luck", "rank 1: RuntimeError: out of luck"]
    group.close()


def test_an_abort_from_another_thread_ends_what_waits_for_bytes() -> None:
    group = Group(3)
    group.run(lambda comm: comm.all_reduce(np.ones(10, np.float32)))

    def work(comm: Communicator) -> str:
        if comm.rank == 1:
            return comm.abort("enough")  # the others wait for its part
        with pytest.raises(PeerLostError) as caught:
            comm.all_reduce(np.ones(1_000_000, np.float32))
        return str(caught.value)

    assert group.run(work) == ["rank 1: enough"] * 3
    with pytest.raises(PeerLostError, match="rank 1: enough"):
        group.comms[0].all_reduce(np.ones(10, np.float32))
    group.close()


Calls = Callable[[Communicator, np.ndarray], Any]


def every_call(comm: Communicator, own: np.ndarray) -> None:
    """So that the connections are there, and nothing but the calls themselves tells the ranks apart."""
    comm.all_reduce(own)
    comm.all_gather(own)
    comm.reduce_scatter(own)
    for root in range(comm.size):
        comm.broadcast(own, root=root)
        comm.reduce(own, root=root)
    comm.barrier()  # or a rank that is still here hears what the others did next


@pytest.mark.parametrize("before", [every_call, lambda comm, own: None], ids=["later", "first"])
@pytest.mark.parametrize(
    ("first", "others"),
    [
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.all_reduce(own[:999])),
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.all_reduce(np.tile(own, 2))),
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.all_reduce(own.view(np.int32))),
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.all_reduce(own, op="max")),
        (lambda comm, own: comm.all_gather(own), lambda comm, own: comm.all_reduce(np.tile(own, 3))),
        (lambda comm, own: comm.broadcast(own, root=0), lambda comm, own: comm.broadcast(own, root=1)),
        (lambda comm, own: comm.reduce(own, root=0), lambda comm, own: comm.reduce(own, root=1)),
        (lambda comm, own: comm.barrier(), lambda comm, own: comm.all_reduce(own)),
        (lambda comm, own: comm.all_gather(own), lambda comm, own: comm.barrier()),
    ],
    ids=["elements", "twice", "type", "operation", "collective", "root", "roots", "barrier", "other_barrier"],
)
def test_ranks_that_call_different_things_hear_that_they_did(first: Calls, others: Calls, before: Calls) -> None:
    """By the next barrier; never a result that is silently wrong, and never a wait without end."""
    group = Group(3)

    def work(comm: Communicator) -> str:
        own = np.full(1200, comm.rank, np.float32)
        before(comm, own)
        with pytest.raises(MismatchedCallError) as caught:
            (first if comm.rank == 0 else others)(comm, own)
            comm.barrier()
        return str(caught.value)

    told = group.run(work)
    assert len(set(told)) == 1
    assert re.search("lost step|while this rank runs|of another number of elements|came for a receive of", told[0])
    group.close()


@pytest.mark.parametrize("mode", [2, 3])
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.all_gather(own),
         ("all_reduce of 8 float32 (sum)", "all_gather of 8 float32")),
        (lambda comm, own: comm.all_reduce(np.ones(1 << 20)), lambda comm, own: comm.all_reduce(own),
         ("all_reduce of 1048576 float64 (sum)", "all_reduce of 8 float32 (sum)")),
        (lambda comm, own: comm.barrier(), lambda comm, own: comm.all_reduce(own),
         ("barrier", "all_reduce of 8 float32 (sum)")),
        (lambda comm, own: comm.all_reduce(own), lambda comm, own: comm.close(),
         ("all_reduce of 8 float32 (sum)", "close")),
    ],
    ids=["collective", "large", "barrier", "close"],
)  # fmt: skip
def test_ranks_whose_first_calls_differ_hear_which_they_are(
    first: Calls, second: Calls, told: tuple[str, str], mode: int
) -> None:
    """Though they then also make different connections, or none."""
    group = Group(2, mode)

    def work(comm: Communicator) -> str:
        own = np.full(8, comm.rank, np.float32)
        if comm.rank == 1 and told[1] == "close":
            second(comm, own)
            return ""
        with pytest.raises(MismatchedCallError) as caught:
            (second if comm.rank else first)(comm, own)
        return str(caught.value)

    said = group.run(work)
    expected = f"rank 0 is at {told[0]!r} while rank 1 is at {told[1]!r}: the ranks lost step"
    assert [text for text in said if text] == [expected] * (1 if told[1] == "close" else 2)
    group.close()


def test_what_an_earlier_call_left_on_the_way_is_not_taken_for_a_later_ones() -> None:
    group = Group(2)

    def work(comm: Communicator) -> str:
        own = np.full(10, comm.rank, np.float32)
        every_call(comm, own)
        comm.broadcast(own, root=comm.rank)  # each sends, and takes nothing
        with pytest.raises(MismatchedCallError) as caught:
            comm.broadcast(own, root=0)
            time.sleep(0.5)  # what rank 1 found is the cause, and not what the barrier would
            comm.barrier()
        return str(caught.value)

    for told in group.run(work):
        assert told.startswith("rank 1: rank 0 runs broadcast of float32 (sum) of another number"), told
    group.close()


def test_ranks_that_are_late_are_waited_for() -> None:
    """Longer than it takes to ask whether they call the same."""
    group = Group(3)

    def work(comm: Communicator) -> int:
        own = np.full(10, comm.rank, np.float32)
        if comm.rank == 1:
            time.sleep(2.5)
        comm.broadcast(own)
        comm.barrier()
        return int(comm.all_reduce(own)[0])

    assert group.run(work) == [0, 0, 0]
    group.close()


def test_ranks_in_different_modes_are_refused() -> None:
    root = free_root()
    with ThreadPoolExecutor(2) as pool:
        made = [
            pool.submit(Communicator, rank, 2, root, nics=[("lo", "127.0.0.1")], mode=mode)
            for rank, mode in ((0, 2), (1, 0))
        ]
        for future in made:
            with pytest.raises(UsageError, match=r"differ: rank 0 has R2CC_MODE=2, .*, rank 1 has R2CC_MODE=0"):
                future.result(timeout=120)


def test_input_that_may_not_be_written_to_is_left_alone(group: Group) -> None:
    def work(comm: Communicator) -> np.ndarray:
        own = np.arange(1000.0)
        own.flags.writeable = False
        return comm.all_reduce(own)

    for got in group.run(work):
        np.testing.assert_array_equal(got, np.arange(1000.0) * group.comms[0].size)


def test_any_shape_goes(group: Group) -> None:
    for shape in [(), (3, 5), (0, 4)]:
        for got in group.run(lambda comm, shape=shape: comm.all_reduce(np.ones(shape, np.int64))):
            assert got.shape == shape and (got == group.comms[0].size).all()


@pytest.mark.parametrize(
    "schedule",
    [
        forest.all_reduce([1.0, 1.0, 0.5], chunks=8),
        r2cc_all_reduce.all_reduce([1.0, 1.0, 0.67], pipeline=4, chunks=60),
        optcc.all_reduce([1.0, 1.0, 0.5], segments=8),
        tree.all_reduce(3, slices=4),
        ring.all_reduce(3, slices=2, lanes=3),
        # Messages above the largest that goes ahead of its receive, and many on their way in few lanes.
        hierarchical.all_reduce(ring.all_reduce(3, slices=8, ahead=3), 2),
        r2cc_all_reduce.all_reduce([1.0, 1.0, 0.67], gpus=2, pipeline=4, chunks=60, ahead=3),
    ],
    ids=lambda schedule: f"{schedule.name}_{schedule.nranks}",
)
def test_any_schedule_runs_on_real_bytes(schedule: Schedule) -> None:
    ranks = schedule.nranks
    group = Group(ranks, nics=3)
    for count in (5, 1000, 200_003 if ranks == 3 else 2_000_003):
        want = pattern.result(count, ranks, 0, 0, "sum").astype(np.float32)

        def work(comm: Communicator, count: int = count) -> tuple[np.ndarray, np.ndarray]:
            own = pattern.values(count, comm.rank, ranks, 0, 0, "sum").astype(np.float32)
            return comm.run(schedule, own), comm.run(schedule, own, own)

        for apart, within in group.run(work):
            assert apart.tobytes() == want.tobytes() == within.tobytes()
    group.close()


def test_executors_are_kept_for_the_last_used_sizes() -> None:
    with Communicator(0, 1) as comm:

        def executors() -> dict[int, Any]:
            return {count: kept[1] for (_, count), kept in comm._programs._executors.items()}

        def run(count: int) -> None:
            np.testing.assert_array_equal(comm.all_reduce(np.full(count, 7)), np.full(count, 7))

        for count in range(1, 200):
            run(count)
        before = executors()
        assert list(before) == list(range(136, 200)), "64 of them"
        run(136)
        assert executors()[136] is before[136], "the same one ran again"
        run(1)
        after = executors()
        assert 137 not in after and after[136] is before[136] and after[1] is not None, (
            "the one that rested longest went"
        )
        assert all(after[count] is before[count] for count in range(138, 200))


def test_what_cannot_be_reduced_is_refused_in_one_line() -> None:
    with Communicator(0, 1) as comm, Communicator(0, 1) as other:
        good = np.ones(4, np.float32)
        for send, recv, op, words in [
            (np.ones(4, np.complex64), None, "sum", "complex64"),
            (np.ones(4, ">f4"), None, "sum", ">f4"),
            (good, None, "mean", "'mean' is not supported; use one of sum, min, max, prod, avg"),
            (np.ones(4, np.int32), None, "avg", "avg of int32 is not supported; use sum and divide it"),
            (good > 0, None, "avg", r"avg of bool is not supported; use max \(or\), min or prod \(and\)"),
            (good > 0, None, "sum", r"sum of bool is not supported; use max \(or\), min or prod \(and\)"),
            (good, np.ones(5, np.float32), "sum", "shape"),
            (good, np.ones((4, 4), np.float32)[:, 0], "sum", "recv is not contiguous; give an np.ascontiguousarray"),
            (good, np.frombuffer(bytes(16), np.float32), "sum", "recv may not be written to"),
        ]:
            with pytest.raises(UsageError, match=words):
                comm.all_reduce(send, recv, op)
        for call, name in (
            (comm.all_reduce, "all_reduce"),
            (comm.reduce, "reduce"),
            (comm.all_gather, "all_gather"),
            (comm.broadcast, "broadcast"),
        ):
            with pytest.raises(UsageError, match=f"^{name} takes NumPy arrays; send is list"):
                call([1.0, 2.0])
            with pytest.raises(UsageError, match=f"^{name} takes NumPy arrays; recv is list"):
                call(good, [0.0] * 4)
        with pytest.raises(UsageError, match="recv is 'max': to reduce by it, write op='max'"):
            comm.all_reduce(good, "max")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="send is a masked array, whose mask would be lost"):
            comm.all_reduce(np.ma.masked_less(good, 2))
        both = np.ones(8, np.float32)
        with pytest.raises(UsageError, match="overlap"):
            comm.all_reduce(both[:4], both[2:6])
        with pytest.raises(UsageError, match=r"^broadcast: send, where the result goes, is not contiguous"):
            comm.broadcast(np.ones((4, 4), np.float32)[:, 0])
        with pytest.raises(UsageError, match=r"^root '0': give the number of a rank"):
            comm.broadcast(good, root="0")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^send: rank='1': give a whole number; int\(\) makes one of text"):
            comm.send(good, "1")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^tag='x': give a whole number"):
            comm.recv(good, 1, tag="x")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^recv takes NumPy arrays; into is list"):
            comm.recv([0.0], 1)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^color='a': give a whole number"):
            comm.split("a")  # type: ignore[arg-type]
        for call in ("all_reduce", print, comm.close, comm.isend, other.all_reduce, Communicator.all_reduce):
            told = re.escape(getattr(call, "__qualname__", repr(call)))
            with pytest.raises(UsageError, match=f"^start of {told}: give a method that communicates"):
                comm.start(call, good)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^start of all_reduce: missing .*'send'; it takes send: .*, op: str ="):
            comm.start(comm.all_reduce)  # type: ignore[call-arg]
        with pytest.raises(UsageError, match=r"^start of all_reduce: .*'out'; it takes send: "):
            comm.start(comm.all_reduce, good, out=good)  # type: ignore[call-arg]
        assert comm.start(comm.exchange, data=b"it").wait() == [b"it"]
        with pytest.raises(UsageError, match=r"^exchange takes bytes, not text: give its encode\(\)"):
            comm.exchange("text")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^exchange takes bytes, not int: encode it"):
            comm.exchange(3)  # type: ignore[arg-type]
        assert comm.exchange(memoryview(b"it")) == [b"it"]  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"^all_reduce: send is float32 and recv is float64; give"):
            comm.all_reduce(good, good.astype(np.float64))
        with pytest.raises(UsageError, match=r"^all_gather over 1 ranks: recv has 5 elements; give one of 4 elements"):
            comm.all_gather(good, np.empty(5, np.float32))
    with pytest.raises(UsageError, match=r"^reduce_scatter of 7 elements: 3 ranks need as many equal blocks"):
        check("reduce_scatter", np.ones(7), np.ones(2), "sum", 0, 3)


NOT_A_NUMBER = "give a whole number; int\\(\\) makes one of text"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rank": "0"}, f"^rank='0': {NOT_A_NUMBER}"),
        ({"rank": 0.0}, f"^rank=0.0: {NOT_A_NUMBER}"),
        ({"rank": False}, f"^rank=False: {NOT_A_NUMBER}"),
        ({"size": "1"}, f"^size='1': {NOT_A_NUMBER}"),
        ({"size": None}, f"^size=None: {NOT_A_NUMBER}"),
        ({"root": 7000}, "^root=7000: give text as host:port"),
        ({"root": ("127.0.0.1", 7000)}, r"^root=\('127.0.0.1', 7000\): give text as host:port"),
        ({"root": "x:99999"}, "^R2CC_ROOT='x:99999': write it as host:port"),
        ({"timeout_s": "30"}, "^timeout_s='30': give seconds as a number"),
        ({"timeout_s": -1}, "^timeout_s=-1: give more than 0 seconds"),
        ({"timeout_s": math.nan}, "^timeout_s=nan: give more than 0 seconds"),
        ({"timeout_s": math.inf}, "^timeout_s=inf: give more than 0 seconds, and not for ever"),
        ({"options": [1]}, r"^options=\[1\]: give a table"),
        ({"on_nic": 3}, "^on_nic=3: give a function"),
        ({"policy": {}}, "^policy={}: give r2ccl_core.planning.selection.SchedulePolicy"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_in_one_line(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Communicator(**{"rank": 0, "size": 1} | given)


def test_numpys_numbers_are_numbers() -> None:
    with Communicator(np.int64(0), np.int32(1), timeout_s=np.float32(5)) as comm:  # type: ignore[arg-type]
        assert (comm.rank, comm.size) == (0, 1)


@pytest.mark.parametrize("mode", ["4", "x", " "])
def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("R2CC_MODE", mode)
    with pytest.raises(UsageError, match="R2CC_MODE"):
        Communicator(0, 1)


def test_after_its_end_every_call_is_refused() -> None:
    comm = Communicator(0, 1)
    comm.close()
    for call in (comm.barrier, lambda: comm.exchange(b""), lambda: comm.all_reduce(np.ones(1))):
        with pytest.raises(UsageError, match="on a communicator that is closed; make a new one"):
            call()


def test_an_option_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="R2CC_CHUNK_BYTES=1: give a whole number from 4096"):
        Communicator(0, 1, options={"R2CC_CHUNK_BYTES": "1"})
    with pytest.raises(UsageError, match="R2CC_MODE: give mode= instead"):
        Communicator(0, 1, options={"R2CC_MODE": "0"})
    with pytest.raises(UsageError, match="R2CC_CHUNKS: no such parameter"):
        Communicator(0, 1, options={"R2CC_CHUNKS": "1"})


def test_a_variable_that_nobody_reads_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2CC_STRIPE", "2")
    with pytest.warns(RuntimeWarning, match=r"R2CC_STRIPE: no such variable; did you mean R2CC_STRIPES\?") as told:
        Communicator(0, 1).close()
    assert told[0].filename == __file__, "the line of the program, not one of ours"


@pytest.mark.parametrize("nics", ["lo", ["lo"], [("lo",)], [("lo", 1)]])
def test_nics_that_are_no_pairs_are_refused(nics: Any) -> None:
    with pytest.raises(UsageError, match="is not a pair of a name and an IPv4 address"):
        Communicator(0, 1, nics=nics)


def test_a_single_number_is_an_array_without_dimensions() -> None:
    with Communicator(0, 1) as comm:
        assert comm.all_reduce(np.float64(3)) == 3


def test_an_option_may_be_a_number() -> None:
    with Communicator(0, 1, options={"R2CC_WINDOW_BYTES": 65536}) as comm:
        assert comm.all_reduce(np.ones(2)).tolist() == [1, 1]


def test_slices_are_of_the_asked_size_and_never_zero() -> None:
    assert ring_slices(0, 3, 1 << 18) == 1
    assert ring_slices(64 << 20, 3, 1 << 18) == 85
    assert ring_slices(1 << 20, 3, 1 << 18) == 2


@pytest.mark.parametrize("variable", ["R2CC_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])
def test_nics_are_chosen_by_name_or_address(variable: str) -> None:
    assert find_nics({variable: "=lo"}) == find_nics({variable: "l"}) == [("lo", "127.0.0.1")]
    assert find_nics({variable: "lo@127.0.1.1,lo@127.0.1.2"}) == [("lo", "127.0.1.1"), ("lo", "127.0.1.2")]
    with pytest.raises(UsageError, match=f"{variable}=nosuchnic: "):
        find_nics({variable: "nosuchnic"})
    with pytest.raises(UsageError, match="name@address"):
        find_nics({variable: "lo@127.0.1.1,lo"})
    assert find_nics({"NCCL_SOCKET_IFNAME": "nosuchnic", "R2CC_SOCKET_IFNAME": "lo"}) == [("lo", "127.0.0.1")]


def test_a_name_that_selects_no_nic_beside_others_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert find_nics({"R2CC_SOCKET_IFNAME": "lo,nosuchnic"}) == [("lo", "127.0.0.1")]
    assert "R2CC_SOCKET_IFNAME=lo,nosuchnic: no NIC" in caplog.text and caplog.text.rstrip().endswith("nosuchnic")
    assert unmatched("=eth,eth1", ["eth1"]) == ["eth"]
    assert unmatched("eth,ib", ["eth0", "eth1"]) == ["ib"]
    assert unmatched("^docker", ["eth0"]) == []


def test_a_missing_native_core_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "r2ccl_core._native", None)
    monkeypatch.delattr("r2ccl_core._native", raising=False)
    with pytest.raises(TransportError, match=r"native core cannot be loaded .*pip install"):
        Communicator(0, 1)


@pytest.mark.parametrize("size", [1, 2])
def test_a_collective_after_the_end_is_refused_at_once_on_every_rank(size: int) -> None:
    group = Group(size)
    group.run(lambda comm: comm.all_reduce(np.ones(2)))
    group.run(Communicator.close)
    for work in ("all_reduce", "all_gather", "send_recv", "broadcast"):
        for comm in group.comms:
            with pytest.raises(UsageError, match="on a communicator that is closed; make a new one"):
                getattr(comm, work)(np.ones(2))
    group.close()  # again


def test_an_empty_mode_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2CC_MODE", "")
    with Communicator(0, 1, free_root(), nics=[("lo", "127.0.0.1")]) as comm:
        assert comm.stats()["mode"] == 2


def test_a_program_that_forgets_to_close_ends_quietly() -> None:
    script = (
        "import sys, threading, numpy as np\n"
        "from r2ccl_core.runtime.communicator import Communicator\n"
        "root, comms = sys.argv[1], {}\n"
        "def rank(r):\n"
        "    comms[r] = Communicator(r, 2, root, nics=[('lo', f'127.{r + 1}.0.1')])\n"
        "    comms[r].all_reduce(np.ones(100_000))\n"
        "threads = [threading.Thread(target=rank, args=(r,)) for r in (0, 1)]\n"
        "[t.start() for t in threads], [t.join() for t in threads]\n"
    )
    done = subprocess.run([sys.executable, "-c", script, free_root()], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_second_thread_is_refused_by_name_and_the_first_goes_on() -> None:
    group = Group(2)
    first, second = group.comms
    with ThreadPoolExecutor(1, "early") as pool:
        waiting = pool.submit(first.all_reduce, np.ones(10))
        while not first._turn.current[0]:
            time.sleep(0.001)
        for call, name in (
            (lambda: first.broadcast(np.ones(1)), "broadcast"),
            (first.barrier, "barrier"),
            (first.close, "close"),
        ):
            with pytest.raises(
                UsageError, match=rf"^{name} on thread 'MainThread' while all_reduce runs on thread 'early_0'"
            ):
                call()
        assert second.all_reduce(np.ones(10)).tolist() == waiting.result(30).tolist() == [2.0] * 10
    group.run(Communicator.barrier)
    group.close()


def test_arrays_that_are_not_contiguous_are_sent_as_they_look(group: Group) -> None:
    ranks = len(group.comms)
    table = np.arange(60.0).reshape(6, 10)
    for view in (table[:, ::2], table.T, table[::-1]):

        def work(comm: Communicator, view: np.ndarray = view) -> tuple[np.ndarray, np.ndarray]:
            return comm.all_reduce(view), comm.all_gather(view)

        for total, gathered in group.run(work):
            np.testing.assert_array_equal(total, view * ranks)
            np.testing.assert_array_equal(gathered, np.stack([view] * ranks))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_averages(name: str) -> None:
    group = Group(3)

    def work(comm: Communicator) -> dict[str, Any]:
        own = np.arange(6).astype(dtype_of(name)) + dtype_of(name).type(comm.rank)
        return {
            "all": comm.all_reduce(own, op="avg"),
            "scatter": comm.reduce_scatter(own, op="avg"),
            "reduce": comm.reduce(own, op="avg", root=1),
            "run": comm.run(ring.all_reduce(3), own, op="avg"),
        }

    want = (np.arange(6) + 1).astype(dtype_of(name))
    for rank, got in enumerate(group.run(work)):
        assert got["all"].tobytes() == got["run"].tobytes() == want.tobytes()
        assert got["scatter"].tobytes() == want[2 * rank : 2 * rank + 2].tobytes()
        assert got["reduce"] is None if rank != 1 else got["reduce"].tobytes() == want.tobytes()
    group.close()


def test_a_rank_that_averages_while_others_add_hears_of_it() -> None:
    group = Group(2)

    def work(comm: Communicator) -> str:
        with pytest.raises(MismatchedCallError) as caught:
            comm.all_reduce(np.ones(10, np.float32), op=("avg", "sum")[comm.rank])
            comm.barrier()
        return str(caught.value)

    told = group.run(work)
    assert told[0] == told[1] and "(avg)" in told[0] and "(sum)" in told[0]
    group.close()


def test_the_environment_of_a_launcher_makes_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    host, port = free_root().split(":")
    monkeypatch.setenv("MASTER_ADDR", host)
    monkeypatch.setenv("MASTER_PORT", port)
    script = (
        "import numpy as np\n"
        "from r2ccl_core.runtime.communicator import Communicator\n"
        "with Communicator.from_env(nics=[('lo', '127.0.0.1')]) as comm:\n"
        "    print(comm.rank, comm.size, comm.all_reduce(np.full(2, comm.rank + 1)).tolist())\n"
    )
    ranks = []
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "3")
        ranks.append(subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True))
    assert [rank.communicate(timeout=240)[0] for rank in ranks] == [f"{rank} 3 [6, 6]\n" for rank in range(3)]


def test_a_communicator_says_what_it_is() -> None:
    comm = Communicator(0, 1, nics=[("lo", "127.0.0.1")], mode=1)
    assert repr(comm) == "<Communicator rank 0 of 1, mode 1, NICs lo, open>"
    comm.close()
    assert repr(comm) == "<Communicator rank 0 of 1, mode 1, NICs lo, closed>"
    assert re.fullmatch(r"\d+\.\d+.*", r2ccl_core.__version__)
    with pytest.raises(AttributeError, match="no attribute 'version'"):
        _ = r2ccl_core.version
