"""One of four ranks that train the same small GPT in every layout, after each other, and hold it against one process.

Started by test_training_layouts.py with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and R2CC_SOCKET_IFNAME.
"""

import copy
from datetime import timedelta

import torch
import torch.distributed as dist

from harness.backends.gpt import Gpt, cross_entropy
from harness.backends.parallel import Degrees, Spread, local
from harness.backends.text import Words

SHAPE, CONTEXT, BATCH, STEPS = (2, 32, 4), 12, 4, 3
LAYOUTS = (
    Degrees(dp=4),
    Degrees(dp=4, sharded=True),
    Degrees(tp=4),
    Degrees(tp=2, pp=2, micro_batches=2),
    Degrees(dp=2, tp=2),
    Degrees(dp=2, tp=2, sharded=True),
    Degrees(dp=2, pp=2, micro_batches=4),
    Degrees(dp=2, pp=2, micro_batches=2, sharded=True),
)


def lacks(layout: Degrees) -> str:
    """Why this version of PyTorch cannot run the layout, over any back end; empty if it can."""
    if layout.sharded and torch.__version__.startswith("2.6."):
        return "FSDP2 records events on CPU streams, which have none"
    if layout.pp > 1 and torch.__version__.startswith("2.9."):
        return "the warm-up of pipelines sends 8 bytes to a receive of 4"
    return ""


def alone(model: Gpt, replicas: int) -> tuple[list[float], Gpt]:
    """Mean losses and final model of one process that sees the batches of all replicas."""
    optimizer, text, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), Words(0), []
    for step in range(STEPS):
        optimizer.zero_grad()
        parts = [text.batch(step, replica, BATCH, CONTEXT) for replica in range(replicas)]
        loss = torch.stack([cross_entropy(model(given), following) for given, following in parts]).mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.item()))
    return losses, model


def spread(model: Gpt, degrees: Degrees) -> tuple[list[float], Spread]:
    """The same of this rank and its part."""
    part, text, losses = Spread(model, degrees, 4096), Words(0), []
    optimizer = torch.optim.AdamW(part.part.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimizer.zero_grad()
        own = part.step(*text.batch(step, part.replica, BATCH, CONTEXT), lambda: None)
        optimizer.step()
        told: list[float | None] = [None] * dist.get_world_size()
        dist.all_gather_object(told, own)
        known = [loss for loss in told if loss is not None]
        losses.append(sum(known) / len(known))
    return losses, part


def check(degrees: Degrees) -> None:
    """Losses are those of one process but for rounding; ranks that hold the same part hold the same bits."""
    torch.manual_seed(1)
    model = Gpt(*SHAPE, CONTEXT)
    expected, whole = alone(copy.deepcopy(model), degrees.dp)
    losses, part = spread(model, degrees)
    assert torch.allclose(torch.tensor(losses), torch.tensor(expected), atol=1e-4), (degrees, losses, expected)
    if part.stage == 0:
        own = part.part.places.weight
        full = own.full_tensor() if hasattr(own, "full_tensor") else own
        assert torch.allclose(full, whole.places.weight, atol=2e-3), degrees
    names = [name for name, _ in part.part.named_parameters()]
    assert len(names) == len(set(names)) and ("norm.weight" in names) == (part.stage == degrees.pp - 1)
    bits = b"".join(local(p.detach()).contiguous().numpy().tobytes() for p in part.part.parameters())
    told: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(told, (part.place, bits))
    same = [other for place, other in told if place == part.place]
    assert len(same) == (1 if degrees.sharded else degrees.dp) and all(other == bits for other in same), degrees


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("r2ccl", timeout=timedelta(seconds=60))
    for layout in LAYOUTS:
        if why := lacks(layout):
            print(f"left out {layout}: {why}", flush=True)
            continue
        check(layout)
        print(f"ok {layout}", flush=True)
    dist.destroy_process_group()
