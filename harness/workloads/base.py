"""The interface between a sweep and a workload: what a trial runs, counts, checks and measures. Pure.

A workload is the ``[workload]`` table of its `kind`. A new one is a file beside this one and a line in `registry`; a
metric of its own is a record in `reports.metrics` that names it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from harness.events import RankRecord, Timed
from harness.experiment.tables import Duration, Mistake, Model
from harness.workloads.checkers import Checker

BackendName = Literal[
    "perf",
    "simulate",
    "noop",
    "nccl_tests",
    "torch_gloo",
    "torch_nccl",
    "torch_r2ccl",
    "train_r2ccl",
    "train_gloo",
    "train_nccl",
    "train_torchft",
    "serve_r2ccl",
]

NO_SIZE = 0
"""The size of a trial whose workload has none."""


class Operation(NamedTuple):
    """A collective of one iteration, for the simulator: the bytes that it is told to move, those of the vector that its
    schedule cuts up, and when in the iteration it may begin, in s. It begins after the one before."""

    collective: str
    moved_bytes: int
    vector_bytes: int
    root: int = 0
    ready_s: float = 0.0


class SimulationModel(Model):
    """What the backend ``simulate`` assumes beside the cluster's own rates."""

    alpha_s: Duration | None = Field(default=None, alias="alpha")
    """Fixed cost of a message on its connection; by default the calibration's, else none."""
    calibration: str | None = None
    """A run folder whose ranks measured what messages cost on their network."""


class Workload(Model):
    """What every kind has. `size_bytes` is one of `grid_sizes`, `ranks` counts those of all hosts."""

    kind: str
    backend: BackendName
    gpus: int = Field(default=1, ge=1, le=16)
    """Ranks of each host, in one process."""
    warmup: int = Field(default=1, ge=0, le=1000)
    simulation: SimulationModel = SimulationModel()

    counts: ClassVar[str] = "iterations"
    """What an iteration is called, in the plural."""
    checkers: ClassVar[Sequence[Checker]] = ()
    """What "correct" means; a trial is wrong by the first that says why."""
    backends: ClassVar[Sequence[BackendName]] = ()
    """Those that run it, the usual one first."""

    def grid_sizes(self) -> tuple[int, ...]:
        """The sizes that trials differ in, in bytes."""
        return (NO_SIZE,)

    def iterations_of(self, size_bytes: int, expected_s: float) -> int:
        """Timed iterations of a trial, one of which should last `expected_s`."""
        raise NotImplementedError

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """Lower estimate of one healthy iteration, where a host's NICs carry `host_bytes_s`."""
        raise NotImplementedError

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """What each host sends at least in one iteration."""
        raise NotImplementedError

    def operations(self, size_bytes: int, ranks: int, compute_s: float) -> Sequence[Operation]:
        """What an iteration that computes for `compute_s` moves, in order."""
        raise NotImplementedError

    def all_bytes(self, size_bytes: int, hosts: int) -> float:
        """What all hosts together send at least in one iteration."""
        return hosts * self.host_bytes(size_bytes, hosts)

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """What a rank holds in its host's memory."""
        raise NotImplementedError

    def fills_memory(self, backends: Sequence[str]) -> bool:
        """Whether that is in the hosts' memory with one of `backends`."""
        return True

    def about(self, size_bytes: int) -> dict[str, Any]:
        """What trial.json says of what ran."""
        raise NotImplementedError

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """What trial.json says of one iteration beside its time; `timed` is what every rank said of it."""
        return {}

    def results(self, ranks: Sequence[RankRecord]) -> Mapping[str, Any]:
        """What trial.json says of a whole trial that came to its end."""
        return {}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """What is wrong between keys that are each right by themselves, on so many hosts."""
        return iter(())
