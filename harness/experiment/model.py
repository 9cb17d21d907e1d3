"""An experiment as values: the models of the TOML file, and the checks that concern several keys.

Keys are named as in the file (aliases); attributes carry the unit. Quantities are written with units and are held as
bytes, bit/s and seconds. `harness.experiment.file` reads a file and turns mistakes into lines.
"""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from harness.cluster.spec import ClusterSpec, NoopSpec
from harness.experiment.bounds import BoundModel, bound_mistakes
from harness.experiment.fault_tables import BACK_S, FaultContext, FaultModel, fault_mistakes
from harness.experiment.overlaps import overlap_mistakes
from harness.experiment.sweep import (
    HEALTHY,
    HEALTHY_AFTER,
    HEALTHY_BEFORE,
    AxisModel,
    SweepModel,
    axis_mistakes,
    repeats_mistakes,
)
from harness.experiment.tables import Mistake, Model, Slug, nearest
from harness.systems.base import Expectation, Mode
from harness.systems.catalogue import CATALOGUE, fill, policies
from harness.workloads.base import SHORT_S, BackendName
from harness.workloads.registry import AnyWorkload
from r2ccl_core.errors import UsageError

TCP_SHARE = 0.956
"""Share of a NIC's rate that TCP at MTU 1500 carries as payload (1448 bytes of 1514)."""


def _as_text(variables: object) -> object:
    """The variables with whole numbers as text, as an environment has them. All other values stay as they are, to be
    checked."""
    if not isinstance(variables, dict):
        return variables
    return {k: str(v) if isinstance(v, int) and not isinstance(v, bool) else v for k, v in variables.items()}


class SystemModel(Model):
    """One system under test: an entry of the catalogue (`use`), or our core in one mode; with its environment."""

    name: Slug
    use: str | None = None
    path: str | None = None
    """Path of the plugin or library, if the entry takes one."""
    backend: BackendName | None = None
    """The backend, if it is not the workload's."""
    mode: Mode
    env: Annotated[dict[str, str], BeforeValidator(_as_text)] = Field(default_factory=dict)
    network: str | None = None
    """The network that NCCL's log must name, such as IB or Socket."""
    expect_on_fault: Expectation = "ok"
    optional: bool = False
    """Whether it is left out, with one line, where the experiment names no build of nccl-tests and the system needs
    one."""

    @model_validator(mode="before")
    @classmethod
    def _from_catalogue(cls, values: Any) -> Any:
        return fill(values) if isinstance(values, dict) and values.get("use") is not None else values


SLOWEST = 10
"""Iterations of 64 KiB took three to seven times their lower estimate on two busy cores."""


