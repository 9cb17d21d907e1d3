"""An experiment as values: the models of the TOML file, and what they say that no single key can.

Keys are named as in the file (aliases); attributes carry the unit. Quantities are written with units and are
held as bytes, bit/s and seconds. Reading a file and turning mistakes into lines is `harness.experiment_file`.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from harness.cluster.spec import ClusterSpec, NoopSpec
from harness.fault_tables import FaultModel, Setting, fault_mistakes
from harness.tables import Duration, Mistake, Model, Size, Slug
from r2ccl_core.errors import UnitError
from r2ccl_core.units import format_size, parse_size

TCP_SHARE = 0.956
"""Share of a NIC's rate that TCP at MTU 1500 carries as payload (1448 bytes of 1514)."""


class WorkloadModel(Model):
    """What runs: one collective over all hosts, one rank a host."""

    backend: Literal["perf", "noop"] = "perf"
    collective: Literal["all_reduce"] = "all_reduce"
    sizes_bytes: tuple[Size, ...] = Field(alias="sizes", min_length=1)
    dtype: Literal["float32", "float64", "int32", "int64", "float16", "bfloat16"] = "float32"
    op: Literal["sum", "min", "max", "prod"] = "sum"
    place: Literal["out", "in"] = "out"
    iterations: int = Field(default=10, ge=1, le=100_000)
    iterations_by_size: dict[str, int] = Field(default_factory=dict)
    """Iterations for single sizes, by the size as written: ``{"64MiB" = 7}``."""
    min_duration_s: Duration = Field(default=0.0, alias="min_duration")
    """Iterations are added until a healthy trial should last this long."""
    warmup: int = Field(default=1, ge=0, le=1000)
    check: bool = True


class SystemModel(Model):
    """One system under test: the core in one mode, with its environment."""

    name: Slug
    mode: Literal[0, 1, 2, 3]
    env: dict[str, str] = Field(default_factory=dict)
    expect_on_fault: Literal["ok", "failed"] = "ok"


class LimitsModel(Model):
    """How long each wait of a trial may last before the trial counts as failed."""

    ready_s: Duration = Field(default=20.0, alias="ready")
    iteration_s: Duration = Field(default=10.0, alias="iteration")
    trial_s: Duration = Field(default=120.0, alias="trial")


class SweepModel(Model):
    """How often and in which order."""

    repeats: int = Field(default=1, ge=1, le=10_000)
    seed: int = 0
    retries: int = Field(default=2, ge=0, le=100)
    order: Literal["shuffled", "listed"] = "shuffled"
    limits: LimitsModel = LimitsModel()


class Experiment(Model):
    """A whole experiment file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Slug
    description: str = ""
    cluster: ClusterSpec
    workload: WorkloadModel
    systems: tuple[SystemModel, ...] = Field(alias="system", min_length=1)
    faults: tuple[FaultModel, ...] = Field(default=(), alias="fault")
    sweep: SweepModel = SweepModel()

    def resolved(self) -> dict[str, Any]:
        """The whole experiment with every default filled in, under the file's own keys; plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def expected_duration_s(self, size_bytes: int) -> float:
        """Lower estimate of one healthy iteration: busbw is what TCP carries over all NICs of the slowest host."""
        ranks = len(self.cluster.host_names())
        payload_bytes_s = self.cluster.bandwidth_bit_s() / 8 * TCP_SHARE
        return size_bytes * 2 * (ranks - 1) / ranks / payload_bytes_s

    def iterations_of(self, size_bytes: int) -> int:
        """Timed iterations of a trial of this size."""
        workload = self.workload
        named = {parse_size(size): n for size, n in workload.iterations_by_size.items()}
        count = named.get(size_bytes, workload.iterations)
        filling = math.ceil(workload.min_duration_s / self.expected_duration_s(size_bytes))
        return max(count, filling)


def mistakes(experiment: Experiment) -> list[Mistake]:
    """What is wrong between keys that are each right by themselves."""
    found = [*_workload_mistakes(experiment), *_name_mistakes(experiment)]
    return found or list(fault_mistakes(experiment.faults, _setting(experiment)))


def _setting(experiment: Experiment) -> Setting:
    cluster = experiment.cluster
    iterations = {size: experiment.iterations_of(size) for size in experiment.workload.sizes_bytes}
    return Setting(cluster.data_nics(), iterations, not isinstance(cluster, NoopSpec))


def _workload_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    workload = experiment.workload
    hosts = len(experiment.cluster.host_names())
    if hosts < 2:
        yield Mistake("cluster.hosts", hosts, "a collective needs at least 2")
    for size in workload.sizes_bytes:
        if size == 0:
            yield Mistake("workload.sizes", "0", "a collective of no bytes moves nothing; give at least one element")
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


def _name_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    for table, names in (
        ("system", [s.name for s in experiment.systems]),
        ("fault", [f.label for f in experiment.faults]),
    ):
        for index, name in enumerate(names):
            if name in names[:index]:
                yield Mistake(f"{table}[{index}].name", name, "is there already; give every entry its own name")


def identity(experiment: Experiment, only: object = None) -> str:
    """A hash of everything that decides which trials run and how: equal hashes may share a run folder."""
    text = json.dumps([experiment.resolved(), only], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
