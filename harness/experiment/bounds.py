"""The limits that an experiment sets for its metrics: the model of `[[bound]]`. `reports.bounds` checks a run.

[[bound]]
metric = "slowdown"          # T/T0; of the medians over repeats, in every cell that matches
system = "balance"
size = "64MiB"
max = 1.6
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from harness.experiment.tables import Mistake, Model, Size, Slug, nearest, read_share
from r2ccl_core.units import format_size
from reports.metrics import METRICS

Number = Annotated[float, BeforeValidator(read_share), Field(allow_inf_nan=False)]


class BoundModel(Model):
    """One bound: `metric` of every cell that the filters keep lies between `min` and `max`."""

    metric: str
    system: Slug | None = None
    size_bytes: Size | None = Field(default=None, alias="size")
    fault: str | None = None
    axes: Mapping[str, str] = {}
    """Only these points of the axes."""
    of: Literal["median", "worst"] = "median"
    """The values of a cell's repeats to check: their median, or every one of them."""
    min: Number | None = None
    max: Number | None = None

    @field_validator("min", "max", mode="before")
    @classmethod
    def _in_the_unit_of_the_metric(cls, value: object, info: ValidationInfo) -> object:
        metric = METRICS.get(info.data.get("metric", ""))
        if metric is not None and metric.unit and isinstance(value, str) and "%" in value:
            raise ValueError(f"{metric.name} is in {metric.unit}: write a number without %")
        return value


def bound_mistakes(
    bounds: Sequence[BoundModel],
    systems: Sequence[str],
    sizes: Sequence[int],
    faults: Sequence[str],
    axes: Mapping[str, Sequence[str]],
    workload: str,
) -> Iterator[Mistake]:
    """The mistakes in the bounds of an experiment with these systems, sizes, faults, and values by axis, of a kind of
    workload."""
    for index, bound in enumerate(bounds):
        yield from (
            Mistake(f"bound[{index}]{mistake.key}", mistake.value, mistake.remedy)
            for mistake in (*_mistakes(bound, systems, sizes, faults, axes), *_of_others(bound, workload))
        )


def _of_others(bound: BoundModel, workload: str) -> Iterator[Mistake]:
    metric = METRICS.get(bound.metric)
    if metric is not None and not metric.is_of(workload):
        remedy = f"is of {' or '.join(metric.workloads)}, and this workload is {workload}"
        yield Mistake(".metric", bound.metric, f"{remedy}; `harness metrics` says what has one")


def _mistakes(
    bound: BoundModel,
    systems: Sequence[str],
    sizes: Sequence[int],
    faults: Sequence[str],
    axes: Mapping[str, Sequence[str]],
) -> Iterator[Mistake]:
    if bound.metric not in METRICS:
        yield Mistake(".metric", bound.metric, f"unknown metric; {nearest(bound.metric, list(METRICS))}")
    if bound.min is None and bound.max is None:
        yield Mistake("", None, "give min, max or both")
    elif bound.min is not None and bound.max is not None and bound.min > bound.max:
        yield Mistake(".min", bound.min, f"must be at most max, which is {bound.max:g}")
    if bound.system is not None and bound.system not in systems:
        yield Mistake(".system", bound.system, f"no such system; {nearest(bound.system, systems)}")
    if bound.size_bytes is not None and bound.size_bytes not in sizes:
        known = ", ".join(format_size(size) for size in sizes if size)
        told = f"not one of workload.sizes; these are {known}" if known else "this workload has no sizes; leave it out"
        yield Mistake(".size", format_size(bound.size_bytes), told)
    if bound.fault is not None and bound.fault not in faults:
        yield Mistake(".fault", bound.fault, f"no such fault; {nearest(bound.fault, faults)}")
    for axis, value in bound.axes.items():
        if axis not in axes:
            yield Mistake(f".axes.{axis}", value, f"no such axis; {nearest(axis, list(axes))}")
        elif value not in axes[axis]:
            yield Mistake(f".axes.{axis}", value, f"no such value; {nearest(value, axes[axis])}")
