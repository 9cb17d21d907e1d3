"""The pieces of the test data: they cover the arrays, and see a block in another's place."""

import numpy as np
import pytest

from r2ccl_core import native
from r2ccl_core.errors import UsageError
from r2ccl_core.model.bandwidth import bandwidths_gbs, bus_factor, moved_bytes, part_count
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.perf import pattern
from r2ccl_core.perf.data import Data, Piece, Task

RANKS, COUNT = 3, 256


def covered(pieces: list[Piece]) -> list[int]:
    return [element for piece in pieces for element in range(piece.begin, piece.begin + piece.count)]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("rank", range(RANKS))
def test_what_is_wanted_covers_the_result_once(collective: str, rank: int) -> None:
    task = Task(collective, rank, RANKS, COUNT, "float32", root=1)
    sent, received = task.counts()
    for in_place in (False, True):
        assert covered(task.wants(in_place)) == list(range(received))
    silent = collective == "broadcast" and rank != 1
    assert covered(task.brings()) == ([] if silent else list(range(sent)))


@pytest.mark.parametrize("collective", ["all_gather", "alltoall"])
def test_a_block_in_another_blocks_place_is_seen(collective: str) -> None:
    task = Task(collective, 1, RANKS, COUNT, "float32")
    right = np.empty(task.counts()[1] * 4, np.uint8)
    data = Data(pattern, task, 4)
    for piece in task.wants(False):
        part = right[piece.begin * 4 : (piece.begin + piece.count) * 4]
        pattern.pattern_fill(part, "float32", piece.rank, RANKS, 5, piece.block * 0xC2B2AE35, "sum")
    assert data.wrong(right, 5, False) == 0
    assert data.wrong(np.roll(right, COUNT * 4), 5, False) > COUNT
    assert data.wrong(right, 6, False) > COUNT


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_the_native_engine_and_the_numpy_one_agree(collective: str, dtype: str) -> None:
    task = Task(collective, 2, RANKS, COUNT, dtype, "max", seed=7)
    item_bytes = {"float32": 4, "bfloat16": 2, "int64": 8}[dtype]
    filled = []
    for engine in (native.load(), pattern):
        send, recv = (np.empty(count * item_bytes, np.uint8) for count in task.counts())
        Data(engine, task, item_bytes).fill(send, recv, 3)
        wrong = Data(engine, task, item_bytes).wrong(recv, 3, False)
        filled.append((send.tobytes() if collective != "broadcast" else b"", recv.tobytes(), wrong))
    assert filled[0] == filled[1]
    assert filled[0][2] == (0 if collective == "reduce" else task.counts()[1]), "nothing was received yet"


def test_sizes_and_bandwidths_are_nccl_tests() -> None:
    assert part_count("all_reduce", 4099, "float32", 3) == 1024
    assert part_count("all_gather", 1 << 20, "float32", 3) == 87380
    assert moved_bytes("alltoall", 1 << 20, "float16", 3) == 87380 * 2 * 6
    assert [bus_factor(name, 4) for name in COLLECTIVES] == [1.5, 0.75, 0.75, 1, 1, 1, 0.75]
    assert bus_factor("all_reduce", 1) == 0
    assert bandwidths_gbs("reduce_scatter", 4 << 20, "float32", 2, 0.001) == pytest.approx((4.194304, 2.097152))
    assert bandwidths_gbs("broadcast", 1024, "float32", 2, 0.0) == (0.0, 0.0)
    with pytest.raises(UsageError, match="scatter"):
        bus_factor("scatter", 2)
