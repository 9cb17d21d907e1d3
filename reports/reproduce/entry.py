"""A published experiment as data: facts, a model, and how one of our runs answers each fact.

An absolute time at another scale says little, so every value is compared with the model at its own scale: published
over model there, measured over model here. Scale-free values (a ratio, a share) are also compared directly.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import pandas as pd

from r2ccl_core.units import format_rate, format_size
from reports.stats import Estimate


class Scale(NamedTuple):
    """The cluster and the message of an experiment; `ranks` over all hosts."""

    hosts: int
    nics: int
    ranks: int
    nic_bit_s: float
    size_bytes: int

    @property
    def host_bytes_s(self) -> float:
        """The rate of all NICs of one host in one direction."""
        return self.nics * self.nic_bit_s / 8

    @property
    def lost(self) -> float:
        """X, the share of a host's bandwidth that one NIC has."""
        return 1 / self.nics

    def told(self) -> str:
        """The scale in words."""
        ranks = f", {self.ranks} ranks" if self.ranks != self.hosts else ""
        nics = f"{self.nics} NIC{'s' * (self.nics > 1)} of {format_rate(self.nic_bit_s)}"
        size = f", {format_size(self.size_bytes)}" if self.size_bytes else ""  # training has no vector
        return f"{self.hosts} hosts with {nics} each{ranks}{size}"


@dataclass(frozen=True)
class Fact:
    """One published number with its source. `high` makes it a range from `value`; `free`: it is independent of the
    scale, even of the number of ranks; `reason`: why the model differs, as far as is known."""

    key: str
    what: str
    unit: str
    value: float
    source: str
    high: float | None = None
    free: bool = False
    reason: str = ""


Place = Literal["below", "within", "above"]
Model = Callable[[Scale], Mapping[str, float]]
Measured = Callable[[pd.DataFrame], Mapping[str, Estimate]]


@dataclass(frozen=True)
class Trials:
    """What to sweep: an experiment of experiments/, its changed keys, the trials to keep, and how to read them."""

    experiment: str
    measured: Measured
    only: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    collective: str = "all_reduce"


@dataclass(frozen=True)
class Entry:
    """A published experiment. Without `trials` it is only modelled or simulated, and `missing` says why."""

    name: str
    title: str
    setup: str
    facts: tuple[Fact, ...]
    scale: Scale | None = None
    model: Model | None = None
    trials: Trials | None = None
    missing: str = ""
    draw: str = "side_by_side"
    """The figure: a module of `reports.figures`."""
    figure: Callable[[], pd.DataFrame] | None = field(default=None, compare=False)
    """The figure's data, if they are not the lines themselves."""


@dataclass(frozen=True)
class Line:
    """One fact with the model's and the measured values."""

    fact: Fact
    model: float | None
    measured: Estimate | None = None
    model_here: float | None = None

    @property
    def difference(self) -> float | None:
        """Published minus model value, in their unit; None for ranges and without a model."""
        return None if self.fact.high is not None or self.model is None else self.fact.value - self.model

    @property
    def published_over_model(self) -> float | None:
        """Published over model value; None for ranges and without a model."""
        return None if self.fact.high is not None else _over(self.fact.value, self.model)

    @property
    def measured_over_model(self) -> float | None:
        """Measured value over the model at the scale of the measurement."""
        return _over(self.measured.median, self.model_here) if self.measured else None

    @property
    def measured_over_published(self) -> float | None:
        """Measured over published value, only if they are scale-free."""
        if not self.fact.free or self.measured is None or self.fact.high is not None:
            return None
        return _over(self.measured.median, self.fact.value)

    @property
    def place(self) -> Place | None:
        """Where the measured value, if it is scale-free, or otherwise the model's lies relative to the published range;
        None without a range."""
        return self.place_of(self.measured.median if self.measured and self.fact.free else self.model)

    def place_of(self, value: float | None) -> Place | None:
        """Where `value` lies relative to the published range; None if either is missing."""
        if self.fact.high is None or value is None:
            return None
        if value < self.fact.value:
            return "below"
        return "within" if value <= self.fact.high else "above"


def lines(entry: Entry, here: Scale | None = None, frame: pd.DataFrame | None = None) -> list[Line]:
    """The facts of `entry` with model and, if `frame` (the trials of a run at scale `here`) is given, measured
    values."""
    model = entry.model(entry.scale) if entry.model and entry.scale else {}
    model_here = entry.model(here) if entry.model and here else {}
    measured = entry.trials.measured(frame) if entry.trials and frame is not None else {}
    return [
        Line(
            fact,
            model.get(fact.key),
            found if (found := measured.get(fact.key)) is not None and found.n else None,
            model_here.get(fact.key),
        )
        for fact in entry.facts
    ]


def scaled_down(entry: Entry, here: Scale | None) -> list[str]:
    """The differences between the published set-up and the one measured here."""
    there = entry.scale
    if there is None or here is None:
        return []
    pairs: list[tuple[str, object, object]] = [
        ("hosts", there.hosts, here.hosts),
        ("NICs per host", there.nics, here.nics),
        ("ranks", there.ranks, here.ranks),
        ("rate of a NIC", format_rate(there.nic_bit_s), format_rate(here.nic_bit_s)),
    ]
    if here.size_bytes:  # a workload such as serving has no vector
        pairs.append(("vector", format_size(there.size_bytes), format_size(here.size_bytes)))
    return [f"{what}: {ours} here, {theirs} published" for what, theirs, ours in pairs if ours != theirs]


def _over(value: float, by: float | None) -> float | None:
    return value / by if by and value == value else None
