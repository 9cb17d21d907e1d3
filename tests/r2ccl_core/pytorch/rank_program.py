"""One rank of the tests of the process group: runs the checks named on the command line, all ranks together.

Started by test_process_group.py with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and R2CC_SOCKET_IFNAME; torch is
imported alone, so the entry point has to make the back end known.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def mine(dtype: Any = torch.float32, count: int = 1001, rank: int = RANK) -> Any:
    return (torch.arange(count) % 7 + rank + 1).to(dtype)


def reductions() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8):
        whole = torch.stack([mine(dtype, rank=r).to(torch.float64) for r in range(SIZE)])
        for op, expected in (
            (dist.ReduceOp.SUM, whole.sum(0)),
            (dist.ReduceOp.MAX, whole.amax(0)),
            (dist.ReduceOp.MIN, whole.amin(0)),
        ):
            tensor = mine(dtype)
            dist.all_reduce(tensor, op)
            assert torch.equal(tensor.to(torch.float64), expected), (dtype, op)
    truth = torch.tensor([RANK == 1, False, True])
    dist.all_reduce(truth)
    assert truth.tolist() == [True, False, True]
    turning = mine().to(torch.complex64) * 1j  # which PyTorch gives as pairs of real numbers
    dist.all_reduce(turning)
    assert torch.equal(turning.imag, torch.stack([mine(rank=r) for r in range(SIZE)]).sum(0))
    tensor = mine()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.allclose(tensor, torch.stack([mine(rank=r) for r in range(SIZE)]).mean(0))
    tensor = mine()
    dist.reduce(tensor, 1)
    if RANK == 1:
        assert torch.equal(tensor, torch.stack([mine(rank=r) for r in range(SIZE)]).sum(0))


def movements() -> None:
    types = [torch.float32, torch.bool, torch.int16, torch.complex64, torch.float8_e4m3fn, torch.bfloat16]
    for dtype in (*types, torch.uint16, torch.uint32, torch.uint64, torch.complex128):
        source = mine() > 3 + RANK if dtype is torch.bool else mine().to(dtype)
        others = [source.clone() for _ in range(SIZE)]
        dist.all_gather(others, source)
        for rank, other in enumerate(others):
            expected = (
                mine(torch.float32, rank=rank).to(dtype) if dtype is not torch.bool else mine(rank=rank) > 3 + rank
            )
            assert torch.equal(other.view(torch.uint8), expected.view(torch.uint8)), (dtype, rank)
    whole = torch.empty(SIZE * 10)
    dist.all_gather_into_tensor(whole, torch.full((10,), float(RANK)))
    assert whole.view(SIZE, 10)[:, 0].tolist() == [float(r) for r in range(SIZE)]
    part = torch.empty(10)
    dist.reduce_scatter_tensor(part, torch.arange(SIZE * 10.0))
    assert torch.equal(part, SIZE * torch.arange(RANK * 10.0, RANK * 10.0 + 10))
    dist.reduce_scatter(part, [torch.full((10,), float(r)) for r in range(SIZE)])
    assert part.tolist() == [float(SIZE * RANK)] * 10
    tensor = mine()
    dist.broadcast(tensor, 2)
    assert torch.equal(tensor, mine(rank=2))
    gathered = [torch.empty(1001) for _ in range(SIZE)] if RANK == 1 else None
    dist.gather(mine(), gathered, dst=1)
    assert gathered is None or all(torch.equal(t, mine(rank=r)) for r, t in enumerate(gathered))
    into = torch.empty(4)
    dist.scatter(into, [torch.full((4,), float(r)) for r in range(SIZE)] if RANK == 0 else None, src=0)
    assert into.tolist() == [float(RANK)] * 4
    swapped = torch.empty(SIZE)
    dist.all_to_all_single(swapped, torch.arange(SIZE) + 10.0 * RANK)
    assert swapped.tolist() == [10.0 * r + RANK for r in range(SIZE)]
    # Rank r gives r + 1 rows of width 2 to everybody, and nothing to itself.
    given, taken = [(RANK + 1) * (r != RANK) for r in range(SIZE)], [(r + 1) * (r != RANK) for r in range(SIZE)]
    rows = torch.empty(sum(taken), 2)
    dist.all_to_all_single(rows, torch.full((sum(given), 2), float(RANK)), taken, given)
    assert rows[:, 1].tolist() == [float(r) for r in range(SIZE) for _ in range(taken[r])]
    lists = [torch.empty(r + 1) for r in range(SIZE)]
    dist.all_to_all(lists, [torch.full((RANK + 1,), float(RANK * 10 + r)) for r in range(SIZE)])
    assert [t[0].item() for t in lists] == [float(r * 10 + RANK) for r in range(SIZE)]


def types_are_told_apart() -> None:
    """Of equal size, too, they are no match: neither in a collective nor in a message."""
    for ours, theirs in ((torch.int16, torch.uint16), (torch.uint64, torch.int64), (torch.uint32, torch.int32)):
        group, own = dist.new_group(), mine(count=10).to(ours if RANK == 0 else theirs)
        try:
            dist.broadcast(own, 0, group=group)
        except dist.DistBackendError as error:
            assert f"10 {str(ours).removeprefix('torch.')}" in str(error), error
            assert f"10 {str(theirs).removeprefix('torch.')}" in str(error), error
        else:
            raise AssertionError("they matched")
        group = dist.new_group()
        try:
            if RANK == 0:
                dist.send(own, 1, group=group)
            elif RANK == 1:
                dist.recv(own, 0, group=group)
        except dist.DistBackendError as error:
            assert "is of " + str(ours).removeprefix("torch.") in str(error), error
        else:
            assert RANK != 1, "the message matched"
        dist.barrier()


def strided() -> None:
    square = mine(count=100).view(10, 10)
    turned = square.clone().t()
    dist.all_reduce(turned)
    assert torch.equal(turned, sum(mine(count=100, rank=r).view(10, 10) for r in range(SIZE)).t())
    negative = torch._neg_view(mine(count=10))  # memory that is not what the tensor says
    dist.all_reduce(negative)
    assert torch.equal(negative, -sum(mine(count=10, rank=r) for r in range(SIZE)))


def modes_of_autograd() -> None:
    """They belong to the program's thread; what a collective copies on its own thread is outside of any graph."""
    with torch.inference_mode():
        others, turned = [torch.empty(10) for _ in range(SIZE)], mine(count=10).view(2, 5).t()
        for work in (dist.all_gather(others, mine(count=10), async_op=True), dist.all_reduce(turned, async_op=True)):
            work.wait()
    assert torch.equal(others[1], mine(count=10, rank=1))
    assert torch.equal(turned, sum(mine(count=10, rank=r).view(2, 5).t() for r in range(SIZE)))
    others = [torch.empty(10, requires_grad=True) for _ in range(SIZE)]
    dist.all_gather(others, mine(count=10).requires_grad_(), async_op=True).wait()
    assert torch.equal(others[1].detach(), mine(count=10, rank=1)) and others[1].is_leaf
    turned = torch.nn.Parameter(mine(count=10).view(2, 5).t())
    dist.broadcast(turned, 2, async_op=True).wait()
    assert torch.equal(turned.detach(), mine(count=10, rank=2).view(2, 5).t())


