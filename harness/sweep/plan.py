"""Which trials an experiment asks for, in which order: a pure function of the experiment.

The grid is axes x system x size x fault x repeat. Repeats are blocks: every combination runs once before any runs
again, and each block is shuffled separately (seeded), so that drift of the machine favours no system. Trials that need
another cluster (because an axis changes it) stand together in their block, and every other block goes through the
clusters backwards, so that each cluster is made once per block.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from harness.errors import ExperimentError
from harness.experiment.fault_tables import FaultModel
from harness.experiment.file import Variant, variants
from harness.experiment.model import Experiment, SystemModel
from harness.experiment.sweep import GRID, HEALTHY, HEALTHY_AFTER, HEALTHY_BEFORE, fit
from harness.experiment.tables import nearest
from r2ccl_core.errors import UnitError
from r2ccl_core.units import format_size, parse_size

Only = Mapping[str, tuple[str, ...]]
"""A selection: axis to the values that are kept; an axis that is not named keeps all."""

When = Literal["", "before", "after"]


@dataclass(frozen=True)
class Trial:
    """One cell of the grid. `fault` is None for a trial without one."""

    system: SystemModel
    size_bytes: int
    """0 if the workload has no sizes."""
    fault: FaultModel | None
    repeat: int
    iterations: int
    warmup: int
    variant: Variant
    """The point of the axes, with the experiment at that point."""
    when: When = ""
    """For a healthy trial in a sweep with faults: whether it runs before or after the trials with faults."""
    closing: bool = False
    """Whether it runs once, after the last repeat, however many repeats there were."""

    @property
    def cell(self) -> str:
        """The name that its repeats share: ``balance-64MiB-nic_down``, with axes
        ``balance-64MiB-nic_down-dtype=float16``."""
        points = [f"{axis}={fit(text)}" for axis, text in self.variant.axes.items()]
        size = [format_size(self.size_bytes)] if self.size_bytes else []
        return "-".join([self.system.name, *size, self.scenario, *points])

    @property
    def scenario(self) -> str:
        """The label of its fault; ``healthy``, or ``healthy_before`` and ``healthy_after`` in a sweep with faults."""
        if self.fault is not None:
            return self.fault.label
        return {"": HEALTHY, "before": HEALTHY_BEFORE, "after": HEALTHY_AFTER}[self.when]

    @property
    def trial_id(self) -> str:
        """Unique in its run and usable as a folder's name: ``balance-64MiB-nic_down-r0``."""
        return f"{self.cell}-r{self.repeat}"

    @property
    def seed(self) -> str:
        """The seed of random failures: every system and size meets the same ones."""
        label = self.fault.label if self.fault is not None else ""
        return f"{self.variant.experiment.sweep.seed}/{label}/{self.repeat}"

    @property
    def cluster_key(self) -> str:
        """Equal for trials that can run on one cluster."""
        return self.variant.experiment.cluster.model_dump_json(exclude_none=True)

    def value(self, axis: str) -> str | None:
        """This trial's value on one dimension of the grid or one axis, as text; None if it has none."""
        return {
            "system": self.system.name,
            "size": format_size(self.size_bytes) if self.size_bytes else None,
            "fault": self.scenario,
            "repeat": str(self.repeat),
            **self.variant.axes,
        }.get(axis)

    def fault_iteration(self) -> int | None:
        """The iteration that the fault is to hit; None without a fault or if a time decides."""
        if self.fault is None or self.fault.at_time_s is not None:
            return None
        if self.fault.at_iteration is not None:
            return self.fault.at_iteration
        return int((self.fault.at_progress or 0.0) * self.iterations)


def plan(experiment: Experiment) -> tuple[Trial, ...]:
    """Every trial of `experiment` in the order in which they run, with the largest number of repeats."""
    sweep, points = experiment.sweep, variants(experiment)
    trials: list[Trial] = []
    for repeat in range(sweep.repeats.max):
        for group in _by_cluster(points, backwards=repeat % 2 == 1):
            block = [trial for variant in group for trial in _faulted(variant, repeat)]
            healthy = _without_faults(group, experiment)
            before, after = ([t for v in healthy for t in _healthy(v, repeat, when)] for when in ("before", "after"))
            opened = sweep.healthy == "blocks" or (sweep.healthy == "ends" and repeat == 0)
            trials += _ordered(before, experiment, repeat) if opened else []
            trials += _ordered(block, experiment, repeat)
            trials += _ordered(after, experiment, repeat) if sweep.healthy == "blocks" else []
    if sweep.healthy == "ends":
        for group in _by_cluster(points, backwards=sweep.repeats.max % 2 == 1):
            healthy = _without_faults(group, experiment)
            closing = [t for variant in healthy for t in _healthy(variant, 0, "after", closing=True)]
            trials += _ordered(closing, experiment, sweep.repeats.max)
    return tuple(trials)


