"""The interface through which a sweep reports its progress: at least one line for each trial.

`harness.sweep.console` shows it to people, `harness.sweep.json_events` to programs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.errors import ExitCode
from harness.sweep.plan import Trial
from reports import trial as stored


class SweepProgress(Protocol):
    """The events that a sweep reports while it runs."""

    def opened(self, folder: Path, resumed: bool) -> None:
        """The run's folder; `resumed` if an interrupted run continues in it."""
        ...

    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial]) -> None:
        """All trials that may run, and the last attempts of those that an earlier sweep has run."""
        ...

    def note(self, text: str) -> None:
        """A message that concerns no trial: the cluster comes up, the report cannot be written."""
        ...

    def trial(self, trial: Trial, attempt: int) -> None:
        """A trial begins."""
        ...

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """An event inside the trial: ``step`` (its name), ``fault`` (it has taken effect: where and when)."""
        ...

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """An attempt ended; `final` unless the trial is tried again."""
        ...

    def end(self) -> None:
        """No trial follows."""
        ...

    def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
        """The sweep is over, the report is written; `remarks` are for people: drift, bounds, precision."""
        ...


class SilentProgress:
    """Reports nothing."""

    def opened(self, folder: Path, resumed: bool) -> None:
        """Nothing."""

    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial]) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def trial(self, trial: Trial, attempt: int) -> None:
        """Nothing."""

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """Nothing."""

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""

    def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
        """Nothing."""
