"""One rank of a training run: a small GPT under DistributedDataParallel that answers with its losses."""

from __future__ import annotations

import os
import time
from typing import Any

from worker import RANK, SIZE, Answer, serve

VOCABULARY, CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 512, 128, 384, 6, 6, 8


def model(torch: Any) -> Any:
    """A decoder of about 11 million parameters; the embedding is a matrix product, whose gradient is deterministic."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            parts = self.mix(self.before(x)).view(b, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = parts[0] @ parts[1].transpose(-1, -2) / (WIDTH // HEADS) ** 0.5
            mask = torch.ones(t, t, device=x.device).triu(1).bool()
            mixed = scores.masked_fill(mask, float("-inf")).softmax(-1) @ parts[2]
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.think(self.after(x))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Linear(VOCABULARY, WIDTH, bias=False)
            self.places = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
            self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
            self.head = nn.Linear(WIDTH, VOCABULARY)

        def forward(self, ids: Any) -> Any:
            hot = nn.functional.one_hot(ids, VOCABULARY).float()
            return self.head(self.blocks(self.tokens(hot) + self.places[: ids.shape[1]]))

    return Gpt()


class Trainer:
    """Joins a process group, then trains as often as it is asked to, each time from the same beginning."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.cuda.set_device(0)
        torch.use_deterministic_algorithms(True)
        torch.backends.cuda.matmul.allow_tf32 = False

    def join(self) -> dict[str, Any]:
        """All ranks at once."""
        address = f"tcp://10.99.0.1:{os.environ['CAMPAIGN_PORT']}"
        self.torch.distributed.init_process_group("nccl", init_method=address, rank=RANK, world_size=SIZE)
        self.torch.distributed.all_reduce(self.torch.ones(1, device="cuda"))
        self.torch.cuda.synchronize()
        return {"torch": self.torch.__version__}

    def train(self, steps: int) -> dict[str, Any]:
        """The losses as hexadecimal floats, and when it began and ended on the machine's monotonic clock."""
        torch = self.torch
        torch.manual_seed(1)
        net = torch.nn.parallel.DistributedDataParallel(model(torch).cuda(), device_ids=[0])
        optimizer = torch.optim.AdamW(net.parameters(), lr=3e-4)
        chance = torch.Generator().manual_seed(100 + RANK)
        losses = []
        begin = time.monotonic_ns()
        for _ in range(steps):
            start = torch.randint(0, VOCABULARY, (BATCH, 1), generator=chance)
            ids = ((start + torch.arange(CONTEXT + 1) * 7) % VOCABULARY).cuda()
            logits = net(ids[:, :-1])
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.item()).hex())
        return {"losses": losses, "begin": begin, "end": time.monotonic_ns()}


def start() -> tuple[dict[str, Any], Answer]:
    """Ready to train."""
    trainer = Trainer()
    return {"id": ""}, lambda request: trainer.join() if request["do"] == "join" else trainer.train(request["steps"])


if __name__ == "__main__":
    serve(start)