class Experiment(Model):
    """A whole experiment file."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
    name: Slug
    description: str = ""
    project_targets: bool = False
    """Whether its report checks the results against the project's targets for its own core."""
    cluster: ClusterSpec
    workload: AnyWorkload
    systems: tuple[SystemModel, ...] = Field(alias="system", min_length=1)
    faults: tuple[FaultModel, ...] = Field(default=(), alias="fault")
    sweep: SweepModel = SweepModel()
    axes: tuple[AxisModel, ...] = Field(default=(), alias="axis")
    bounds: tuple[BoundModel, ...] = Field(default=(), alias="bound")

    _variants: Any = PrivateAttr(None)
    """Cache of `harness.experiment.file.variants`, for the whole experiment."""

    def resolved(self) -> dict[str, Any]:
        """The whole experiment with every default filled in, under the file's own keys; plain JSON values."""
        return self.model_dump(mode="json", by_alias=True)

    def backend_of(self, system: SystemModel) -> BackendName:
        """The backend of `system`: its own setting, else the workload's, else its catalogue entry's for the
        workload. The last is only for a workload that leaves its backend as it is by default (`mistakes`): another
        program than the one that was asked for is never run."""
        if system.backend is not None:
            return system.backend
        fits = CATALOGUE[system.use].backends if system.use else ()
        if not fits or self.workload.backend in fits:
            return self.workload.backend
        return cast(BackendName, next((fit for fit in fits if fit in self.workload.backends), fits[0]))

    @property
    def nranks(self) -> int:
        """Number of ranks on all hosts."""
        return len(self.cluster.host_names()) * self.workload.gpus

    @property
    def ready_s(self) -> float:
        """How long ranks may take until all are connected."""
        return self.sweep.limits.ready_s * self.cluster.slowness

    @property
    def silence_s(self) -> float:
        """How long all ranks may say nothing; if they are slow, at most half a trial, so that a hang is told as one."""
        limits = self.sweep.limits
        return max(limits.iteration_s, min(limits.iteration_s * self.cluster.slowness, limits.trial_s / 2))

    def expected_duration_s(self, size_bytes: int) -> float:
        """Lower estimate of one healthy iteration: busbw is the rate of TCP over all NICs of the slowest host."""
        payload_bytes_s = self.cluster.bandwidth_bit_s() / 8 * TCP_SHARE
        return self.workload.expected_s(size_bytes, self.nranks, payload_bytes_s)

    def iterations_of(self, size_bytes: int) -> int:
        """Timed iterations of a trial of this size, the same with and without a fault. Where every system is simulated,
        no fault has to be aimed."""
        faulted = bool(self.faults) and any(self.backend_of(system) != "simulate" for system in self.systems)
        each_s = self.expected_duration_s(size_bytes)
        return self.workload.iterations_of(size_bytes, each_s, faulted, self._seen_s(each_s))

    def _seen_s(self, each_s: float) -> float:
        """How long iterations of `each_s` must take so that every trial sees its faults to their ends: what systems
        lose could not be compared otherwise. 0 where a trial's limit leaves no room for that."""
        back_s = 0.0 if each_s < SHORT_S else BACK_S  # short ones take several times their estimate, which is as much
        needed = [fault.iterations_s(fault.over_s + back_s, each_s) for fault in self.faults if fault.over_s]
        return max((s for s in needed if s <= self.sweep.limits.trial_s / SLOWEST), default=0.0)


def mistakes(experiment: Experiment, right: Experiment | None = None) -> list[Mistake]:
    """The mistakes between keys that are each valid by themselves. Parts that `experiment` shares with the valid
    experiment `right` are not checked again."""
    shared = {name for name in _TABLES if right is not None and _same(getattr(experiment, name), getattr(right, name))}
    found: list[Mistake] = []
    if not shared >= {"cluster", "workload", "systems"}:
        hosts, backends = len(experiment.cluster.host_names()), [experiment.backend_of(s) for s in experiment.systems]
        found += [*experiment.workload.mistakes(hosts, backends), *_system_mistakes(experiment)]
    if not shared >= {"systems", "faults"}:
        found += _name_mistakes(experiment)
    found += [*_sweep_mistakes(experiment), *_limit_mistakes(experiment)]
    found = found or list(fault_mistakes(experiment.faults, _fault_context(experiment)))
    return found or list(overlap_mistakes(experiment.faults, experiment.cluster.data_nics()))


def _same(one: object, other: object) -> bool:
    """Whether both are one object, or consist of the same objects."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))
    return one is other


_TABLES = ("cluster", "workload", "systems", "faults")


def _fault_context(experiment: Experiment) -> FaultContext:
    cluster = experiment.cluster
    iterations = {size: experiment.iterations_of(size) for size in experiment.workload.grid_sizes()}
    return FaultContext(
        cluster.data_nics(),
        iterations,
        experiment.workload.counts,
        [system.name for system in experiment.systems],
        not isinstance(cluster, NoopSpec),
        experiment.sweep.limits.trial_s,
    )


def _sweep_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    sweep = experiment.sweep
    cells = len(experiment.systems) * len(experiment.workload.grid_sizes())
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
        sizes, kind = experiment.workload.grid_sizes(), experiment.workload.kind
        yield from bound_mistakes(experiment.bounds, systems, sizes, faults, points, kind)


def _limit_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    """Durations that a trial's limit ends before they are over."""
    limits, least_s = experiment.sweep.limits, getattr(experiment.workload, "min_duration_s", None) or 0.0
    remedy = f"is more than sweep.limits.trial, which is {limits.trial_s:g} s; shorten it, or raise that limit"
    if "iteration_s" in limits.model_fields_set and limits.iteration_s > limits.trial_s:
        yield Mistake("sweep.limits.iteration", f"{limits.iteration_s:g} s", remedy)
    if least_s > limits.trial_s:
        yield Mistake("workload.min_duration", f"{least_s:g} s", remedy)


