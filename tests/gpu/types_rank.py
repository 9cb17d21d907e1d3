"""One rank of a check of `GpuCommunicator`: every type and operation, against the same arithmetic in PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from worker import RANK, SIZE, Answer, serve

ELEMENTS = (1 << 22) + 7


def check() -> dict[str, Any]:
    """How many elements were wrong, of how many cases, and what ran."""
    import torch

    from r2ccl_core.gpu.communicator import OPERATIONS, TYPES, GpuCommunicator

    torch.cuda.set_device(0)
    wrong, cases, choices = 0, 0, set()
    values = 3 if SIZE < 6 else 2  # products that every type holds
    root = f"10.99.0.1:{os.environ['CAMPAIGN_PORT']}"
    with GpuCommunicator(RANK, SIZE, root, Path(os.environ["R2CC_SCHEDULES"])) as comm:
        for name in TYPES:
            dtype = getattr(torch, name)
            if name in ("uint32", "uint64"):  # PyTorch has no arithmetic on these
                continue
            for op in OPERATIONS:
                brought = [
                    (torch.arange(ELEMENTS, device="cuda") * 5 + rank).remainder(values).add(1) for rank in range(SIZE)
                ]
                if op == "avg" and not dtype.is_floating_point:
                    continue  # NCCL's
                if op == "avg":  # multiples of the number of ranks: exact in every type
                    brought = [one * SIZE for one in brought]
                stacked = dict.fromkeys(("prod", "max", "min"), torch.stack)
                whole = (stacked | {"sum": sum, "avg": lambda w: sum(w) // SIZE})[op](brought)
                reduced = {
                    "sum": lambda w: w,
                    "avg": lambda w: w,
                    "prod": lambda w: w.prod(0),
                    "max": lambda w: w.amax(0),
                }
                expected = reduced.get(op, lambda w: w.amin(0))(whole).to(dtype)
                mine = brought[RANK].to(dtype)
                for found in (comm.all_reduce(mine, op=op), comm.all_reduce(mine, mine, op=op)):
                    wrong += int((found != expected).sum().item())
                    cases += 1
                    choices.add(comm.choice)
    return {"wrong": wrong, "cases": cases, "choices": sorted(choices)}


def start() -> tuple[dict[str, Any], Answer]:
    """Ready to check."""
    return {"id": ""}, lambda request: {} if request["do"] == "join" else check()


if __name__ == "__main__":
    serve(start)
