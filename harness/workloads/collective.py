"""One collective over all hosts, repeated, on test data whose every element is compared."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field

from harness.events import Timed
from harness.experiment.tables import Duration, Mistake, Size
from harness.workloads.base import SHORT_S, BackendName, Operation, Workload
from harness.workloads.checkers import Checker, elements
from r2ccl_core.errors import UnitError
from r2ccl_core.model.bandwidth import bandwidths_gbs, bus_factor, least_bytes, moved_bytes
from r2ccl_core.runtime.buffers import APART
from r2ccl_core.units import format_size, parse_size

MAX_SIMULATED_BYTES = 1 << 42
"""Limit for all ranks' vectors together: the simulator holds every message of a schedule, some 5 GB at this size."""

MAX_BYTES = 1 << 47
"""The addresses of a process have 47 bits, so that no array is larger, whatever memory a host has."""

LEAST_S = 50e-6
"""No collective between hosts is shorter: by the rate alone one of 4 bytes would take 20 ns, and a trial of one second
fifty million of them."""

FAULTED_S = 0.5
"""The default of `min_duration` for an experiment with faults, where short collectives would take less than half of it:
they may end before a fault comes, on a busy machine."""

SEVERAL_BLOCKS = ("sendrecv", "alltoall")
"""Collectives whose schedules work on the blocks of all ranks, of which each rank has one."""

SEVERAL_RANKS = frozenset({"perf", "simulate", "nccl_tests"})
"""Backends that run several ranks per host."""


def are_few(iterations: int, expected_s: float) -> bool:
    """Whether collectives of this duration may all be over before a fault comes."""
    return expected_s < SHORT_S and iterations * max(expected_s, LEAST_S) < FAULTED_S / 2


