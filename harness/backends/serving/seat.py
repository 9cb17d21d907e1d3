"""The start parameters of a process of the engine, and the opening of its ends of the network."""

import argparse
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.backends.serving.cache import pages_for
from harness.backends.serving.model import Shape
from harness.workloads.arrivals import Arrival, read_arrivals
from r2ccl_core.control.rendezvous import parse_root
from r2ccl_core.host.nics import Nic, find_nics
from r2ccl_core.perf.events import Events, own_stream
from r2ccl_core.transfer import TransferEngine

MOST_TOGETHER = 8
"""The most requests that are decoded together and hold pages."""
ON_FAILURE = "SERVE_ON_FAILURE"
"""Variable: the policy of a replica whose transport has given up; unset: it exits."""
POLICIES = ("transfer_again", "recompute", "reroute", "restart")
PROBE_S = 0.5


@dataclass
class Seat:
    """One process: its rank, its NICs, the model and the requests. Rank 0 is the prefill host."""

    shape: Shape
    seed: int
    arrivals: Sequence[Arrival]
    warmup: int
    timeout_s: float
    check: bool
    corrupt: int | None
    prefill_at_least_s: float
    step_at_least_s: float
    rank: int = field(default_factory=lambda: int(os.environ["R2CC_RANK"]))
    ranks: int = field(default_factory=lambda: int(os.environ["R2CC_SIZE"]))
    root: tuple[str, int] = field(default_factory=lambda: parse_root(os.environ["R2CC_ROOT"]))
    mode: int = field(default_factory=lambda: int(os.environ.get("R2CC_MODE", "2")))
    policy: str = field(default_factory=lambda: os.environ.get(ON_FAILURE, ""))
    nics: Sequence[Nic] = field(default_factory=find_nics)
    events: Events = field(init=False)

    def __post_init__(self) -> None:
        self._out = own_stream()
        self.events = Events(self.rank, True, self._out)

    def keep_events(self) -> None:
        """Gives standard output back to the events, for the program that replaces this process."""
        os.dup2(self._out.fileno(), 1)

    @property
    def parts(self) -> int:
        """Number of hosts that decode, each with a part of the model."""
        return self.ranks - 1

    @property
    def pages(self) -> int:
        """Number of pages of a decode host."""
        return MOST_TOGETHER * max(pages_for(one.prompt + one.generated) for one in self.arrivals)

    def engine(self, rails: Sequence[int]) -> TransferEngine:
        """An engine over the NICs of these rails."""
        # A process has one status file, which is the communicator's.
        options = {"R2CC_STATUS_DIR": ""} if self.rank else {}
        return TransferEngine(f"host {self.rank}", nics=self.chosen(rails), mode=self.mode, options=options)

    def chosen(self, rails: Sequence[int]) -> list[Nic]:
        """The NICs of these rails."""
        return [self.nics[rail] for rail in rails]


def read_seat() -> Seat:
    """Reads the command line and the environment."""
    parser = argparse.ArgumentParser(prog="serving", description="One host of a small engine that serves a GPT.")
    for name in ("layers", "width", "heads", "context"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--arrivals", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--timeout-s", type=float, default=60.0)
    parser.add_argument("--check", type=int, default=1)
    parser.add_argument("--corrupt", type=int, default=None)
    parser.add_argument("--at-least-s", type=float, nargs=2, default=(0.0, 0.0))
    args = parser.parse_args()
    shape = Shape(args.layers, args.width, args.heads, args.context)
    arrivals = read_arrivals(args.arrivals)
    return Seat(
        shape, args.seed, arrivals, args.warmup, args.timeout_s, bool(args.check), args.corrupt, *args.at_least_s
    )


def wait_until(since_s: float, at_least_s: float) -> None:
    """Sleeps until `at_least_s` are over since `since_s` of the monotonic clock."""
    time.sleep(max(0.0, since_s + at_least_s - time.monotonic()))


class Doors:
    """A listening port on each NIC: a connection to it shows that its rail works. Connections are accepted and
    closed."""

    def __init__(self, nics: Sequence[Nic]) -> None:
        self._servers = [socket.create_server((address, 0)) for _, address in nics]
        self.addresses = [server.getsockname()[:2] for server in self._servers]
        for server in self._servers:
            threading.Thread(target=self._take, args=(server,), name="door", daemon=True).start()

    @staticmethod
    def _take(server: socket.socket) -> None:
        while True:
            try:
                server.accept()[0].close()
            except OSError:
                return


def rails_to(nics: Sequence[Nic], doors: Sequence[Sequence[Any]]) -> set[int]:
    """The rails on which these NICs reach another host's doors."""
    found: set[int] = set()

    def knock(rail: int) -> None:
        try:
            socket.create_connection(tuple(doors[rail]), PROBE_S, (nics[rail][1], 0)).close()
        except OSError:
            return
        found.add(rail)

    threads = [threading.Thread(target=knock, args=(rail,)) for rail in range(len(nics))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
