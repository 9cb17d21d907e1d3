"""A sweep for people: a line a trial everywhere, and on a terminal a live table of all cells below the lines."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.errors import ExitCode
from harness.sweep.board import Board
from harness.sweep.plan import Trial
from harness.sweep.run_folder import RunFolder
from harness.sweep.summary import bandwidth_gbs, shown_status, table
from r2ccl_core.units import format_size
from reports import trial as stored
from reports.trial import Phase
from reports.wording import STOPPED

REDRAWN_PER_S = 2
"""Seldom: the cores belong to what is measured."""
MARGIN = 8
"""Lines of the terminal that the table leaves to the lines above it."""


class ConsoleProgress:
    """Lines on `console`; on a terminal also the live table."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._board = Board()
        self._folder: Path | None = None
        self._live: Live | None = None

    def opened(self, folder: Path, resumed: bool) -> None:
        """Where the run is written."""
        self._folder = folder
        self.note(f"{'resuming' if resumed else 'writing to'} {folder}")

    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial]) -> None:
        """Shows the table."""
        retries = trials[0].variant.experiment.sweep.retries if trials else 0
        self._board.begin(trials, records, retries)
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._drawn, console=self._console, transient=True, refresh_per_second=REDRAWN_PER_S
            )
            self._live.start()
        if self._board.done:
            self.note(f"{self._board.done} of {self._board.planned} trials are finished already")

    def note(self, text: str) -> None:
        """One line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def trial(self, trial: Trial, attempt: int) -> None:
        """Shows what runs below the table."""
        self._board.trial(trial, attempt)

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """Shows the step that the trial is in."""
        if event == "step":
            self._board.step(str(fields.get("step", "")))

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """The attempt's line."""
        board = self._board
        board.ended(trial, record, seconds, final)
        self.note(f"[{board.done:>{len(str(board.planned))}}/{board.planned}] {trial_line(record, seconds)}")

    def end(self) -> None:
        """Takes the table away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
        """The sweep on one screen."""
        if self._folder is None:
            return
        self._console.print(_summary(RunFolder(self._folder).records()))
        for remark in remarks:
            self.note(remark)
        if (self._folder / "report.html").exists():
            self.note(f"report: {self._folder / 'report.html'}")

    def _drawn(self) -> RenderableType:
        return drawn(self._board, max(3, self._console.size.height - MARGIN))


def drawn(board: Board, rows: int) -> RenderableType:
    """The live table: at most `rows` cells, then what runs now and how long the rest may take."""
    shown = board.shown(rows)
    cells = Table(box=None, pad_edge=False)
    for heading in ("cell", "done", "ended as", "before", "after"):
        cells.add_column(heading, justify="right" if heading in ("done", "before", "after") else "left", no_wrap=True)
    for cell in shown:
        numbers = (cell.before_gbs, cell.after_gbs)
        texts = ["" if n is None else f"{n:.3f}" for n in numbers]
        cells.add_row(Text(cell.name), f"{cell.done}/{cell.planned}", Text(cell.statuses), *texts)
    hidden = len(board.cells) - len(shown)
    left = f", about {_duration(board.left_s)} left" if board.left_s is not None else ""
    foot = f"{board.done}/{board.planned}{left}" + (f"; {hidden} more cells" if hidden else "") + f"  {board.now}"
    return Group(cells, Text(foot, no_wrap=True, overflow="ellipsis"))


def trial_line(record: stored.Trial, seconds: float) -> str:
    """One attempt in one line."""
    points = "".join(f" {axis}={value}" for axis, value in record.axes.items())
    scenario = "" if record.scenario == "healthy" else f" {record.scenario}"
    what = f"{record.shown_system:<12} {format_size(record.size_bytes):>7}{points}{scenario} r{record.repeat}"
    phases: tuple[Phase, ...] = ("before", "hit", "after", "repaired")
    shown = {phase: bandwidth_gbs([record], phase) for phase in phases}
    bandwidths = "  ".join(f"{phase} {v:.3f}" for phase, v in shown.items() if v is not None)
    told = "  ".join(filter(None, (f"{bandwidths} GB/s" if bandwidths else "", record.reason)))
    return f"{what}  {shown_status(record):<{len(STOPPED)}} {told}  [{seconds:.1f} s]"


def _summary(records: Sequence[stored.Trial]) -> Table:
    lines = table(records)
    shown = Table(title="bus bandwidth, GB/s, medians; T/T0: after over before")
    points = any(line.points for line in lines)
    repaired = ["repaired"] if any(line.repaired_gbs is not None for line in lines) else []
    about = ["size", "system", *(["fault, axes"] if points else []), "trials"]
    headings = [*about, "before", "hit", "after", *repaired, "T/T0"]
    for heading in headings:
        shown.add_column(heading, justify="left" if heading in ("system", "fault, axes", "trials") else "right")
    for line in lines:
        numbers = [line.before_gbs, line.hit_gbs, line.after_gbs, *([line.repaired_gbs] * len(repaired)), line.slowdown]
        cells = ["" if n is None else f"{n:.3f}" for n in numbers]
        names = [format_size(line.size_bytes), line.system, *([line.points] if points else [])]
        shown.add_row(*map(Text, names), line.statuses, *cells)
    return shown


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
