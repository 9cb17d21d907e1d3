"""What a job does about a lost NIC: stop and restart, continue with fewer GPUs, or move the traffic. Pure.

    fail-stop     the watchdog ends the job; it restarts on other hosts from its last checkpoint
    adapcc        whoever is silent for 10 s is left out, 3 s for a new context; its replica idles until the repair
    hot_repair    one other NIC carries the lost one's share as well
    balance       all NICs of the host share it
    reranked      the same, and the ring in an order in which neighbours share rails; differs on isolated rails only
    r2cc, ...     the schedule of that alias (`r2ccl_core.planning.algorithms`), where it beats the ring
    recursive     R2CC-AllReduce with a ring for each bandwidth that there is
    auto          the least predicted time

A fail-stop job waits for a flap to end, because the NIC's own retries last longer. It halts for the flap, at least 9 s.
A host without any NIC left ends every job, which then restarts.
"""

from dataclasses import dataclass

from r2ccl_core.errors import UsageError
from r2ccl_core.planning.algorithms import ALGORITHMS, AUTO, for_losses

RETRIES_S = 34.0
"""Duration of InfiniBand's retries, after which the connection is an error."""
LEAST_HALT_S = 9.0
"""Minimum halt of a single-homed job caused by a flap (Alibaba HPN)."""


@dataclass(frozen=True)
class Restart:
    """The cost of a restart, and checkpoints: one every ``interval_h``, ``checkpoint_s`` each (Alibaba: 100 s every 2
    to 4 h). The watchdog is NCCL's default; ``start_s`` is scheduling, start and load at thousands of GPUs."""

    watchdog_s: float = 600.0
    start_s: float = 900.0
    interval_h: float = 3.0
    checkpoint_s: float = 100.0

    def __post_init__(self) -> None:
        if min(self.watchdog_s, self.start_s, self.checkpoint_s) < 0 or self.interval_h <= 0:
            raise UsageError("restart: no time may be negative, and checkpoints are made at some interval")


@dataclass(frozen=True)
class System:
    """``strategy`` of `network.STRATEGIES`, None if the network is left as it is; ``pause_s`` once per failure."""

    name: str
    strategy: str | None
    pause_s: float
    drops_gpus: bool = False

    @property
    def restarts(self) -> bool:
        """Whether a loss ends the job."""
        return self.strategy is None and not self.drops_gpus


SYSTEMS = (
    System("fail-stop", None, 0.0),
    System("adapcc", None, 13.0, drops_gpus=True),
    System("hot_repair", "hot_repair", ALGORITHMS["hot_repair"].pause_s),
    System("balance", "balance", 1.2),
    System("reranked", "reranked", 1.2),
    *(System(alias, alias, one.pause_s) for alias, one in for_losses().items()),
    System("recursive", "recursive", for_losses()["r2cc"].pause_s),
    System(AUTO, AUTO, 0.2),
)


def system_named(name: str) -> System:
    """The system; raises `UsageError` with the available names."""
    for one in SYSTEMS:
        if one.name == name:
            return one
    raise UsageError(f"no system is called {name!r}; there are {', '.join(one.name for one in SYSTEMS)}")
