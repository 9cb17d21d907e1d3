"""An experiment as values: the models of the TOML file, and what they say that no single key can.

Keys are named as in the file (aliases); attributes carry the unit. Quantities are written with units and are
held as bytes, bit/s and seconds. Reading a file and turning mistakes into lines is `harness.experiment_file`.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import Field, model_validator

from harness.bound_model import BoundModel, bound_mistakes
from harness.cluster.spec import ClusterSpec, NoopSpec
from harness.fault_tables import FaultModel, Setting, fault_mistakes
from harness.sweep_model import (
    HEALTHY,
    HEALTHY_AFTER,
    HEALTHY_BEFORE,
    AxisModel,
    SweepModel,
    axis_mistakes,
    repeats_mistakes,
)
from harness.systems.base import Expectation, Mode
from harness.systems.catalogue import CATALOGUE, fill
from harness.tables import Duration, Mistake, Model, Size, Slug
from r2ccl_core.bandwidth import bus_factor, least_bytes
from r2ccl_core.buffers import APART
from r2ccl_core.errors import UnitError, UsageError
from r2ccl_core.units import format_size, parse_size

TCP_SHARE = 0.956
"""Share of a NIC's rate that TCP at MTU 1500 carries as payload (1448 bytes of 1514)."""


BackendName = Literal["perf", "simulate", "noop", "nccl_tests", "torch_gloo", "torch_nccl"]

MAX_SIMULATED_BYTES = 1 << 42
"""Of all ranks' vectors together: the simulator holds every message of a schedule, here some 5 GB of them."""

SEVERAL_RANKS = frozenset({"perf", "simulate", "nccl_tests"})
"""Backends that run several ranks on a host."""


class SimulationModel(Model):
    """What the backend ``simulate`` assumes beside the cluster's own rates."""

    alpha_s: Duration | None = Field(default=None, alias="alpha")
    """Fixed cost of a message on its connection; by default the calibration's, else none."""
    calibration: str | None = None
    """A run folder whose ranks measured what messages cost on their network."""


class WorkloadModel(Model):
    """What runs: one collective over all hosts, `gpus` ranks on each."""

    backend: BackendName = "perf"
    collective: Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall"] = (
        "all_reduce"
    )
    sizes_bytes: tuple[Size, ...] = Field(alias="sizes", min_length=1)
    dtype: Literal["float32", "float64", "int32", "int64", "float16", "bfloat16"] = "float32"
    op: Literal["sum", "min", "max", "prod"] = "sum"
    place: Literal["out", "in"] = "out"
    root: int = Field(default=0, ge=0)
    """The rank that broadcast begins at and reduce ends at."""
    iterations: int = Field(default=10, ge=1, le=100_000)
    iterations_by_size: dict[str, int] = Field(default_factory=dict)
    """Iterations for single sizes, by the size as written: ``{"64MiB" = 7}``."""
    min_duration_s: Duration = Field(default=0.0, alias="min_duration")
    """Iterations are added until a healthy trial should last this long."""
    warmup: int = Field(default=1, ge=0, le=1000)
    check: bool = True
    nccl_tests: str | None = None
    """The folder of a build of nccl-tests, the same on every host."""
    launcher: Literal["mpirun", "mpiexec", "srun", "ssh"] = "mpirun"
    """What starts nccl-tests' processes, one a host: Open MPI, MPICH and its like, Slurm; ``ssh``: the harness itself,
    one process on one host."""
    launch_args: tuple[str, ...] = ()
    """More words for the launcher, before the program."""
    gpus: int = Field(default=1, ge=1, le=16)
    """Ranks of each host, in one process: threads of our own program, GPUs of nccl-tests."""
    simulation: SimulationModel = SimulationModel()


class SystemModel(Model):
    """One system under test: an entry of the catalogue (`use`), or our core in one mode; with its environment."""

    name: Slug
    use: str | None = None
    path: str | None = None
    """Of the plugin or library, where the entry takes one."""
    backend: BackendName | None = None
    """Where it is not the workload's."""
    mode: Mode
    env: dict[str, str] = Field(default_factory=dict)
    network: str | None = None
    """The network that NCCL's log must name, such as IB or Socket."""
    expect_on_fault: Expectation = "ok"

    @model_validator(mode="before")
    @classmethod
    def _from_catalogue(cls, values: Any) -> Any:
        return fill(values) if isinstance(values, dict) and values.get("use") is not None else values


