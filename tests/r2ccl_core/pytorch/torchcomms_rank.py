"""One rank of the tests of the torchcomms back end: runs the checks named on the command line, all ranks together.

Started by test_torchcomms.py with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and R2CC_SOCKET_IFNAME; torchcomms is
imported alone, so the entry point has to make the back end known.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torchcomms
from torchcomms import ReduceOp

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CPU = torch.device("cpu")


def mine(rank: int = RANK, count: int = 1001, dtype: Any = torch.int64) -> Any:
    return ((torch.arange(count) * 7 + 3 * rank) % 101).to(dtype)


def all_of(count: int = 1001) -> Any:
    return torch.stack([mine(rank, count) for rank in range(SIZE)])


def reductions(comm: Any) -> None:
    for op, expected in ((ReduceOp.SUM, all_of().sum(0)), (ReduceOp.MAX, all_of().amax(0))):
        tensor = mine()
        comm.all_reduce(tensor, op, async_op=False)
        assert torch.equal(tensor, expected)
    tensor = mine()
    comm.reduce(tensor, 1, ReduceOp.SUM, async_op=False)
    if RANK == 1:
        assert torch.equal(tensor, all_of().sum(0))
    part, whole = torch.empty(10, dtype=torch.int64), torch.arange(SIZE * 10) * (RANK + 1)
    expected = torch.arange(RANK * 10, RANK * 10 + 10) * sum(range(1, SIZE + 1))
    comm.reduce_scatter_single(part, whole, ReduceOp.SUM, async_op=False)
    assert torch.equal(part, expected)
    comm.reduce_scatter(part.zero_(), list(whole.split(10)), ReduceOp.SUM, async_op=False)
    assert torch.equal(part, expected)
    own, parts = torch.empty(RANK, dtype=torch.int64), [torch.full((r,), RANK + 1) for r in range(SIZE)]
    comm.reduce_scatter_v(own, parts, ReduceOp.SUM, async_op=False)
    assert own.tolist() == [sum(range(1, SIZE + 1))] * RANK


def movements(comm: Any) -> None:
    tensor = mine()
    comm.broadcast(tensor, 2, async_op=False)
    assert torch.equal(tensor, mine(2))
    others = [torch.empty_like(tensor) for _ in range(SIZE)]
    comm.all_gather(others, mine(), async_op=False)
    assert torch.equal(torch.stack(others), all_of())
    whole = torch.empty(SIZE * 1001, dtype=torch.int64)
    comm.all_gather_single(whole, mine(), async_op=False)
    assert torch.equal(whole, all_of().flatten())
    unequal = [torch.empty(r, dtype=torch.int64) for r in range(SIZE)]
    comm.all_gather_v(unequal, mine(count=RANK), async_op=False)
    assert all(torch.equal(got, mine(r, r)) for r, got in enumerate(unequal))
    gathered = [torch.empty(1001, dtype=torch.int64) for _ in range(SIZE)] if RANK == 1 else []
    comm.gather(gathered, mine(), 1, async_op=False)
    assert RANK != 1 or torch.equal(torch.stack(gathered), all_of())
    comm.scatter(tensor, [mine(r + 5) for r in range(SIZE)] if RANK == 0 else [], 0, async_op=False)
    assert torch.equal(tensor, mine(RANK + 5))


def swaps(comm: Any) -> None:
    swapped = torch.empty(SIZE, dtype=torch.int64)
    comm.all_to_all_single(swapped, torch.arange(SIZE) + 10 * RANK, async_op=False)
    assert swapped.tolist() == [10 * r + RANK for r in range(SIZE)]
    # Rank r gives r + 1 rows of width 2 to everybody, and nothing to itself.
    given, taken = [(RANK + 1) * (r != RANK) for r in range(SIZE)], [(r + 1) * (r != RANK) for r in range(SIZE)]
    rows = torch.empty(sum(taken), 2, dtype=torch.int64)
    comm.all_to_all_v_single(rows, torch.full((sum(given), 2), RANK), taken, given, async_op=False)
    assert rows[:, 1].tolist() == [r for r in range(SIZE) for _ in range(taken[r])]
    lists = [torch.empty(r + 1, dtype=torch.int64) for r in range(SIZE)]
    comm.all_to_all(lists, [torch.full((RANK + 1,), RANK * 10 + r) for r in range(SIZE)], async_op=False)
    assert [t.tolist() for t in lists] == [[r * 10 + RANK] * (r + 1) for r in range(SIZE)]


def in_any_order(comm: Any) -> None:
    """Works are waited for in the reverse order; a call that is not asynchronous comes after those before it."""
    behind = torchcomms.new_comm("r2ccl", CPU, name="behind", hints={"r2ccl::background": "true"})
    for each in (comm, behind):
        tensors = [torch.full((20_000,), RANK + i) for i in range(6)]
        works = [each.all_reduce(tensor, ReduceOp.SUM, async_op=True) for tensor in tensors]
        each.barrier(async_op=False)
        for work in reversed(works):
            work.wait()
            assert work.is_completed()
        for i, tensor in enumerate(tensors):
            assert torch.equal(tensor, torch.full((20_000,), sum(r + i for r in range(SIZE))))
    # Only in the background does a call return before the last rank has come.
    if RANK == 0:
        time.sleep(0.3)
    begun = time.monotonic()
    work = behind.barrier(async_op=True)
    took = time.monotonic() - begun
    work.wait()
    assert RANK == 0 or took < 0.2 < time.monotonic() - begun, took
    behind.finalize()


def data_parallel(comm: Any) -> None:
    """DDP and FSDP2 over torchcomms's own mesh, as its programs make them."""
    from torch.distributed.fsdp import fully_shard
    from torchcomms.device_mesh import init_device_mesh

    mesh = init_device_mesh(mesh_dim_comms=(comm,), mesh_dim_names=("main",))
    given = torch.arange(160.0).view(8, 20) * (RANK + 1)
    expected = (torch.arange(160.0).view(8, 20) * (SIZE + 1) / 2).sum(0)
    copied = torch.nn.Linear(20, 6)
    wrapped = torch.nn.parallel.DistributedDataParallel(copied, process_group=mesh.get_group("main"))
    wrapped(given).sum().backward()
    assert torch.equal(copied.weight.grad, expected.expand(6, 20))
    sharded = torch.nn.Linear(20, 6)
    fully_shard(sharded, mesh=mesh)
    sharded(given).sum().backward()
    assert torch.equal(sharded.weight.grad.to_local(), expected.expand(2, 20))


