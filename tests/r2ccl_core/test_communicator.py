"""Collectives on real sockets: every type, operation, size and group against NumPy."""

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from r2ccl_core.communicator import DTYPES, OPS, Communicator, ring_slices
from r2ccl_core.errors import PeerLostError, UsageError
from r2ccl_core.perf import pattern


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def free_root() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Group:
    """`size` ranks as threads of this process, each with NICs of its own on the loopback network."""

    def __init__(self, size: int, mode: int = 2, nics: int = 2) -> None:
        root = free_root()
        self._pool = ThreadPoolExecutor(size)
        addresses = [[("lo", f"127.{1 + rank}.0.{1 + nic}") for nic in range(nics)] for rank in range(size)]
        made = [
            self._pool.submit(Communicator, rank, size, root, nics=addresses[rank], mode=mode) for rank in range(size)
        ]
        self.comms = [future.result(timeout=30) for future in made]

    def run(self, work: Callable[[Communicator], Any]) -> list[Any]:
        futures = [self._pool.submit(work, comm) for comm in self.comms]
        return [future.result(timeout=60) for future in futures]

    def close(self) -> None:
        for comm in self.comms:
            comm.close()
        self._pool.shutdown()


@pytest.fixture(params=[1, 2, 3, 5])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    made = Group(request.param)
    yield made
    made.close()


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_every_type_and_operation_is_exact(mode: int) -> None:
    group = Group(3, mode=mode)
    for name in DTYPES:
        for op in OPS:
            want = pattern.result(10007, 3, 0, 5, op).astype(dtype_of(name))

            def work(comm: Communicator, name: str = name, op: str = op) -> np.ndarray:
                own = pattern.values(10007, comm.rank, comm.size, 0, 5, op).astype(dtype_of(name))
                return comm.all_reduce(own, op=op)

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


def test_a_closed_rank_ends_the_collective_of_the_others_with_an_error() -> None:
    group = Group(3, mode=0)
    group.run(lambda comm: comm.all_reduce(np.ones(1000, np.float32)))
    left = threading.Event()

    def work(comm: Communicator) -> str:
        if comm.rank == 1:
            comm.close()
            left.set()
            return "left"
        left.wait(10)
        with pytest.raises(PeerLostError) as caught:
            for _ in range(3):
                comm.all_reduce(np.ones(1_000_000, np.float32))
        return str(caught.value)

    messages = group.run(work)
    assert all("\n" not in message and message for message in messages)
    group.close()


def test_what_cannot_be_reduced_is_refused_in_one_line() -> None:
    with Communicator(0, 1) as comm:
        good = np.ones(4, np.float32)
        for send, recv, op, words in [
            (np.ones(4, np.complex64), None, "sum", "complex64"),
            (good, None, "avg", "avg"),
            (good, np.ones(5, np.float32), "sum", "shape"),
            (np.ones((4, 4), np.float32)[:, 0], None, "sum", "contiguous"),
        ]:
            with pytest.raises(UsageError, match=words):
                comm.all_reduce(send, recv, op)
        both = np.ones(8, np.float32)
        with pytest.raises(UsageError, match="overlap"):
            comm.all_reduce(both[:4], both[2:6])


@pytest.mark.parametrize("mode", ["3", "x", ""])
def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("R2CC_MODE", mode)
    with pytest.raises(UsageError, match="R2CC_MODE"):
        Communicator(0, 1)


def test_an_option_out_of_range_is_refused() -> None:
    with pytest.raises(UsageError, match="R2CC_CHUNK_BYTES=1: give a whole number from 4096"):
        Communicator(0, 1, options={"R2CC_CHUNK_BYTES": "1"})
    with pytest.raises(UsageError, match="R2CC_CHUNKS: no such parameter"):
        Communicator(0, 1, options={"R2CC_CHUNKS": "1"})


def test_slices_are_of_the_asked_size_and_never_zero() -> None:
    assert ring_slices(0, 3, 1 << 18) == 1
    assert ring_slices(64 << 20, 3, 1 << 18) == 85
    assert ring_slices(1 << 20, 3, 1 << 18) == 2