class Experiment(Model):
    """A whole experiment file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Slug
    description: str = ""
    project_targets: bool = False
    """Whether its report holds the results against the targets that the project has set its own core."""
    cluster: ClusterSpec
    workload: WorkloadModel
    systems: tuple[SystemModel, ...] = Field(alias="system", min_length=1)
    faults: tuple[FaultModel, ...] = Field(default=(), alias="fault")
    sweep: SweepModel = SweepModel()
    axes: tuple[AxisModel, ...] = Field(default=(), alias="axis")
    bounds: tuple[BoundModel, ...] = Field(default=(), alias="bound")

    def resolved(self) -> dict[str, Any]:
        """The whole experiment with every default filled in, under the file's own keys; plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def backend_of(self, system: SystemModel) -> BackendName:
        """What runs `system`: its own word, else the workload's, else the usual one of its catalogue entry."""
        if system.backend is not None:
            return system.backend
        fits = CATALOGUE[system.use].backends if system.use else ()
        return self.workload.backend if not fits or self.workload.backend in fits else cast(BackendName, fits[0])

    @property
    def nranks(self) -> int:
        """Ranks of all hosts."""
        return len(self.cluster.host_names()) * self.workload.gpus

    @property
    def ready_s(self) -> float:
        """How long ranks may take until all are connected."""
        return self.sweep.limits.ready_s * self.cluster.start_factor

    def expected_duration_s(self, size_bytes: int) -> float:
        """Lower estimate of one healthy iteration: busbw is what TCP carries over all NICs of the slowest host."""
        payload_bytes_s = self.cluster.bandwidth_bit_s() / 8 * TCP_SHARE
        return size_bytes * bus_factor(self.workload.collective, self.nranks) / payload_bytes_s

    def iterations_of(self, size_bytes: int) -> int:
        """Timed iterations of a trial of this size."""
        workload = self.workload
        named = {parse_size(size): n for size, n in workload.iterations_by_size.items()}
        count = named.get(size_bytes, workload.iterations)
        filling = math.ceil(workload.min_duration_s / self.expected_duration_s(size_bytes))
        return max(count, filling)


def mistakes(experiment: Experiment) -> list[Mistake]:
    """What is wrong between keys that are each right by themselves."""
    found = [*_workload_mistakes(experiment), *_system_mistakes(experiment), *_name_mistakes(experiment)]
    found += _sweep_mistakes(experiment)
    return found or list(fault_mistakes(experiment.faults, _setting(experiment)))


def _setting(experiment: Experiment) -> Setting:
    cluster = experiment.cluster
    iterations = {size: experiment.iterations_of(size) for size in experiment.workload.sizes_bytes}
    return Setting(cluster.data_nics(), iterations, not isinstance(cluster, NoopSpec), experiment.sweep.limits.trial_s)


def _sweep_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    sweep = experiment.sweep
    cells = len(experiment.systems) * len(experiment.workload.sizes_bytes)
    block = cells * max(1, len(experiment.faults)) + cells * (2 if sweep.healthy == "blocks" else 0)
    total = block * sweep.repeats.max + cells * (2 if sweep.healthy == "ends" else 0)
    yield from repeats_mistakes(sweep.repeats)
    wrong = list(axis_mistakes(experiment.axes, total))
    yield from wrong
    if not wrong:
        systems, faults = [s.name for s in experiment.systems], [f.label for f in experiment.faults]
        faults += [HEALTHY] if not faults else []
        faults += [HEALTHY_BEFORE, HEALTHY_AFTER] if sweep.healthy != "off" else []
        points = {axis.label: [text for text, _ in axis.points()] for axis in experiment.axes}
        yield from bound_mistakes(experiment.bounds, systems, experiment.workload.sizes_bytes, faults, points)