def tags_used_once() -> None:
    """The threads of their messages end."""
    before = threading.active_count()
    for tag in range(30):
        if RANK < 2:
            (dist.send if RANK == 0 else dist.recv)(torch.ones(1), 1 - RANK, tag=1000 + tag)
    end = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.1)
    assert threading.active_count() <= before, [thread.name for thread in threading.enumerate()]


def again_in_the_same_store() -> None:
    """Groups of one name after each other: nobody goes where the last one met."""
    store = dist.distributed_c10d._get_default_store()
    dist.destroy_process_group()
    for turn in range(2):
        if RANK == 0:
            time.sleep(0.5)  # the others ask the store before this rank has told it anything
        dist.init_process_group("r2ccl", store=store, rank=RANK, world_size=SIZE, timeout=timedelta(seconds=60))
        tensor = mine()
        dist.all_reduce(tensor)
        assert torch.equal(tensor, sum(mine(rank=r) for r in range(SIZE)))
        if turn == 0:
            dist.destroy_process_group()


def zero_copy() -> None:
    from r2ccl_core.pytorch.tensors import as_array

    for tensor in (torch.zeros(5), torch.zeros(5, dtype=torch.bfloat16), torch.zeros(5, dtype=torch.int64)):
        assert as_array(tensor).ctypes.data == tensor.data_ptr()


