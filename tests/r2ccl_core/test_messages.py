"""Calls begun and waited for, single messages, gather, scatter and split, on real sockets."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conditions import until

from r2ccl_core.control.bootstrap import Bootstrap
from r2ccl_core.control.rendezvous import free_root
from r2ccl_core.errors import MismatchedCallError, PeerLostError, TransportError, UsageError
from r2ccl_core.runtime.communicator import Communicator


class Group:
    """`size` ranks as threads of this process, each with NICs of its own on the loopback network."""

    def __init__(self, size: int) -> None:
        root, self._pool = free_root(), ThreadPoolExecutor(size)
        nics = [[("lo", f"127.{1 + rank}.0.{1 + nic}") for nic in range(2)] for rank in range(size)]
        made = [self._pool.submit(Communicator, rank, size, root, nics=nics[rank]) for rank in range(size)]
        self.comms = [future.result(timeout=240) for future in made]

    def run(self, work: Callable[[Communicator], Any]) -> list[Any]:
        return [future.result(timeout=90) for future in [self._pool.submit(work, comm) for comm in self.comms]]

    def close(self) -> None:
        self.run(Communicator.close)
        self._pool.shutdown()


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    made = Group(3)
    yield made
    made.close()


def test_calls_that_were_begun_run_in_order_and_are_waited_for_in_any(group: Group) -> None:
    def work(comm: Communicator) -> list[float]:
        arrays = [np.full(5000, comm.rank + 10.0 * i) for i in range(4)]
        begun = [comm.start(comm.all_reduce, array) for array in arrays]
        return [float(pending.wait()[0]) for pending in reversed(begun)]

    assert group.run(work) == [[93.0, 63.0, 33.0, 3.0]] * 3


def test_a_call_beside_one_that_was_begun_is_refused(group: Group) -> None:
    def work(comm: Communicator) -> str:
        if comm.rank == 0:
            comm.recv(np.empty(1), 1)  # the others' call cannot end before
        pending = comm.start(comm.all_reduce, np.ones(3))
        told = ""
        if comm.rank == 1:
            with pytest.raises(UsageError) as caught:
                comm.barrier()
            told = str(caught.value)
            comm.send(np.ones(1), 0)
        pending.wait()
        comm.barrier()
        return told

    assert "begun by start may still run" in group.run(work)[1]


def test_the_first_message_waits_for_its_receiver_as_long_as_it_takes(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Bootstrap.hear
    sooner = 600  # a limit of a minute would be one of a tenth of a second
    monkeypatch.setattr(Bootstrap, "hear", lambda self, rank, name, limit_s: heard(self, rank, name, limit_s / sooner))

    def work(comm: Communicator) -> float:
        array = np.full(10, comm.rank)
        if comm.rank == 0:
            comm.send(array, 1, tag=77)
        if comm.rank == 1:
            time.sleep(0.5)
            comm.recv(array, 0, tag=77)
        return float(array[0])

    assert group.run(work) == [0.0, 0.0, 2.0]


def test_two_that_send_first_are_told_so_at_the_time_out() -> None:
    group = Group(3)

    def work(comm: Communicator) -> tuple[str, ...]:
        other, told = (comm.rank + 1) % 2, list[str]()
        if comm.rank < 2:
            sent = comm.isend(np.ones(10), other)
            until(lambda: comm.why_unsent(other))
            with pytest.raises(TransportError) as caught:
                sent.wait(0.1)
            told.append(str(caught.value))
        comm.barrier()
        if comm.rank < 2:
            comm.recv(np.ones(10), other)
            sent.wait()
            until(lambda: not comm.why_unsent(other))
        comm.barrier()
        if comm.rank == 0:
            with pytest.raises(TransportError) as caught:
                comm.isend(np.ones(1), 2, tag=5).wait(3)
            told.append(str(caught.value))
        comm.barrier()
        if comm.rank == 2:
            comm.recv(np.ones(1), 0, tag=5)
        return tuple(told)

    told = group.run(work)
    late = "the call has not ended after"
    assert told[0] == (
        f"{late} 0.1 s: rank 1 waits to send to rank 0, too; call irecv before send",
        f"{late} 3 s",
    ), "rank 2 does not send"
    assert told[1] == (f"{late} 0.1 s: rank 0 waits to send to rank 1, too; call irecv before send",)
    group.close()


def test_a_message_may_have_a_time_out_and_still_arrives(group: Group) -> None:
    def work(comm: Communicator) -> float:
        array = np.full(10, 5.0 + comm.rank)
        for bad in (0, "1"):
            with pytest.raises(UsageError, match="timeout_s="):
                comm.send(array, 1 - comm.rank % 2, timeout_s=bad)  # type: ignore[arg-type]
        if comm.rank == 0:
            with pytest.raises(TransportError, match=r"has not ended after 0\.1 s"):
                comm.send(array, 1, tag=6, timeout_s=0.1)
            with pytest.raises(TransportError, match=r"has not ended after 0\.1 s"):
                comm.recv(np.empty(10), 1, tag=6, timeout_s=0.1)
        comm.barrier()
        if comm.rank == 1:
            comm.send(array, 0, tag=6, timeout_s=30)
            comm.recv(array, 0, tag=6, timeout_s=30)
        return float(array[0])

    assert group.run(work) == [5.0, 5.0, 7.0]


def test_messages_keep_their_order_by_tag_and_no_tag_waits_for_another(group: Group) -> None:
    def work(comm: Communicator) -> list[int]:
        if comm.rank == 0:
            for tag in (1, 2):
                for value in (10, 20):
                    comm.isend(np.full(1000, tag + value), 1, tag)
            comm.recv(np.empty(1), 1, 3)
        if comm.rank == 1:
            into = [np.empty(1000, np.int64) for _ in range(4)]
            begun = [comm.irecv(array, 0, tag) for array, tag in zip(into, (2, 1, 2, 1), strict=True)]
            values = [int(pending.wait()[0]) for pending in begun]
            comm.send(np.ones(1), 0, 3)
            return values
        return []

    assert group.run(work)[1] == [12, 11, 22, 21]


def test_gather_and_scatter(group: Group) -> None:
    def work(comm: Communicator) -> tuple[Any, list[float]]:
        gathered = comm.gather(np.array([comm.rank, 7]), root=1)
        part = np.empty(2)
        comm.scatter(np.arange(6.0) if comm.rank == 2 else None, part, root=2)
        return None if gathered is None else gathered.tolist(), part.tolist()

    assert group.run(work) == [(None, [0.0, 1.0]), ([[0, 7], [1, 7], [2, 7]], [2.0, 3.0]), (None, [4.0, 5.0])]


def test_a_group_is_split_by_color_and_ordered_by_key(group: Group) -> None:
    def work(comm: Communicator) -> Any:
        part = comm.split(None if comm.rank == 1 else 4, key=-comm.rank)
        if part is None:
            return None
        with part:
            return part.rank, part.size, float(part.all_reduce(np.array([1.0 + comm.rank]))[0])

    assert group.run(work) == [(1, 2, 4.0), None, (0, 2, 4.0)]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda comm: comm.isend(np.ones(1), comm.rank), "give a rank of 0 to 2 that is not this one"),
        (lambda comm: comm.irecv(np.ones(1), 9), "recv with rank 9"),
        (lambda comm: comm.isend(np.array([None]), (comm.rank + 1) % 3), "of Python objects"),
        (lambda comm: comm.irecv(np.ones((4, 4))[:, 1], (comm.rank + 1) % 3), "not contiguous"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(group: Group, call: Any, line: str) -> None:
    def work(comm: Communicator) -> str:
        with pytest.raises(UsageError) as caught:
            call(comm)
        return str(caught.value)

    assert all(line in text and "\n" not in text for text in group.run(work))


def test_a_message_of_another_size_and_an_end_of_the_group_are_errors_of_who_waits() -> None:
    own = Group(2)

    def work(comm: Communicator) -> str:
        if comm.rank == 0:
            comm.send(np.ones(3), 1)
            waiting = comm.irecv(np.empty(5), 1, 2)
        else:
            waiting = comm.irecv(np.empty(4), 0)
        with pytest.raises(MismatchedCallError) as caught:
            waiting.wait(60)
        return str(caught.value)

    first, second = own.run(work)
    assert "24 bytes, and the array for it 32" in second and "24 bytes" in first
    own.close()


@pytest.mark.parametrize(
    ("given", "taken"), [("float64", "float32"), ("float32", "int32"), ("float32", ">f4"), ("complex64", "M8[D]")]
)
def test_a_message_of_another_data_type_is_an_error_though_its_bytes_would_fit(given: str, taken: str) -> None:
    own = Group(2)

    def work(comm: Communicator) -> str:
        fits = np.zeros(24 // np.dtype(given).itemsize, given), np.zeros(24 // np.dtype(taken).itemsize, taken)
        if comm.rank == 0:
            comm.send(fits[0], 1)
        else:
            with pytest.raises(MismatchedCallError):
                comm.recv(fits[1], 0)
        with pytest.raises(MismatchedCallError) as caught:
            comm.barrier()
        return str(caught.value)

    expected = f"rank 1: the message of rank 0 is of {given}, and the array for it of {np.dtype(taken)}"
    assert own.run(work) == [expected] * 2
    own.close()


def test_messages_of_every_data_type_and_none_arrive_as_they_are(group: Group) -> None:
    record = np.dtype([("place", "<i4"), ("value", "<f8")])
    types = [*map(np.dtype, ("int16", "complex128", "U3", "M8[D]", ">i8", "bool")), record]

    def work(comm: Communicator) -> list[str]:
        if comm.rank == 0:
            begun = [comm.isend(np.ones(size, dtype), 1, 5) for dtype in types for size in (3, 0)]
        elif comm.rank == 1:
            begun = [comm.irecv(np.empty(size, dtype), 0, 5) for dtype in types for size in (3, 0)]
        else:
            return []
        return [str(pending.wait(60)) for pending in begun]

    assert group.run(work)[1] == [str(np.ones(size, dtype)) for dtype in types for size in (3, 0)]


@pytest.mark.parametrize(("reason", "told"), [("enough", "enough"), ("two\nlines", "two lines")])
@pytest.mark.parametrize("who", [0, 1])
def test_who_waits_for_a_message_hears_of_an_abort_in_one_line(reason: str, told: str, who: int) -> None:
    own = Group(2)

    def work(comm: Communicator) -> str:
        if comm.rank == who:
            comm.barrier()
            return comm.abort(reason)
        waiting = comm.irecv(np.empty(4), who)
        comm.barrier()
        with pytest.raises(PeerLostError) as caught:
            waiting.wait(60)
        return str(caught.value)

    assert own.run(work) == [f"rank {who}: {told}"] * 2
    own.close()


def test_a_scatter_that_the_root_was_refused_and_left_is_no_wait_for_ever() -> None:
    """What the root calls next does not fit what the others wait for, and all ranks are told so."""
    own = Group(3)

    def work(comm: Communicator) -> str:
        if comm.rank == 0:
            with pytest.raises(UsageError, match="the root must give what it scatters"):
                comm.scatter(None, np.empty(2))
        with pytest.raises(MismatchedCallError) as caught:
            comm.all_reduce(np.ones(2)) if comm.rank == 0 else comm.scatter(None, np.empty(2))
        return str(caught.value)

    told = own.run(work)
    assert len(set(told)) == 1 and "the ranks lost step" in told[0], told
    own.close()


LEAVES = """
import sys
import numpy as np
from r2ccl_core import Communicator
rank, root, way = int(sys.argv[1]), sys.argv[2], sys.argv[3]
comm = Communicator(rank, 2, root, nics=[("lo", f"127.{1 + rank}.0.1")])
if way == "with":
    with comm:  # whose calls still make their connections
        begun = [comm.start(comm.all_reduce, np.ones(1 << 20)) for _ in range(9)], comm.irecv(np.ones(3), 1 - rank)
        raise ValueError("of the program")
