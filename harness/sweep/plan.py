"""Which trials an experiment asks for, in which order: a pure function of the experiment.

The grid is system x size x fault x repeat. Repeats are blocks: every combination runs once before any runs
again, and each block is shuffled by itself (seeded), so that drift of the machine favours no system.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from harness.errors import ExperimentError
from harness.experiment import Experiment, SystemModel
from harness.fault_tables import FaultModel
from harness.tables import nearest
from r2ccl_core.errors import UnitError
from r2ccl_core.units import format_size, parse_size

Only = Mapping[str, tuple[str, ...]]
"""A selection: axis to the values that are kept; an axis that is not named keeps all."""

AXES = ("system", "size", "fault", "repeat")


@dataclass(frozen=True)
class Trial:
    """One cell of the grid. `fault` is None for a trial without one."""

    system: SystemModel
    size_bytes: int
    fault: FaultModel | None
    repeat: int
    iterations: int
    warmup: int

    @property
    def trial_id(self) -> str:
        """Unique in its run and fit for a folder's name: ``balance-64MiB-nic_down-r0``."""
        return "-".join(f"{prefix}{self.value(axis)}" for axis, prefix in zip(AXES, ("", "", "", "r"), strict=True))

    def value(self, axis: str) -> str:
        """This trial's value on one of `AXES`, as text."""
        return {
            "system": self.system.name,
            "size": format_size(self.size_bytes),
            "fault": self.fault.label if self.fault else "healthy",
            "repeat": str(self.repeat),
        }[axis]

    def strike_iteration(self) -> int | None:
        """The iteration that the fault shall hit; None without a fault or where a time decides."""
        if self.fault is None or self.fault.at_time_s is not None:
            return None
        if self.fault.at_iteration is not None:
            return self.fault.at_iteration
        return int((self.fault.at_progress or 0.0) * self.iterations)


def plan(experiment: Experiment) -> tuple[Trial, ...]:
    """Every trial of `experiment` in the order in which they run."""
    faults: Sequence[FaultModel | None] = experiment.faults or (None,)
    trials: list[Trial] = []
    for repeat in range(experiment.sweep.repeats):
        block = [
            Trial(system, size, fault, repeat, experiment.iterations_of(size), experiment.workload.warmup)
            for size, fault, system in product(experiment.workload.sizes_bytes, faults, experiment.systems)
        ]
        if experiment.sweep.order == "shuffled":
            random.Random(f"{experiment.sweep.seed}/{repeat}").shuffle(block)
        trials += block
    return tuple(trials)


def parse_only(text: str) -> dict[str, tuple[str, ...]]:
    """``system=balance,size=64MiB,size=8MiB`` as a selection; raises `ExperimentError`."""
    chosen: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        axis, separator, value = (p.strip() for p in part.partition("="))
        if not separator or not value:
            raise ExperimentError("--only", part, None, "write axis=value, for example system=balance")
        if axis not in AXES:
            raise ExperimentError("--only", part, None, f"unknown axis; {nearest(axis, list(AXES))}")
        chosen[axis] = (*chosen.get(axis, ()), _canonical(axis, value))
    return chosen


def select(trials: Sequence[Trial], only: Only) -> tuple[Trial, ...]:
    """The trials that `only` keeps; raises `ExperimentError` for a value that no trial has."""
    for axis, values in only.items():
        known = list(dict.fromkeys(trial.value(axis) for trial in trials))
        for value in values:
            if value not in known:
                raise ExperimentError("--only", f"{axis}={value}", None, f"no such {axis}; {nearest(value, known)}")
    return tuple(t for t in trials if all(t.value(axis) in values for axis, values in only.items()))


def _canonical(axis: str, value: str) -> str:
    if axis != "size":
        return value
    try:
        return format_size(parse_size(value))
    except UnitError as error:
        raise ExperimentError("--only", f"size={value}", None, str(error)) from None