def _by_cluster(points: Sequence[Variant], backwards: bool) -> list[list[Variant]]:
    groups: dict[str, list[Variant]] = {}
    for variant in points:
        groups.setdefault(variant.experiment.cluster.model_dump_json(exclude_none=True), []).append(variant)
    return list(groups.values())[:: -1 if backwards else 1]


def _without_faults(points: Sequence[Variant], experiment: Experiment) -> list[Variant]:
    """`points` without the axes along which only faults differ: healthy trials are the same there, and run once."""
    hidden = {axis.label: axis for axis in experiment.axes if axis.is_about_faults}
    keys = {key for axis in hidden.values() for _, settings in axis.points() for key in settings}
    found: dict[str, Variant] = {}
    for point in points:
        axes = {label: text for label, text in point.axes.items() if label not in hidden}
        settings = {key: value for key, value in point.settings.items() if key not in keys}
        found.setdefault(str(axes), Variant(axes, settings, point.experiment))
    return list(found.values())


def _faulted(variant: Variant, repeat: int) -> Iterator[Trial]:
    faults: Sequence[FaultModel | None] = variant.experiment.faults or (None,)
    for size, fault, system in product(variant.experiment.workload.grid_sizes(), faults, variant.experiment.systems):
        yield _trial(variant, system, size, fault, repeat)


def _healthy(variant: Variant, repeat: int, when: When, closing: bool = False) -> Iterator[Trial]:
    for size, system in product(variant.experiment.workload.grid_sizes(), variant.experiment.systems):
        yield _trial(variant, system, size, None, repeat, when, closing)


def _trial(
    variant: Variant,
    system: SystemModel,
    size: int,
    fault: FaultModel | None,
    repeat: int,
    when: When = "",
    closing: bool = False,
) -> Trial:
    experiment = variant.experiment
    iterations, warmup = experiment.iterations_of(size), experiment.workload.warmup
    return Trial(system, size, fault, repeat, iterations, warmup, variant, when, closing)


def _ordered(trials: list[Trial], experiment: Experiment, repeat: int) -> list[Trial]:
    if experiment.sweep.order == "shuffled":
        random.Random(f"{experiment.sweep.seed}/{repeat}").shuffle(trials)
    return trials


def dimensions(experiment: Experiment) -> tuple[str, ...]:
    """The dimensions by which trials can be selected."""
    return (*GRID, *(axis.label for axis in experiment.axes))


def parse_only(texts: Sequence[str], known: Sequence[str] = GRID) -> dict[str, tuple[str, ...]]:
    """``system=balance,size=64MiB,size=8MiB``, once or several times, as a selection by `known` dimensions. Raises
    `ExperimentError`, also for a text that selects nothing."""
    chosen: dict[str, tuple[str, ...]] = {}
    for text in texts:
        if not text.strip(", "):
            raise ExperimentError("--only", repr(text), None, "selects nothing; write axis=value, or leave it out")
    for part in filter(None, (p.strip() for text in texts for p in text.split(","))):
        axis, separator, value = (p.strip() for p in part.partition("="))
        if not separator or not value:
            remedy = "write axis=value, for example system=balance"
            if chosen and not separator:
                remedy = f"write axis=value for each value, for example {next(reversed(chosen))}={part}"
            raise ExperimentError("--only", part, None, remedy)
        if axis not in known:
            raise ExperimentError("--only", part, None, f"unknown axis; {nearest(axis, list(known))}")
        chosen[axis] = (*chosen.get(axis, ()), _canonical(axis, value))
    return chosen


def select(trials: Sequence[Trial], only: Only) -> tuple[Trial, ...]:
    """The trials that `only` keeps; raises `ExperimentError` for a value that no trial has.

    A trial without a value on an axis is kept; healthy trials have none on an axis along which only faults differ.
    """
    for axis, values in only.items():
        known = list(dict.fromkeys(value for trial in trials if (value := trial.value(axis)) is not None))
        for value in values:
            if value not in known:
                raise ExperimentError("--only", f"{axis}={value}", None, f"no such {axis}; {nearest(value, known)}")
    return tuple(t for t in trials if all(t.value(axis) in (None, *values) for axis, values in only.items()))


def _canonical(axis: str, value: str) -> str:
    if axis != "size":
        return value
    try:
        return format_size(parse_size(value))
    except UnitError as error:
        raise ExperimentError("--only", f"size={value}", None, str(error)) from None
