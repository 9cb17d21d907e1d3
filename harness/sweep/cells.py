"""The table of a sweep so far, cell by cell, and an estimate of the time that is left. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from harness.sweep.plan import Trial
from harness.sweep.summary import next_attempt, told
from reports import trial as stored
from reports.metrics import METRICS
from reports.wording import tally


@dataclass
class Cell:
    """A system at a size under a fault at one point of the axes, with its repeats."""

    name: str
    planned: int = 0
    records: dict[str, stored.Trial] = field(default_factory=dict)
    """Last attempts by trial."""
    touched: int = 0
    """The event count at its last change."""

    @property
    def done(self) -> int:
        """Trials that have ended."""
        return len(self.records)

    @property
    def statuses(self) -> str:
        """``2 ok, 1 inconclusive``."""
        return tally((record.status, record.expected) for record in self.records.values())

    def told(self, metric: str) -> float | None:
        """A metric over the repeats so far."""
        return told(self.records.values(), [METRICS[metric]]).get(metric)


class CellTable:
    """Fed with the events of a `SweepProgress`."""

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}
        self.now = ""
        """The trial that runs and the step it is in."""
        self.seconds: list[float] = []
        self._events = 0
        self._trial = ""

    @property
    def planned(self) -> int:
        """The most trials that the sweep may run."""
        return sum(cell.planned for cell in self.cells.values())

    @property
    def done(self) -> int:
        """Trials that have ended, in this sweep or an earlier one."""
        return sum(cell.done for cell in self.cells.values())

    @property
    def left_s(self) -> float | None:
        """The estimated time left at this sweep's pace; None before the first trial has ended."""
        return (self.planned - self.done) * median(self.seconds) if self.seconds else None

    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial], retries: int) -> None:
        """Takes the plan, and the trials that an earlier sweep has run."""
        for trial in trials:
            cell = self.cells.setdefault(trial.cell, Cell(trial.cell))
            cell.planned += 1
            if next_attempt(trial, records, retries) is None:
                cell.records[trial.trial_id] = records[trial.trial_id]

    def trial(self, trial: Trial, attempt: int) -> None:
        """A trial begins."""
        self._trial = trial.trial_id + (f" (attempt {attempt})" if attempt > 1 else "")
        self.now = self._trial
        self._touch(trial)

    def step(self, name: str) -> None:
        """A step of the trial begins."""
        self.now = f"{self._trial}: {name}"

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """An attempt ended."""
        self.seconds.append(seconds)
        if final and trial.cell in self.cells:
            self.cells[trial.cell].records[trial.trial_id] = record
        self._touch(trial)

    def shown(self, rows: int) -> list[Cell]:
        """At most `rows` cells, in the order of the plan: those that changed last, then those still to run."""
        cells = list(self.cells.values())
        if len(cells) <= rows:
            return cells
        chosen = sorted(cells, key=lambda cell: (-cell.touched, cell.done >= cell.planned))[:rows]
        return [cell for cell in cells if cell in chosen]

    def _touch(self, trial: Trial) -> None:
        self._events += 1
        if trial.cell in self.cells:
            self.cells[trial.cell].touched = self._events