class CollectiveWorkload(Workload):
    """``kind = "collective"``, the default: `gpus` ranks on each host."""

    kind: Literal["collective"] = "collective"
    backend: BackendName = "perf"
    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall"] = (
        "all_reduce"
    )
    sizes_bytes: tuple[Size, ...] = Field(alias="sizes", min_length=1)
    dtype: Literal["float32", "float64", "int32", "int64", "float16", "bfloat16"] = "float32"
    op: Literal["sum", "min", "max", "prod"] = "sum"
    place: Literal["out", "in"] = "out"
    root: int = Field(default=0, ge=0)
    """The rank at which broadcast starts and reduce ends."""
    iterations: int = Field(default=10, ge=1, le=100_000)
    iterations_by_size: dict[str, int] = Field(default_factory=dict)
    """Iterations for single sizes, by the size as written: ``{"64MiB" = 7}``."""
    min_duration_s: Duration | None = Field(default=None, alias="min_duration")
    """Iterations are added until a healthy trial should last this long. By default that is as long as it takes to see
    every fault to its end (`lasts`, `also`, `times`), and at least 0.5 s if the experiment has faults and its
    collectives are short and take less than 0.25 s; otherwise none are added."""
    check: bool = True
    nccl_tests: str | None = None
    """The folder of a build of nccl-tests, the same on every host."""
    launcher: Literal["mpirun", "mpiexec", "srun", "ssh"] = "mpirun"
    """The launcher of nccl-tests' processes, one per host: Open MPI, MPICH and similar, Slurm; ``ssh``: the harness
    itself starts one process on one host."""
    launch_args: tuple[str, ...] = ()
    """More words for the launcher, before the program."""

    ib_write_bw: str = "ib_write_bw"
    """perftest's program, by name or path, the same on every host."""

    lengthen: ClassVar[str] = "a longer workload.min_duration adds iterations"
    checkers: ClassVar[Sequence[Checker]] = (elements,)
    backends: ClassVar[Sequence[BackendName]] = (
        "perf",
        "simulate",
        "noop",
        "nccl_tests",
        "perftest",
        "torch_gloo",
        "torch_nccl",
        "torch_r2ccl",
    )

    def grid_sizes(self) -> tuple[int, ...]:
        """The sizes of a rank's larger array, in bytes."""
        return self.sizes_bytes

    def iterations_of(self, size_bytes: int, expected_s: float, faulted: bool, seen_s: float) -> int:
        """As many as requested, and at least as many as `min_duration` takes; small ones wait, whatever the rate."""
        asked = self.asked_iterations(size_bytes)
        least_s = self.min_duration_s
        if least_s is None:
            least_s = max(seen_s, FAULTED_S if faulted and are_few(asked, expected_s) else 0.0)
        return max(asked, math.ceil(least_s / max(expected_s, LEAST_S)))

    def asked_iterations(self, size_bytes: int) -> int:
        """As many as the experiment names, whatever they take."""
        named = {parse_size(size): n for size, n in self.iterations_by_size.items()}
        return named.get(size_bytes, self.iterations)

    def expected_s(self, size_bytes: int, ranks: int, host_bytes_s: float) -> float:
        """From the bus bandwidth, which is the rate of a host's NICs."""
        return size_bytes * bus_factor(self.collective, ranks) / host_bytes_s

    def host_bytes(self, size_bytes: int, hosts: int) -> float:
        """The bytes that bus bandwidth counts."""
        return moved_bytes(self.collective, size_bytes, self.dtype, hosts) * bus_factor(self.collective, hosts)

    def operations(self, size_bytes: int, ranks: int, compute_s: float) -> Sequence[Operation]:
        """The collective itself."""
        moved = moved_bytes(self.collective, size_bytes, self.dtype, ranks)
        vector = moved * (ranks if self.collective in SEVERAL_BLOCKS else 1)
        return (Operation(self.collective, moved, vector, self.root),)

    def all_bytes(self, size_bytes: int, hosts: int) -> float:
        """The last host of a chain sends nothing."""
        senders = hosts - 1 if self.collective in ("broadcast", "reduce") else hosts
        return senders * self.host_bytes(size_bytes, hosts)

    def memory_bytes(self, size_bytes: int, ranks: int) -> int:
        """The size is that of the larger array, as in nccl-tests."""
        parts = ranks if self.collective in ("all_gather", "reduce_scatter") else 1
        return size_bytes + (size_bytes // parts if self.place == "out" else 0)

    def fills_memory(self, backends: Sequence[str]) -> bool:
        """Our own measuring program keeps its vectors there; others may keep them on GPUs."""
        return "perf" in backends

    def about(self, size_bytes: int) -> dict[str, Any]:
        """The columns of a collective."""
        return {
            "collective": self.collective,
            "size_bytes": size_bytes,
            "dtype": self.dtype,
            "op": self.op,
            "place": self.place,
        }

    def measures(self, size_bytes: int, ranks: int, timed: Sequence[Timed], duration_s: float) -> Mapping[str, Any]:
        """Algorithm and bus bandwidth."""
        algbw, busbw = bandwidths_gbs(self.collective, size_bytes, self.dtype, ranks, duration_s)
        return {"algbw_gbs": algbw, "busbw_gbs": busbw}

    def mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        """Mistakes in roots, sizes, iterations by size, ranks per host, and the needs of nccl-tests."""
        ranks = hosts * self.gpus
        if ranks < 2:
            yield Mistake("cluster.hosts", 1, "a collective needs at least 2")
        if self.place == "in" and self.collective in APART:
            yield Mistake("workload.place", "in", f'{self.collective} has no form in place; use "out"')
        if self.root >= ranks:
            yield Mistake("workload.root", self.root, f"ranks go from 0 to {ranks - 1}")
        wrong_sizes = list(self._size_mistakes(ranks, "simulate" in backends))
        yield from wrong_sizes
        if not any("more than once" in mistake.remedy for mistake in wrong_sizes):
            yield from self._iteration_mistakes()
        yield from self._backend_mistakes(hosts, backends)

    def _size_mistakes(self, ranks: int, simulated: bool) -> Iterator[Mistake]:
        # A power of two, for the text.
        most = 1 << (MAX_SIMULATED_BYTES // max(1, ranks)).bit_length() - 1 if simulated else math.inf
        for size in self.sizes_bytes:
            if size > most:
                remedy = f"too large to simulate on {ranks} ranks; give at most {format_size(int(most))}"
                yield Mistake("workload.sizes", format_size(size), remedy)
            elif size > MAX_BYTES:
                remedy = f"no memory holds it; give at most {format_size(MAX_BYTES)}"
                yield Mistake("workload.sizes", format_size(size), remedy)
            if size == 0:
                yield Mistake(
                    "workload.sizes", "0", "a collective of no bytes moves nothing; give at least one element"
                )
            elif size < (least := least_bytes(self.collective, self.dtype, ranks)):
                remedy = f"too small for {self.collective} of {self.dtype}; give at least {format_size(least)}"
                yield Mistake("workload.sizes", format_size(size), remedy)
            if self.sizes_bytes.count(size) > 1:
                yield Mistake("workload.sizes", format_size(size), "is given more than once; name each size once")
                return

    def _iteration_mistakes(self) -> Iterator[Mistake]:
        for written, count in self.iterations_by_size.items():
            key = f"workload.iterations_by_size.{written}"
            try:
                size = parse_size(written)
            except UnitError as error:
                yield Mistake(key, written, str(error))
                continue
            if size not in self.sizes_bytes:
                known = ", ".join(map(format_size, self.sizes_bytes))
                yield Mistake(key, written, f"not one of workload.sizes; these are {known}")
            if count < 1:
                yield Mistake(key, count, "at least 1 iteration is needed")

    def _backend_mistakes(self, hosts: int, backends: Sequence[str]) -> Iterator[Mistake]:
        for backend in sorted(set(backends) - SEVERAL_RANKS if self.gpus > 1 else ()):
            yield Mistake("workload.gpus", self.gpus, f"{backend} runs one rank per host")
        if hosts < 2 <= self.gpus and {"perf", "simulate"} & set(backends):
            yield Mistake("cluster.hosts", hosts, "ranks of one host use no NIC; give at least 2")
        if "nccl_tests" not in backends:
            return
        if self.nccl_tests is None:
            yield Mistake("workload.nccl_tests", None, "name the folder of a build of nccl-tests, such as .../build")
        if self.launcher == "ssh" and hosts > 1:
            remedy = "without MPI nccl-tests is one process on one host; use mpirun, mpiexec or srun"
            yield Mistake("workload.launcher", "ssh", remedy)