def in_any_order() -> None:
    tensors = [torch.full((50_000,), float(RANK + i)) for i in range(8)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in reversed(works):
        assert work.wait()
    for i, (tensor, work) in enumerate(zip(tensors, works, strict=True)):
        assert work.is_completed() and work.get_future().value()[0] is tensor
        assert tensor[0].item() == sum(r + i for r in range(SIZE))


def lock_is_free() -> None:
    """While a collective waits for the last rank, other threads of the interpreter run."""
    turns = 0
    if RANK == 0:
        time.sleep(0.3)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    while not work.is_completed():
        turns += 1
        time.sleep(0)
    assert RANK == 0 or turns > 100, turns


def messages() -> None:
    if RANK == 0:
        works = [dist.isend(torch.full((1000,), float(i)), 1, tag=i) for i in range(3)]
        for work in works:
            work.wait()
    if RANK == 1:
        into = [torch.empty(1000) for _ in range(3)]
        works = [dist.irecv(into[i], 0, tag=i) for i in (2, 0, 1)]
        for work in works:
            work.wait()
        assert [t[0].item() for t in into] == [0.0, 1.0, 2.0]
    following, previous, tensor = (RANK + 1) % SIZE, (RANK - 1) % SIZE, torch.empty(3)
    for request in dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, torch.full((3,), float(RANK)), following), dist.P2POp(dist.irecv, tensor, previous)]
    ):
        request.wait()
    assert tensor.tolist() == [float(previous)] * 3


def objects() -> None:
    told: list[Any] = [None] * SIZE
    dist.all_gather_object(told, {"rank": RANK, "text": "x" * (RANK * 100)})
    assert [t["rank"] for t in told] == list(range(SIZE))
    given = [{"a": 1}, "text"] if RANK == 0 else [None, None]
    dist.broadcast_object_list(given, src=0)
    assert given == [{"a": 1}, "text"]
    dist.barrier()


def subgroups() -> None:
    even, odd = dist.new_group([0, 2]), dist.new_group([1])
    group = even if RANK in (0, 2) else odd
    tensor = torch.tensor([float(RANK)])
    dist.all_reduce(tensor, group=group)
    assert tensor.item() == (2.0 if RANK in (0, 2) else 1.0)
    both = torch.tensor([1.0])
    dist.all_reduce(both)
    assert both.item() == SIZE
    dist.destroy_process_group(group)


def beside_another() -> None:
    """A group over another back end stands beside this one, as NCCL's does for tensors on GPUs."""
    group = dist.new_group(backend="gloo")
    both = torch.tensor([float(RANK)])
    dist.all_reduce(both, group=group)
    dist.all_reduce(both)
    assert both.item() == SIZE * sum(range(SIZE))


