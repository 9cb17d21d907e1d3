"""Shows a sweep to people: one line per trial, and on a terminal that is not too narrow a live table of all cells below
the lines."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from harness.backends.simulate import SIMULATE
from harness.errors import ExitCode
from harness.experiment.sweep import HEALTHY
from harness.interrupt import unbroken
from harness.sweep.cells import Cell, CellTable
from harness.sweep.plan import Trial
from harness.sweep.run_folder import RunFolder
from harness.sweep.summary import SHORT, Line, table, told
from harness.terminal import fits, folded, is_narrow, width
from reports import stats
from reports import trial as stored
from reports.metrics import METRICS
from reports.metrics.cost import not_known
from reports.metrics.metric import Metric
from reports.metrics.view import View
from reports.not_back import not_back_within
from reports.trial import SIMULATED
from reports.wording import NOT_KNOWN, STOPPED, difference, ended, number, plural, sized

REDRAWN_PER_S = 2
"""Low, because the cores belong to the systems being measured."""
LIVE = ("before_gbs", "after_gbs")
"""The metrics of the live table."""
SPREAD = ("mean_ms", "p99_ms")
"""Metrics of the table alone, which omits them first: a line of a trial would be too long with them."""
LESS = (*SPREAD, "hit_gbs", "repaired_gbs", "before_ttft_p50_ms", "during_tpot_over")
"""The metrics that the table omits on a narrow terminal; the report has them."""
EXPLAINED = {
    "slowdown": "T/T0: after over before",
    "mean_ms": "mean, p99: of all iterations since the fault",
    "lost_ms": "lost: beyond healthy iterations",
    "during_ttft_over": "%: over the same requests of healthy trials",
}
OF_MEANS = "a fault that comes and goes: median before, mean after, T/T0 mean over mean"
MEANS = {"slowdown": "T/T0 of means", "after_gbs": "mean after", "after_tokens_s": "mean after"}
"""What these are called of a trial whose fault comes and goes: beside a median before, they would contradict it."""
UNKNOWN = "?"
MARGIN = 8
"""Lines of the terminal that the table leaves for the lines above it."""


APART = 2
"""Columns of the terminal between two of the live table."""


class ConsoleProgress:
    """Prints lines on `console`; on a terminal that is not narrow (`is_narrow`) also the live table.

    Nothing that it prints is broken off: rich keeps what it was writing then, and would write it again with the next
    lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._table = CellTable()
        self._folder: Path | None = None
        self._live: Live | None = None
        self._widths = NO_WIDTHS

    def opened(self, folder: Path, resumed: bool) -> None:
        """Prints the folder that the run is written to."""
        self._folder = folder
        self.note(f"{'resuming' if resumed else 'writing to'} {folder}")

    @unbroken()
    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial]) -> None:
        """Shows the table, where it has room."""
        retries = trials[0].variant.experiment.sweep.retries if trials else 0
        self._table.begin(trials, records, retries)
        self._widths = _Widths.of(trials)
        if self._console.is_terminal and not is_narrow():
            self._live = Live(
                get_renderable=self._drawn, console=self._console, transient=True, refresh_per_second=REDRAWN_PER_S
            )
            self._live.start()
        if self._table.done:
            verb = "is" if self._table.done == 1 else "are"
            self.note(f"{self._table.done} of {self._table.planned} trials {verb} finished already")

    def note(self, text: str) -> None:
        """Prints one line; on a terminal it is wrapped between words."""
        self._line(text)

    @unbroken()
    def _line(self, text: str, style: str = "") -> None:
        shown = folded(text, "    ", width())
        self._console.print(shown, style=style or None, markup=False, highlight=False, soft_wrap=True)

    def trial(self, trial: Trial, attempt: int) -> None:
        """Shows the running trial below the table."""
        self._table.trial(trial, attempt)

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """Shows the current step of the trial."""
        if event == "step":
            self._table.step(str(fields.get("step", "")))

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """Prints the attempt's line."""
        table = self._table
        table.ended(trial, record, seconds, final)
        place = f"[{table.done:>{len(str(table.planned))}}/{table.planned}]"
        style = "yellow" if record.status == "inconclusive" else "" if record.expected else "bold red"
        self._line(f"{place} {trial_line(record, seconds, self._widths)}", style)

    @unbroken()
    def end(self) -> None:
        """Removes the table."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
        """Prints the summary of the sweep, on one screen."""
        if self._folder is None:
            return
        self._print_summary(table(RunFolder(self._folder).records()))
        for remark in remarks:
            self.note(remark)
        if (self._folder / "report.html").exists():
            self.note(f"report: {self._folder / 'report.html'}")

    @unbroken()
    def _print_summary(self, lines: Sequence[Line]) -> None:
        for less in ((), SPREAD, LESS):
            shown = _summary(lines, less)
            if width() is None or fits(shown, self._console):
                self._console.print(shown)
                return
        self.note(_title(lines))
        for line in lines:
            self.note(_in_words(line))

    def _drawn(self) -> RenderableType:
        return drawn(self._table, max(3, self._console.size.height - MARGIN), self._console)


def drawn(table: CellTable, rows: int, out: Console) -> RenderableType:
    """The live table: at most `rows` cells, then an estimate of the time left and the running trial. Columns that have
    no room on `out` are left out, the last first; a name that has none is cut in its middle."""
    shown = table.shown(rows)
    lines = [_live_row(cell) for cell in shown]
    headings = ["cell", "done", "ended as", *(METRICS[name].short for name in LIVE)]
    columns = [max(map(len, texts)) for texts in zip(headings, *lines, strict=True)]
    while len(columns) > 2 and sum(columns) + APART * (len(columns) - 1) > out.width:
        columns.pop()
    names = out.width - columns[1] - APART if len(columns) == 2 else columns[0]
    cells = Table(box=None, pad_edge=False)
    for heading in headings[: len(columns)]:
        cells.add_column(heading, justify="left" if heading in ("cell", "ended as") else "right", no_wrap=True)
    for name, *texts in lines:
        cells.add_row(*map(Text, (_cut(name, names), *texts[: len(columns) - 1])))
    hidden = len(table.cells) - len(shown)
    left = f", about {_duration(table.left_s)} left" if table.left_s is not None else ""
    foot = f"{table.done}/{table.planned}{left}" + (f"; {hidden} more cells" if hidden else "")
    feet = [f"{foot}  {table.now}"]
    if len(feet[0]) > out.width:
        feet = [foot, _cut(table.now, out.width)]
    return Group(cells, *(Text(line, no_wrap=True, overflow="ellipsis") for line in feet))


def _live_row(cell: Cell) -> list[str]:
    values = ["" if (value := cell.told(name)) is None else shown_value(METRICS[name], value) for name in LIVE]
    return [cell.name, f"{cell.done}/{cell.planned}", cell.statuses, *values]


def _cut(text: str, columns: int) -> str:
    """The text in at most so many columns, of its beginning and its end."""
    if len(text) <= columns:
        return text
    end = (columns - 1) // 2
    return f"{text[: columns - 1 - end]}…{text[len(text) - end :]}"


class _Widths(NamedTuple):
    """How wide the columns of the trials' lines are, so that those of one sweep stand one below the other."""

    system: int = 0
    rest: int = 0

    @classmethod
    def of(cls, trials: Sequence[Trial]) -> Self:
        """The widths that hold every one of `trials`."""
        systems = (len(_system(trial)) for trial in trials)
        return cls(max(systems, default=0), max((len(_rest(*_about(trial))) for trial in trials), default=0))


