"""The interface between a sweep and a workload: what a trial runs, counts, checks and measures. Pure.

A workload is the ``[workload]`` table of its `kind`. A new workload is a file beside this one and a line in `registry`;
its own metrics are records in `reports.metrics` that name it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from harness.events import RankRecord, Timed
from harness.experiment.tables import Duration, Mistake, Model
from harness.workloads.checkers import Checker
from r2ccl_core.units import format_size

BackendName = Literal[
    "perf",
    "simulate",
    "noop",
    "nccl_tests",
    "perftest",
    "torch_gloo",
    "torch_nccl",
    "torch_r2ccl",
    "train_r2ccl",
    "train_gloo",
    "train_nccl",
    "train_mixed",
    "train_torchft",
    "serve_r2ccl",
]

NO_SIZE = 0
"""The size of a trial whose workload has none."""

SHORT_S = 0.03
"""Iterations with a smaller duration are judged in batches (`harness.sweep.in_flight`)."""


class Operation(NamedTuple):
    """A collective of one iteration, for the simulator: its size in bytes, the bytes of the vector that its schedule
    divides, and its earliest start within the iteration, in s. It starts after the previous operation."""

    collective: str
    moved_bytes: int
    vector_bytes: int
    root: int = 0
    ready_s: float = 0.0


class MemoryAdvice(NamedTuple):
    """What to say of a workload that needs more memory than there is: the key to blame and its value, what the memory
    is for (may be empty), and the remedy."""

    key: str
    value: str
    parts: str
    remedy: str


class SimulationModel(Model):
    """What the backend ``simulate`` assumes besides the cluster's own rates."""

    alpha_s: Duration | None = Field(default=None, alias="alpha")
    """Fixed cost of a message on its connection; by default the calibration's, otherwise none."""
    calibration: str | None = None
    """A run folder whose ranks measured the cost of messages on their network."""


class Workload(Model):
    """The common part of every kind. `size_bytes` is one of `grid_sizes`, `ranks` counts those of all hosts."""

    kind: str
    backend: BackendName
    gpus: int = Field(default=1, ge=1, le=16)
    """Ranks per host, in one process."""
    warmup: int = Field(default=1, ge=0, le=1000)
    simulation: SimulationModel = SimulationModel()

    counts: ClassVar[str] = "iterations"
    """What an iteration is called, in the plural."""
    lengthen: ClassVar[str] = ""
    """How to make a trial last longer whose iterations are over before a fault comes; empty: not by one key."""
    checkers: ClassVar[Sequence[Checker]] = ()
    """The definition of "correct"; a trial is wrong by the first checker that gives a reason."""
    backends: ClassVar[Sequence[BackendName]] = ()
    """The backends that can run it, the default first."""

    def grid_sizes(self) -> tuple[int, ...]:
        """The sizes over which trials vary, in bytes."""
        return (NO_SIZE,)

    def iterations_of(self, size_bytes: int, expected_s: float, faulted: bool, seen_s: float) -> int:
        """Timed iterations of a trial, one of which should last `expected_s`. `faulted`: the experiment has faults, so
        they must last until one can come; after `seen_s` all of its faults are over."""
        raise NotImplementedError

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """Lower estimate of one healthy iteration, in s, if a host's NICs carry `host_bytes_s` bytes per second."""
        raise NotImplementedError

    def timed_s(self, iterations: int, expected_s: float) -> float:
        """Lower estimate of the time of so many timed iterations, each of which takes `expected_s`."""
        return iterations * expected_s

    def processor_s(self) -> float:
        """About how long a rank computes in an iteration on one processor, beside what `expected_s` has of it."""
        return 0.0

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """The least bytes that each host sends in one iteration."""
        raise NotImplementedError

    def operations(self, size_bytes: int, ranks: int, compute_s: float) -> Sequence[Operation]:
        """The operations of an iteration that computes for `compute_s`, in order."""
        raise NotImplementedError

    def all_bytes(self, size_bytes: int, hosts: int) -> float:
        """The least bytes that all hosts together send in one iteration."""
        return hosts * self.host_bytes(size_bytes, hosts)

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """The bytes that a rank holds in its host's memory."""
        raise NotImplementedError

    def memory_advice(self, size_bytes: int, ranks: int) -> MemoryAdvice:
        """What to say where `memory_bytes` are not there."""
        key, value = ("workload.sizes", format_size(size_bytes)) if size_bytes else ("workload", self.kind)
        return MemoryAdvice(key, value, "", "choose a smaller")

    def fills_memory(self, backends: Sequence[str]) -> bool:
        """Whether these bytes are in the hosts' memory with one of `backends`."""
        return True

    def about(self, size_bytes: int) -> dict[str, Any]:
        """The description of what ran, for trial.json."""
        raise NotImplementedError

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """The measures of one iteration besides its time, for trial.json; `timed` is every rank's report of it."""
        return {}

    def results(self, ranks: Sequence[RankRecord]) -> Mapping[str, Any]:
        """The results of a completed trial, for trial.json."""
        return {}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """Mistakes in combinations of keys that are each valid, on this number of hosts."""
        return iter(())
