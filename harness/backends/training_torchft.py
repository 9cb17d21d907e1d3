"""A rank that trains under torchft: gloo averages the gradients of replicas, and a step is kept only if that succeeded.

A step that fails is dropped: its batch is not learned from, and the replicas that are left agree on a new group for the
next one. Here every rank is a replica of its own, and rank 0 runs the lighthouse that they meet at.
"""

import argparse
import hashlib
import os
import time
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

from r2ccl_core.control.rendezvous import address_towards, parse_root
from r2ccl_core.perf.events import Events

TIMEOUT = "TORCHFT_TIMEOUT_SEC"
"""torchft's own variable: after how long a step is dropped."""
_MOST_DROPPED = 3
"""Steps in a row, after which it ends with an error."""


class TorchftTrainer:
    """The model, its text and the manager."""

    def __init__(self, args: argparse.Namespace) -> None:
        import torch
        from torch.distributed import TCPStore
        from torchft import Manager, ProcessGroupGloo
        from torchft.coordination import LighthouseServer
        from torchft.ddp import DistributedDataParallel

        from harness.backends.gpt import Gpt
        from harness.backends.text import source

        self._args, self._rank, size = args, int(os.environ["R2CC_RANK"]), int(os.environ["R2CC_SIZE"])
        host, port = parse_root(os.environ["R2CC_ROOT"])
        own = address_towards(host, port)
        limit = timedelta(seconds=float(os.environ.get(TIMEOUT, args.timeout_s)))
        self._meeting = TCPStore(host, port, size, self._rank == 0, timedelta(seconds=60))
        if self._rank == 0:
            self._lighthouse = LighthouseServer(bind="[::]:0", min_replicas=size - 1)
            self._meeting.set("lighthouse", self._lighthouse.address().rpartition(":")[2])
        torch.manual_seed(args.seed)
        self.model = Gpt(args.layers, args.width, args.heads, args.context)
        self._text, self._store = source(args.text, args.seed), TCPStore(own, 0, None, True, wait_for_workers=False)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=args.learning_rate)
        self._manager = Manager(
            pg=ProcessGroupGloo(timeout=limit),
            load_state_dict=self._load,
            state_dict=self._state,
            min_replica_size=size - 1,
            timeout=limit,
            rank=0,
            world_size=1,
            store_addr=own,
            store_port=self._store.port,
            lighthouse_addr=f"http://{host}:{self._meeting.get('lighthouse').decode()}",
            replica_id=f"train_{self._rank}",
            hostname=own,
            init_sync=False,
            max_retries=_MOST_DROPPED,
        )
        self._wrapped = DistributedDataParallel(self._manager, self.model, bucket_cap_mb=args.bucket_bytes / (1 << 20))
        self._meeting.set(f"up{self._rank}", "")
        self._meeting.wait([f"up{rank}" for rank in range(size)])

    def step(self, step: int) -> tuple[float | None, int]:
        """The loss of this replica's batch, None where the step was dropped; the time of its forward in ns."""
        from harness.backends.gpt import cross_entropy

        args, start_ns = self._args, time.perf_counter_ns()
        given, following = self._text.batch(step + args.warmup, self._rank, args.batch, args.context)
        self._manager.start_quorum()
        self.optimizer.zero_grad()
        loss = cross_entropy(self._wrapped(given), following)
        forward_ns = time.perf_counter_ns() - start_ns
        loss.backward()
        kept = self._manager.should_commit()
        if kept:
            self.optimizer.step()
        return (float(loss.item()) if kept else None), forward_ns

    def digest(self) -> str:
        """Of the bits of all weights."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            found.update(parameter.detach().numpy().tobytes())
        return found.hexdigest()[:16]

    def agree(self, step: int) -> int:
        """Nothing is started again here."""
        return step

    def live_log(self, events: Events) -> AbstractContextManager[object]:
        """gloo tells nothing."""
        return nullcontext()

    def describe(self) -> dict[str, Any]:
        """What moved the gradients, for the stored trial."""
        return {"library": "torchft", "mode": 0, "nics": [], "events": []}

    def leave(self) -> None:
        """The manager's threads end with the process; the lighthouse stays until all ranks are done."""
        self._meeting.set(f"done{self._rank}", "")
        if self._rank == 0:
            self._meeting.wait([f"done{rank}" for rank in range(int(os.environ["R2CC_SIZE"]))])

    def _state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def _load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