NO_WIDTHS = _Widths()


def _system(trial: Trial) -> str:
    simulated = trial.variant.experiment.backend_of(trial.system) == SIMULATE
    return trial.system.name + SIMULATED * simulated


def _about(trial: Trial) -> tuple[int, Mapping[str, str], str, int]:
    return trial.size_bytes, trial.variant.axes, trial.scenario, trial.repeat


def _rest(size_bytes: int, axes: Mapping[str, str], scenario: str, repeat: int) -> str:
    points = "".join(f" {axis}={value}" for axis, value in axes.items())
    return f"{sized(size_bytes):>7}{points}{'' if scenario == HEALTHY else f' {scenario}'} r{repeat}"


def trial_line(record: stored.Trial, seconds: float, widths: _Widths = NO_WIDTHS) -> str:
    """One attempt in one line."""
    rest = _rest(record.size_bytes, record.axes, record.scenario, record.repeat)
    what = f"{record.shown_system:<{widths.system}} {rest:<{widths.rest}}"
    values = told([record], SHORT)
    view = View(record)
    means = MEANS if view.comes_and_goes else {}
    measured = "  ".join(
        f"{means.get(metric.name, metric.short)} {shown_value(metric, values[metric.name])}"
        + (f" {metric.unit}" if metric.unit not in ("", metric.short) else "")
        for metric in SHORT
        if metric.name in values and metric.name not in SPREAD and (metric.aggregate == "median" or values[metric.name])
    )
    words = "  ".join(
        filter(
            None,
            (
                measured,
                _few_left(view) if any(name.startswith("repaired_") for name in values) else "",
                "ended before the cost was over" if view.cost_goes_on and "lost_ms" in values else "",
                not_back_within(record),
                not_known(view),
                record.reason,
            ),
        )
    )
    return f"{what}  {ended(record.status, expected=record.expected):<{len(STOPPED)}} {words}  [{seconds:.1f} s]"