def on_gpus() -> None:
    """CUDA tensors go over NCCL and CPU tensors over r2ccl, in one group; needs a GPU for each rank."""
    gpu = torch.device("cuda", RANK)
    torch.cuda.set_device(gpu)
    whole = torch.stack([mine(rank=r) for r in range(SIZE)])
    for device in (gpu, torch.device("cpu"), gpu):
        tensor = mine().to(device)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.cpu(), whole.sum(0)), device
        works = [dist.all_reduce(tensor, dist.ReduceOp.MAX, async_op=True) for tensor in (mine().to(device),) * 2]
        for work in works:
            work.wait()
        gathered = [torch.empty(1001, device=device) for _ in range(SIZE)]
        dist.all_gather(gathered, mine().to(device))
        assert torch.equal(torch.stack(gathered).cpu(), whole), device
        flat, part = torch.empty(SIZE * 10, device=device), torch.empty(10, device=device)
        dist.all_gather_into_tensor(flat, torch.full((10,), float(RANK), device=device))
        assert flat.view(SIZE, 10)[:, 0].tolist() == [float(r) for r in range(SIZE)]
        dist.reduce_scatter_tensor(part, torch.arange(SIZE * 10.0, device=device))
        assert torch.equal(part.cpu(), SIZE * torch.arange(RANK * 10.0, RANK * 10.0 + 10))
        dist.broadcast(tensor, SIZE - 1)
        swapped = torch.empty(SIZE, device=device)
        dist.all_to_all_single(swapped, torch.arange(SIZE, device=device) + 10.0 * RANK)
        assert swapped.tolist() == [10.0 * r + RANK for r in range(SIZE)]
        following, previous, taken = (RANK + 1) % SIZE, (RANK - 1) % SIZE, torch.empty(3, device=device)
        given = torch.full((3,), float(RANK), device=device)
        batch = [dist.P2POp(dist.isend, given, following), dist.P2POp(dist.irecv, taken, previous)]
        for request in dist.batch_isend_irecv(batch):
            request.wait()
        assert taken.tolist() == [float(previous)] * 3
    objects()
    dist.barrier(device_ids=[RANK])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 2)).to(gpu)
    wrapped = torch.nn.parallel.DistributedDataParallel(model, device_ids=[RANK], bucket_cap_mb=0.001)
    wrapped(torch.randn(8, 20, device=gpu)).square().mean().backward()
    grads = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    on_cpus = grads.cpu()
    dist.broadcast(on_cpus, 0)
    assert torch.equal(on_cpus, grads.cpu())
    sharded_fully(gpu)
    group = dist.new_group(list(range(SIZE)))
    both = torch.ones(3, device=gpu)
    dist.all_reduce(both, group=group)
    assert both.tolist() == [float(SIZE)] * 3
    dist.destroy_process_group(group)


