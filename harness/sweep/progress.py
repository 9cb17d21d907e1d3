"""How a sweep shows that it lives: a line a trial everywhere, and on a terminal a bar below the lines."""

from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from harness.sweep.plan import Trial
from harness.sweep.summary import bandwidth_gbs, shown_status
from r2ccl_core.units import format_size
from reports import trial as stored
from reports.trial import Phase


class SweepProgress(Protocol):
    """What a sweep tells while it runs."""

    def begin(self, total: int, done: int) -> None:
        """`total` trials, of which `done` were finished by an earlier, interrupted sweep."""
        ...

    def note(self, text: str) -> None:
        """Something that is no trial: the cluster is up, rows are being written."""
        ...

    def trial(self, trial: Trial, attempt: int) -> None:
        """A trial begins."""
        ...

    def ended(self, record: stored.Trial, seconds: float, final: bool) -> None:
        """An attempt ended; `final` unless it is tried again."""
        ...

    def end(self) -> None:
        """Nothing follows."""
        ...


class SilentProgress:
    """Says nothing."""

    def begin(self, total: int, done: int) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def trial(self, trial: Trial, attempt: int) -> None:
        """Nothing."""

    def ended(self, record: stored.Trial, seconds: float, final: bool) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class ConsoleProgress:
    """Lines on `console`; on a terminal also a bar with the trial that runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._done = 0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=4,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None)

    def begin(self, total: int, done: int) -> None:
        """Starts the bar."""
        self._total, self._done = total, done
        self._bar.update(self._task, total=total, completed=done)
        self._bar.start()
        if done:
            self.note(f"{done} of {total} trials are finished already")

    def note(self, text: str) -> None:
        """One line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def trial(self, trial: Trial, attempt: int) -> None:
        """Shows what runs beside the bar."""
        self._bar.update(self._task, description=trial.trial_id + (f" (attempt {attempt})" if attempt > 1 else ""))

    def ended(self, record: stored.Trial, seconds: float, final: bool) -> None:
        """The attempt's line."""
        self._done += final
        self._bar.update(self._task, completed=self._done)
        self.note(f"[{self._done:>{len(str(self._total))}}/{self._total}] {trial_line(record, seconds)}")

    def end(self) -> None:
        """Takes the bar away."""
        self._bar.stop()


def trial_line(record: stored.Trial, seconds: float) -> str:
    """One attempt in one line."""
    what = f"{record.system:<12} {format_size(record.size_bytes):>7} r{record.repeat}"
    phases: tuple[Phase, ...] = ("before", "hit", "after")
    shown = {phase: bandwidth_gbs([record], phase) for phase in phases}
    bandwidths = "  ".join(f"{phase} {v:.3f}" for phase, v in shown.items() if v is not None)
    told = "  ".join(filter(None, (f"{bandwidths} GB/s" if bandwidths else "", record.reason)))
    return f"{what}  {shown_status(record):<12} {told}  [{seconds:.1f} s]"