comm.all_reduce(np.ones(4))
if rank == 0:  # the other one's calls cannot end
    begun = [comm.start(comm.all_reduce, np.ones(1 << 20)) for _ in range(9)]
comm.abort("enough")
comm.close()
"""


@pytest.mark.parametrize("way", ["with", "abort"])
def test_who_leaves_a_group_that_is_over_waits_for_the_calls_that_it_began(way: str) -> None:
    argv = [sys.executable, "-c", LEAVES]
    root = free_root()
    ranks = [subprocess.Popen([*argv, str(rank), root, way], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    told = [rank.communicate(timeout=240)[1] for rank in ranks]
    if way == "with":
        assert all(text.count("Error") == 1 and text.endswith("ValueError: of the program\n") for text in told), told
        assert not any("leaked" in text for text in told), told
    else:
        assert told == ["", ""]


def test_who_leaves_a_group_that_is_over_waits_for_the_call_of_another_thread() -> None:
    own = Group(2)

    def another_runs(comm: Communicator) -> bool:
        with pytest.raises(UsageError) as refused:
            comm.all_reduce(None)  # type: ignore[arg-type]
        return "while barrier runs on thread" in str(refused.value)

    def work(comm: Communicator) -> str:
        if comm.rank == 1:
            with pytest.raises(PeerLostError) as caught:
                comm.recv(np.empty(1), 0)
            return str(caught.value)
        with ThreadPoolExecutor(1) as other, pytest.raises(ValueError, match="mine"), comm:
            waiting = other.submit(comm.barrier)
            until(waiting.running)
            until(lambda: another_runs(comm))
            raise ValueError("mine")
        return str(waiting.exception(60))

    assert own.run(work) == ["rank 0: ValueError: mine"] * 2
    own.close()


def test_a_second_close_waits_for_nobody() -> None:
    own = Group(3)
    own.close()
    begin_s = time.monotonic()
    for comm in own.comms:
        comm.close()
    assert time.monotonic() - begin_s < 2