def _system_mistakes(experiment: Experiment) -> Iterator[Mistake]:
    runs = experiment.workload.backends
    for index, system in enumerate(experiment.systems):
        if lacking := _backend_mistake(experiment, index):
            yield lacking
            continue
        backend = experiment.backend_of(system)
        if backend not in runs:
            kind = experiment.workload.kind
            yield Mistake(f"system[{index}]", system.name, f"{backend} runs no {kind}; {' or '.join(runs)} does")
            continue
        fits = CATALOGUE[system.use].backends if system.use else (backend,)
        if backend not in fits:
            yield Mistake(f"system[{index}].backend", backend, f"{system.use} runs with {' or '.join(fits)}")
        for variable, value in system.env.items():
            if not variable or set("=\0") & set(variable) or "\0" in value:
                remedy = "a name is not empty and has no '=', and neither name nor value has a NUL"
                yield Mistake(f"system[{index}].env", repr(variable), remedy)
            elif (known := policies().get(variable)) and value not in known:
                yield Mistake(f"system[{index}].env.{variable}", value, f"no such policy; {nearest(value, known)}")
        if backend in ("perf", "simulate", "torch_r2ccl", "train_r2ccl", "serve_r2ccl"):
            yield from _core_mistakes(f"system[{index}].env", system)
            yield from _schedule_mistakes(f"system[{index}]", system, getattr(experiment.workload, "collective", ""))


def _backend_mistake(experiment: Experiment, index: int) -> Mistake | None:
    """A backend that the workload asks for and the system does not run with. The default asks for nothing: every
    system then has its own."""
    system, workload = experiment.systems[index], experiment.workload
    if system.use is None or system.backend is not None:
        return None
    asked, fits = workload.backend, CATALOGUE[system.use].backends
    if asked in fits or asked == type(workload).model_fields["backend"].default:
        return None
    of_kind = [fit for fit in workload.backends if fit in fits]
    if not of_kind:
        return None  # which is told of whatever backend
    remedy = f"the system {system.name} runs with {' or '.join(of_kind)}; choose that as system[{index}].backend"
    return Mistake("workload.backend", asked, f"{remedy}, or leave the system out")


def _core_mistakes(key: str, system: SystemModel) -> Iterator[Mistake]:
    """Mistakes that every rank would refuse at its start, or not notice: variables, the schedule policy, a second
    mode."""
    from r2ccl_core.host.variables import refused
    from r2ccl_core.planning.selection import read_policy

    if "R2CC_MODE" in system.env:
        yield Mistake(f"{key}.R2CC_MODE", system.env["R2CC_MODE"], "give mode instead, which the report knows, too")
        return
    if "R2CC_SOCKET_IFNAME" in system.env:
        remedy = "each rank is given the data NICs of its host; say in cluster or its inventory which those are"
        yield Mistake(f"{key}.R2CC_SOCKET_IFNAME", system.env["R2CC_SOCKET_IFNAME"], remedy)
    for name, remedy in refused(system.env):
        yield Mistake(f"{key}.{name}", system.env[name], remedy)
    try:
        read_policy(system.mode, system.env)
    except UsageError as error:
        yield Mistake(key, None, str(error))


def _schedule_mistakes(key: str, system: SystemModel, collective: str) -> Iterator[Mistake]:
    """A schedule of AllReduce asked for another collective, which would run its only one under that name."""
    from r2ccl_core.planning.algorithms import by_alias
    from r2ccl_core.schedules import ring

    algo = system.env.get("R2CC_ALGO") or ("r2cc" if system.mode == 3 else "")
    if collective in ("", "all_reduce") or algo not in by_alias() or algo == ring.ALGORITHM.alias:
        return
    asked = "R2CC_ALGO" if system.env.get("R2CC_ALGO") else "mode 3"
    remedy = f"{asked} asks for the schedule {algo}, which only all_reduce has, and {collective} has only one schedule"
    yield Mistake(key, system.name, f'{remedy}; use = "balance" runs it, or set workload.collective to all_reduce')


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