def _few_left(view: View) -> str:
    """``repaired of 1 iteration``, where the NIC returned so late that no median is made of what is left."""
    left = len(view.in_phase("repaired"))
    return f"repaired of {plural(left, view.trial.counts.removesuffix('s'))}" if 0 < left < stats.MEDIAN_OF else ""


def _title(lines: Sequence[Line], less: Collection[str] = ()) -> str:
    """What the numbers are, of those that are there."""
    there = [name for name in EXPLAINED if name not in less and any(_shown(line, METRICS[name]) for line in lines)]
    told = [EXPLAINED[name] for name in there]
    if EXPLAINED["slowdown"] in told and any(line.comes_and_goes for line in lines):
        told.insert(told.index(EXPLAINED["slowdown"]) + 1, OF_MEANS)
    cells = [(line, name) for line in lines for name in line.columns if name not in less]
    unknown = [f"{UNKNOWN}: {NOT_KNOWN}"] if any(_shown(line, METRICS[name]) == UNKNOWN for line, name in cells) else []
    counts = (line.known_in[name] for line, name in cells if name in line.values and name in line.known_in)
    some = [f"({known}/{of}): known in {known} of {of}" for known, of in counts][:1]
    return "; ".join(["medians over repeats", *told, *unknown, *some])


def _summary(lines: Sequence[Line], less: Collection[str]) -> Table:
    """Every column that any line has, in its unit; without those that `less` names."""
    points = any(line.points for line in lines)
    columns = {METRICS[name]: heading for line in lines for name, heading in line.columns.items()}
    metrics = {m: text for m, text in columns.items() if m.name not in less and any(_shown(line, m) for line in lines)}
    shown = Table(title=_title(lines, less), box=SIMPLE)
    sizes = any(line.size_bytes for line in lines)
    for heading in (*["size"] * sizes, "system", *([_points_heading(lines)] if points else []), "trials"):
        shown.add_column(heading, justify="right" if heading == "size" else "left", no_wrap=True)
    for metric, heading in metrics.items():
        unit = "" if metric.aggregate == "total" or metric.unit == "requests" else metric.shown_unit  # the heading says
        first, _, rest = heading.partition(" ")
        shown.add_column(f"{first}\n{f'{rest} {unit}'.strip()}", justify="right", no_wrap=True)
    for line in lines:
        about = [*[sized(line.size_bytes)] * sizes, line.system, *([line.points] if points else []), line.statuses]
        cells = [_shown(line, metric) for metric in metrics]
        shown.add_row(*map(Text, about), *cells)
    return shown


def _points_heading(lines: Sequence[Line]) -> str:
    """What the column of `Line.points` holds."""
    words = [line.points.partition(" ") for line in lines if line.points]
    fault, axes = any("=" not in first for first, _, _ in words), any("=" in first + rest for first, _, rest in words)
    return ", ".join(["fault"] * fault + ["axes"] * axes)


def _shown(line: Line, metric: Metric) -> str:
    """A cell of the table. It is empty where there is nothing to measure, as of stopped trials, and not where a cost is
    not known. Where a cost is known for only some trials, it says so: ``1.13 (1/2)``."""
    known, of = line.known_in.get(metric.name, (0, 0))
    if metric.name not in line.values:
        return UNKNOWN if of else ""
    return shown_value(metric, line.values[metric.name]) + (f" ({known}/{of})" if of else "")


def _in_words(line: Line) -> str:
    """A line of the table in words, for a terminal that is too narrow for the table."""
    size = sized(line.size_bytes) if line.size_bytes else ""
    about = " ".join(filter(None, (size, line.system, line.points)))
    columns = [(heading, METRICS[name]) for name, heading in line.columns.items()]  # two may share a heading
    measured = [f"{heading} {text}" for heading, metric in columns if (text := _value_in_words(line, metric))]
    return f"{about}: {', '.join([line.statuses, *measured])}"


def _value_in_words(line: Line, metric: Metric) -> str:
    known, of = line.known_in.get(metric.name, (0, 0))
    if metric.name not in line.values:
        return NOT_KNOWN if of else ""
    some = f"(known in {known} of {of})" if of else ""
    unit = "" if metric.unit and metric.unit == metric.short else metric.shown_unit
    unit = unit.removesuffix("s") if metric.aggregate == "total" and line.values[metric.name] == 1 else unit
    return " ".join(filter(None, (shown_value(metric, line.values[metric.name]), unit, some)))


def shown_value(metric: Metric, value: float) -> str:
    """The value with as many digits as in the report, so that a figure reads the same everywhere."""
    if metric.percent:
        return difference(value)
    return number(value, 15 if metric.aggregate == "total" else 3)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