def _workload_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    workload, nranks = experiment.workload, experiment.nranks
    if nranks < 2:
        yield Mistake("cluster.hosts", 1, "a collective needs at least 2")
    if workload.place == "in" and workload.collective in APART:
        yield Mistake("workload.place", "in", f'{workload.collective} has no form in place; use "out"')
    if workload.root >= nranks:
        yield Mistake("workload.root", workload.root, f"ranks go from 0 to {nranks - 1}")
    simulated = "simulate" in map(experiment.backend_of, experiment.systems)
    # A power of two, for the text.
    most = 1 << (MAX_SIMULATED_BYTES // max(1, nranks)).bit_length() - 1 if simulated else math.inf
    for size in workload.sizes_bytes:
        if size > most:
            remedy = f"too large to simulate on {nranks} ranks; give at most {format_size(int(most))}"
            yield Mistake("workload.sizes", format_size(size), remedy)
        if size == 0:
            yield Mistake("workload.sizes", "0", "a collective of no bytes moves nothing; give at least one element")
        elif size < (least := least_bytes(workload.collective, workload.dtype, nranks)):
            remedy = f"too small for {workload.collective} of {workload.dtype}; give at least {format_size(least)}"
            yield Mistake("workload.sizes", format_size(size), remedy)
        if workload.sizes_bytes.count(size) > 1:
            yield Mistake("workload.sizes", format_size(size), "is there more than once; name each size once")
            return
    for written, count in workload.iterations_by_size.items():
        key = f"workload.iterations_by_size.{written}"
        try:
            size = parse_size(written)
        except UnitError as error:
            yield Mistake(key, written, str(error))
            continue
        if size not in workload.sizes_bytes:
            known = ", ".join(map(format_size, workload.sizes_bytes))
            yield Mistake(key, written, f"not one of workload.sizes; these are {known}")
        if count < 1:
            yield Mistake(key, count, "at least 1 iteration is needed")


def _system_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    workload = experiment.workload
    for index, system in enumerate(experiment.systems):
        backend = experiment.backend_of(system)
        fits = CATALOGUE[system.use].backends if system.use else (backend,)
        if backend not in fits:
            yield Mistake(f"system[{index}].backend", backend, f"{system.use} runs with {' or '.join(fits)}")
        for variable, value in system.env.items():
            if not variable or set("=\0") & set(variable) or "\0" in value:
                remedy = "a name is not empty and has no '=', and neither name nor value has a NUL"
                yield Mistake(f"system[{index}].env", repr(variable), remedy)
        if backend in ("perf", "simulate"):
            yield from _core_mistakes(f"system[{index}].env", system)
    backends = {experiment.backend_of(system) for system in experiment.systems}
    for backend in sorted(backends - SEVERAL_RANKS if workload.gpus > 1 else ()):
        yield Mistake("workload.gpus", workload.gpus, f"{backend} runs one rank a host")
    hosts = len(experiment.cluster.host_names())
    if hosts < 2 <= workload.gpus and backends & {"perf", "simulate"}:
        yield Mistake("cluster.hosts", hosts, "ranks of one host use no NIC; give at least 2")
    if "nccl_tests" in backends:
        yield from _nccl_tests_mistakes(workload, hosts)


def _core_mistakes(key: str, system: SystemModel) -> Iterator[Mistake]:
    """What every rank would refuse at its start or not see: variables, the settings of schedules, and a second mode."""
    from r2ccl_core.selection import read_settings
    from r2ccl_core.variables import refused

    if "R2CC_MODE" in system.env:
        yield Mistake(f"{key}.R2CC_MODE", system.env["R2CC_MODE"], "give mode instead, which the report knows, too")
        return
    if "R2CC_SOCKET_IFNAME" in system.env:
        remedy = "each rank is given the data NICs of its host; say in cluster or its inventory which those are"
        yield Mistake(f"{key}.R2CC_SOCKET_IFNAME", system.env["R2CC_SOCKET_IFNAME"], remedy)
    for name, remedy in refused(system.env):
        yield Mistake(f"{key}.{name}", system.env[name], remedy)
    try:
        read_settings(system.mode, system.env)
    except UsageError as error:
        yield Mistake(key, None, str(error))


def _nccl_tests_mistakes(workload: WorkloadModel, hosts: int) -> Iterator[Mistake]:
    if workload.nccl_tests is None:
        yield Mistake("workload.nccl_tests", None, "name the folder of a build of nccl-tests, such as .../build")
    if workload.launcher == "ssh" and hosts > 1:
        remedy = "without MPI nccl-tests is one process on one host; use mpirun, mpiexec or srun"
        yield Mistake("workload.launcher", "ssh", remedy)


def _name_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    for table, names in (
        ("system", [s.name for s in experiment.systems]),
        ("fault", [f.label for f in experiment.faults]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Mistake(f"{table}[{index}].name", name, "is there already; give every entry its own name")
    for index, fault in enumerate(experiment.faults):
        if fault.label in (HEALTHY, HEALTHY_BEFORE, HEALTHY_AFTER):
            yield Mistake(f"fault[{index}].name", fault.label, "names trials without a fault; choose another name")


def identity(experiment: Experiment, only: object = None) -> str:
    """A hash of everything that decides which trials run and how: equal hashes may share a run folder."""
    text = json.dumps([experiment.resolved(), only], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