def tensor_parallel() -> None:
    """DTensor's functional collectives."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
    data = torch.arange(12.0).view(2, 6) / 12
    expected = model(data)
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    shared = parallelize_module(model, init_device_mesh("cpu", (SIZE,)), plan)
    assert torch.allclose(shared(data), expected, atol=1e-5)


def ddp() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 2))
    wrapped = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(100 * step + RANK)
        optimizer.zero_grad()
        wrapped(torch.randn(8, 20)).square().mean().backward()
        optimizer.step()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(SIZE)]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others)


def fsdp2() -> None:
    sharded_fully(torch.device("cpu"))


def sharded_fully(device: torch.device) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Linear(12, 4)).to(device)
    alone = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Linear(12, 4)).to(device)
    alone.load_state_dict(model.state_dict())
    fully_shard(model, mesh=init_device_mesh(device.type, (SIZE,)))
    data = torch.arange(16.0, device=device).view(2, 8) / 16
    losses = [net(data).square().sum() for net in (model, alone)]
    for loss in losses:
        loss.backward()
    assert torch.allclose(*losses)
    for sharded, whole in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(sharded.grad.full_tensor(), whole.grad, atol=1e-5)


def refusals() -> None:
    for call in (
        lambda: dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND),
        lambda: dist.all_reduce(torch.zeros(3).to(torch.float8_e5m2)),
        lambda: dist.all_reduce(torch.zeros(3, dtype=torch.uint16)),
        lambda: dist.broadcast(torch.empty(3, dtype=torch.bits16), 0),
        lambda: dist.all_reduce(torch.eye(3).to_sparse()),
        lambda: dist.broadcast(torch.eye(3).to_sparse_csr(), 0),
        lambda: dist.all_gather([torch.zeros(3, 3)] * SIZE, torch.eye(3).to_sparse()),
        lambda: dist.all_reduce(torch.zeros(3, device="meta")),
        lambda: dist.all_reduce(torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.quint8)),
    ):
        try:
            call()
        except dist.DistBackendError as error:
            assert "r2ccl" in str(error) or "cannot be reduced" in str(error), error
            assert len(str(error).splitlines()) == 1, error
        else:
            raise AssertionError("it was not refused")
    group = dist.group.WORLD
    assert group._get_backend(torch.device("cpu")) is group  # as PyTorch asks from 2.14 on
    if not torch.cuda.is_available():
        try:
            group._get_backend(torch.device("cuda"))
        except dist.DistBackendError as error:
            assert "cuda tensors need a GPU" in str(error), error
        else:
            raise AssertionError("there is no back end for CUDA")


def too_late() -> None:
    """A collective that one rank never joins ends in time on the others, and ends its group, not the others."""
    group = dist.new_group()
    if RANK != 0:
        group.set_timeout(timedelta(seconds=1))
        try:
            dist.all_reduce(torch.ones(10), group=group)
        except dist.DistBackendError as error:
            assert "allreduce has not ended after 1 s" in str(error), error
        else:
            raise AssertionError("it did not end")
    dist.barrier()


def nobody_receives() -> None:
    """A message waits for its receiver as long as a collective would: until the group's own time limit."""
    group = dist.new_group()
    if RANK == 1:
        group.set_timeout(timedelta(seconds=1))
        try:
            dist.send(torch.ones(10), 0, group=group)
        except dist.DistBackendError as error:
            assert "send with rank 0 has not ended after 1 s" in str(error), error
        else:
            raise AssertionError("it did not end")
    dist.barrier()


def aborted() -> None:
    """An abort ends what waits, on every rank."""
    group = dist.new_group()
    try:
        if RANK == 1:
            work = dist.all_reduce(torch.ones(10), group=group, async_op=True)
            group.abort()
            work.wait()
        else:
            dist.barrier(group)
    except dist.DistBackendError as error:
        assert "the process group was aborted" in str(error), error
    else:
        raise AssertionError("it did not end")
    dist.barrier()


def ddp_aborted() -> None:
    """A step of DDP whose group ends raises an error on every rank."""
    group = dist.new_group()
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(20, 50), process_group=group)
    wrapped(torch.ones(8, 20)).sum().backward()
    loss = wrapped(torch.ones(8, 20)).sum()
    # The second forward pass broadcasts how gradients are put together; the abort is to end the backward pass.
    dist.barrier()
    try:
        if RANK == 1:
            group.abort()
        loss.backward()
    except RuntimeError as error:
        assert "the process group was aborted" in str(error), error
    else:
        raise AssertionError("it did not end")
    dist.barrier()


CHECKS: dict[str, Callable[[], None]] = {
    check.__name__: check
    for check in (
        reductions, movements, types_are_told_apart, strided, modes_of_autograd, zero_copy, in_any_order, lock_is_free,
        messages, tags_used_once, objects, subgroups, beside_another, on_gpus, tensor_parallel, ddp, fsdp2, refusals,
        too_late, nobody_receives, aborted, ddp_aborted, again_in_the_same_store,
    )
}  # fmt: skip


if __name__ == "__main__":
    dist.init_process_group(os.environ.get("GROUP", "r2ccl"), timeout=timedelta(seconds=60))
    for name in sys.argv[1:]:
        CHECKS[name]()
        print(f"ok {name}", flush=True)
    dist.destroy_process_group()