def messages(comm: Any) -> None:
    following, previous = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    into = [torch.empty(1001, dtype=torch.int64) for _ in range(2)]
    works = [comm.send(mine(RANK + i), following, async_op=True) for i in range(2)]
    works += [comm.recv(tensor, previous, async_op=True) for tensor in into]
    for work in works:
        work.wait()
    assert all(torch.equal(tensor, mine(previous + i)) for i, tensor in enumerate(into))


def parts(comm: Any) -> None:
    """Ranks 2 and 0, in this order; rank 1 takes no part."""
    ranks = [2, 0] if RANK != 1 else []
    part = comm.split(ranks, "part")
    assert (part is None) == (RANK == 1)
    if part is not None:
        assert (part.get_rank(), part.get_size()) == (ranks.index(RANK), 2)
        tensor = mine()
        part.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        assert torch.equal(tensor, mine(0) + mine(2))
        part.finalize()


def refusals(comm: Any) -> None:
    for call, word in (
        (lambda: comm.all_reduce(mine(), ReduceOp.BXOR, async_op=False), "does not reduce by BXOR"),
        (lambda: comm.split([5 + RANK], "none"), "not distinct ranks from 0 to 2"),
        (lambda: comm.split([(RANK + 1) % SIZE], "other"), "is not among ranks"),
        (lambda: torchcomms.new_comm("r2ccl", torch.device("meta"), name="meta"), "moves CPU tensors"),
    ):
        try:
            call()
        except Exception as error:
            assert word in str(error), error
        else:
            raise AssertionError(word)
    comm.barrier(async_op=False)


def same_name_again(comm: Any) -> None:
    for _ in range(2):
        again = torchcomms.new_comm("r2ccl", CPU, name="again")
        tensor = mine()
        again.all_reduce(tensor, ReduceOp.SUM, async_op=False)
        assert torch.equal(tensor, all_of().sum(0))
        again.finalize()


def too_late(comm: Any) -> None:
    """A call that one rank never joins ends in time on the others, and ends its group, not the others."""
    late = torchcomms.new_comm("r2ccl", CPU, name="late")
    late.set_timeout(timedelta(seconds=1))
    if RANK != 0:
        try:
            late.barrier(async_op=False)
        except Exception as error:
            assert "barrier has not ended after 1 s" in str(error), error
        else:
            raise AssertionError("a barrier without rank 0 ended")
    comm.barrier(async_op=False)
    late.finalize()


def main() -> None:
    comm = torchcomms.new_comm("r2ccl", CPU, name="main")
    assert (comm.get_rank(), comm.get_size(), comm.get_backend()) == (RANK, SIZE, "r2ccl")
    for name in sys.argv[1:]:
        check: Callable[[Any], None] = globals()[name]
        check(comm)
        print(f"ok {name}", flush=True)
    comm.finalize()


if __name__ == "__main__":
    main()
