"""What `GpuCommunicator` does before it needs a GPU: what it refuses, and how ranks meet."""

import ctypes
import re
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace

import pytest

from r2ccl_core.errors import TransportError, UsageError
from r2ccl_core.gpu import communicator
from r2ccl_core.gpu.communicator import GpuCommunicator

ROOT = "127.0.0.1:7000"


@pytest.mark.parametrize(
    ("rank", "size", "root", "words"),
    [
        (2, 2, ROOT, "rank 2 (R2CC_RANK): ranks go from 0 to 1, as size 2 (R2CC_SIZE) says"),
        (-1, 2, ROOT, "rank -1 (R2CC_RANK): ranks go"),
        (0, 0, ROOT, "size 0 (R2CC_SIZE): give 1 to"),
        (0, 1 << 40, ROOT, "size 1099511627776 (R2CC_SIZE): give 1 to"),
        (0, 2, "127.0.0.1", "write it as host:port"),
        (0, 2, "127.0.0.1:", "write it as host:port"),
        (0, 2, "127.0.0.1:0", "write it as host:port"),
        (0, 2, "127.0.0.1:65536", "write it as host:port"),
        (0, 2, "127.0.0.1:\u00b2", "write it as host:port"),
        (0, 2, ":7000", "write it as host:port"),
        (0, 2, "", "write it as host:port"),
    ],
)
def test_a_wrong_place_is_one_line(
    monkeypatch: pytest.MonkeyPatch, rank: int, size: int, root: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # to import it is an error
    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        GpuCommunicator(rank, size, root)
    assert "\n" not in str(caught.value)


class Store:
    """As PyTorch's TCPStore, for the ranks of one process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.values: dict[str, bytes] = {}
        self.calls = 0

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.calls += 1
            self.values[key] = value.encode()
            self.changed.notify_all()

    def add(self, key: str, more: int) -> int:
        with self.changed:
            self.calls += 1
            total = int(self.values.get(key, b"0")) + more
            self.values[key] = str(total).encode()
            return total

    def get(self, key: str) -> bytes:
        self.wait([key], timedelta(seconds=communicator.MEETING_S))
        return self.values[key]

    def wait(self, keys: list[str], limit: timedelta) -> None:
        with self.changed:
            self.calls += 1
            if not self.changed.wait_for(lambda: all(key in self.values for key in keys), limit.total_seconds()):
                raise RuntimeError("wait timeout after a while\nand a stack")


def rank_that_meets(store: Store) -> Callable[[int, int], bytes]:
    """What (rank, size) gets as the group's name."""

    def unique_id(place: ctypes.c_void_p) -> int:
        ctypes.memmove(place, bytes(range(128)), 128)
        return 0

    def meet(rank: int, size: int) -> bytes:
        made = GpuCommunicator.__new__(GpuCommunicator)
        made._torch = SimpleNamespace(distributed=SimpleNamespace(TCPStore=lambda *_: store))
        made._nccl = SimpleNamespace(ncclGetUniqueId=unique_id)
        return bytes(made._meet(rank, size, "127.0.0.1", 7000))

    return meet


def test_all_ranks_get_the_same_name_and_rank_0_leaves_last() -> None:
    store = Store()
    meet = rank_that_meets(store)
    names: list[bytes] = []
    first = threading.Thread(target=lambda: names.append(meet(0, 3)))
    first.start()
    names.append(meet(1, 3))
    assert first.is_alive()
    names.append(meet(2, 3))
    first.join(10)
    assert names == [bytes(range(128))] * 3
    assert store.calls < 15  # nobody asks again and again


def test_ranks_that_never_come_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(communicator, "MEETING_S", 0.05)
    with pytest.raises(TransportError, match=r"^rank 0 of 2 did not meet the others at 127.0.0.1:7000 within") as told:
        rank_that_meets(Store())(0, 2)
    assert "wait timeout after a while" in str(told.value)
    assert "\n" not in str(told.value)
