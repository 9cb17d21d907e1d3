"""The first figure of a report: what each system did after the fault, in the two panels of its workload
(`reports.screens`), as speed before and after it beside the time lost."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation
from matplotlib.ticker import MaxNLocator

from reports.cells import cells_of, nothing_after, value_text, why_nothing_after
from reports.figures import style
from reports.headline import Line
from reports.metrics import METRICS
from reports.screens import Panel, screen_of
from reports.stats import Estimate
from reports.wording import NOT_KNOWN, NOT_MEASURED, number, plain, plural, sized

Row = Sequence[Line]
"""A row of the figure: one cell, or in a large figure all cells of a system that stopped or were not measured."""

MOST_ROWS = 24
"""Of a fault at a point with more systems than that, all are shown."""
IN_PART = "in part"
IN_TABLE = "in the table of all numbers"
MOST_TICKS, MOST_TICKS_NARROW = 6, 3
"""Intervals of an axis whose numbers may be long, as with thousands below 0; on a phone names take half the width."""
ROOM = 1.03
"""Of the axis of speeds, so that no mark is cut at its end."""
ROWS_IN, MOST_ROW_IN, LEAST_ROW_IN = 1.75, 0.3, 0.097
"""The height of all rows and the limits of a row's: many stand close together, so that table and figure of 18 cells are
on the first screen. On a phone, where they are not, rows are no lower than there."""
LEAST_ROW_NARROW_IN = 0.175
LARGE, SMALL = 8.5, 7.0
"""Sizes of letters, in points; the small ones are for rows that are lower than `SMALL_BELOW_IN`."""
SMALL_BELOW_IN = 0.115
LINE_IN = 1.25 / 72
"""The height of a line of a label, for each point of its letters."""
LABEL, LABEL_NARROW = 52, 40
"""Letters in a line of a label; a longer label is wrapped."""
TICK: dict[str, Any] = {"marker": "|", "markersize": 11, "markeredgewidth": 2}
LONGEST = 300
"""Letters of a label; of a longer one the end is cut, with an ellipsis."""


def draw(lines: Sequence[Line]) -> Figure:
    """A row for each system and fault: in a panel of marks a hollow and a full one, as for the healthy speed and the
    speed after the fault; in a panel of bars one. Without a fault, there is one panel, of hollow marks."""
    rows, screen = shown(lines), screen_of(lines)
    labels = ["\n".join(textwrap.wrap(name, LABEL_NARROW if style.narrow() else LABEL)) for name in names(rows)]
    row_in, letters = _row_in(labels)
    height, count = row_in * len(rows) + 0.9, len(screen.panels)
    with style.applied():
        figure = style.sheet(style.WIDTH_IN, count * height + 0.4 if style.narrow() else height + 0.25)
        beside: dict[str, Any] = {} if style.narrow() else {"sharey": True, "width_ratios": (1.25, 1)[:count]}
        axes = figure.subplots(*((count, 1) if style.narrow() else (1, count)), squeeze=False, **beside).flat
        looks = style.looks(list(dict.fromkeys(row[0].system for row in rows)))
        for at, (ax, panel) in enumerate(zip(axes, screen.panels, strict=True)):
            for y, row in enumerate(rows):
                for line in row:
                    (_marks if panel.hollow else _bar)(ax, y, line, looks[row[0].system], panel, letters)
            if not at or style.narrow():
                _rows(ax, labels, letters)
            _axis(ax, panel, rows)
        hollow = Line2D(
            [], [], color="#444444", marker="o", markerfacecolor="white", linestyle="none", label=screen.marks[0]
        )
        full = Line2D([], [], color="#444444", marker="o", linestyle="none", label=screen.marks[1])
        tick = Line2D([], [], **TICK, color="#444444", linestyle="none", label=screen.marks[2])
        ticks = [tick] if _have_ticks(rows, screen.panels[0]) else []
        style.legend_of(figure, [hollow] if screen.panels[0].hollow_alone else [hollow, full, *ticks])
        left = _say_ends(axes[0], rows, looks, screen.panels[0], letters)
        if left:
            figure.draw_without_rendering()  # which gives the panels their width
            _keep_off_labels(axes[0], figure.dpi, left)
    return figure


def _have_ticks(rows: Sequence[Row], panel: Panel) -> bool:
    return bool(panel.tick) and any(line[panel.tick].n for row in rows for line in row)


def _axis(ax: Axes, panel: Panel, rows: Sequence[Row]) -> None:
    """The panel's axis of values, from 0, or around it."""
    ax.set_xlabel(panel.axis)
    if panel.none and not any(line[panel.full].n or _hollow(panel, line).n for row in rows for line in row):
        ax.set_xticks([])
        style.empty(ax, panel.none)
        return
    low, high = ax.get_xlim()
    if panel.percent:
        ax.axvline(0, color="#444444", linewidth=0.8, zorder=0)
        low, high = ax.get_xlim()
        ax.set_xlim(min(-1.0, low), max(1.0, high))
    elif panel.hollow:
        ax.set_xlim(0, high * ROOM)
    else:
        ax.set_xlim(min(0.0, low), max(high, 1.0))
    if (style.narrow() or not panel.hollow) and len(ax.get_xticks()):
        ax.xaxis.set_major_locator(MaxNLocator(MOST_TICKS_NARROW if style.narrow() else MOST_TICKS))


def tells(lines: Sequence[Line]) -> bool:
    """Whether the figure has anything to show: a number, or a system that stopped."""
    panels = screen_of(lines).panels
    cells = [line for row in shown(lines) for line in row if line.conclusive]
    return any(
        _end(line) or nothing_after(line) or any(line[p.full].n or _hollow(p, line).n for p in panels) for line in cells
    )


def _hollow(panel: Panel, line: Line) -> Estimate:
    """What the hollow mark shows; of bars, which have none, what the bar shows."""
    return line[panel.hollow or panel.full]


def _row_in(labels: Sequence[str]) -> tuple[float, float]:
    """The height of a row, and the size of its letters."""
    least = LEAST_ROW_NARROW_IN if style.narrow() else LEAST_ROW_IN
    row_in = min(MOST_ROW_IN, max(least, ROWS_IN / max(1, len(labels))))
    letters = SMALL if row_in < SMALL_BELOW_IN else LARGE
    most = max((label.count("\n") + 1 for label in labels), default=1)
    return row_in if most == 1 else max(row_in, (most + 0.3) * LINE_IN * letters), letters


def shown(lines: Sequence[Line]) -> list[Row]:
    """The rows of the figure. Where there are too many, those of a system that stopped share one, as do those that were
    not measured. The others are kept or left out for all systems that have them (`_kept`)."""
    cells = drawable(lines)
    if len(cells) <= MOST_ROWS:
        return [[line] for line in cells]
    rows: dict[tuple[str, str], list[Line]] = {}
    for at, line in enumerate(cells):
        rows.setdefault((line.system, _end(line) or str(at)), []).append(line)
    ended = [row for row in rows.values() if _end(row[0])][:MOST_ROWS]
    kept = {id(line) for row in [*ended, *_kept(_groups(cells), MOST_ROWS - len(ended))] for line in row}
    return [row for row in rows.values() if id(row[0]) in kept]


def drawable(lines: Sequence[Line]) -> list[Line]:
    """The cells of the figure; serving beside other workloads has no number in common with them."""
    workloads = screen_of(lines).workloads
    return [line for line in cells_of(lines) if line.workload in workloads]


def _groups(cells: Sequence[Line]) -> list[Row]:
    """The cells that went on, by fault and point: what readers compare systems in."""
    groups: dict[tuple[str, int], list[Line]] = {}
    for line in cells:
        if not _end(line):
            groups.setdefault((line.case, line.size_bytes), []).append(line)
    return list(groups.values())


def _kept(groups: Sequence[Row], room: int) -> list[Row]:
    """The groups that have room, at least one. They are whole, because cells on their own would leave out the system
    that loses least. They are taken fault by fault, so that a mild fault is not left out for harder ones; of a fault
    those come first in which a system lost most."""
    ranked, turns = list(groups), Counter[str]()
    if any(_worst(group) > -inf for group in groups):
        ranked.sort(key=_worst, reverse=True)
        turn = {}
        for group in ranked:
            turn[id(group)] = turns[group[0].scenario]
            turns[group[0].scenario] += 1
        ranked.sort(key=lambda group: turn[id(group)])
    ends = accumulate(map(len, ranked))
    return [group for at, (group, end) in enumerate(zip(ranked, ends, strict=True)) if not at or end <= room]


def _worst(group: Row) -> float:
    """The most time that one of its systems lost."""
    return max((line["lost_ms"].median for line in group if line["lost_ms"].n), default=-inf)


def _end(line: Line) -> str:
    """Why nothing follows the fault in a cell: it stopped, or was not measured; empty if something may."""
    if not line.conclusive:
        return NOT_MEASURED
    return "stopped" if line.stopped and not line.runs_after else ""


def _rows(ax: Axes, labels: Sequence[str], letters: float) -> None:
    ax.set_yticks(range(len(labels)), labels, fontsize=letters)
    ax.set_ylim(len(labels) - 0.5, -0.5)
    for axis in ax.figure.axes:
        axis.grid(axis="x", color="#E4E4E4")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)


def names(rows: Sequence[Row]) -> list[str]:
    """The parts that distinguish the rows: system, fault and axes, each only if there are several; and what runs, which
    is long, only if these do not tell the rows apart. A row of several cells has their system and number."""
    single = [row[0] for row in rows if len(row) == 1]
    # Speeds and times of different sizes do not compare, so a row says its size where systems have several.
    sizes = [sized(line.size_bytes) if line.size_bytes else "" for line in single]
    short = [(li.system, size, li.scenario, *li.points.values()) for li, size in zip(single, sizes, strict=True)]
    long = [(name, size, line.operation, *rest) for (name, size, *rest), line in zip(short, single, strict=True)]
    parts = short if len(set(short)) == len(single) else long
    told = [i for i in range(max(map(len, parts), default=0)) if len({part[i : i + 1] for part in parts}) > 1] or [0]
    told = sorted({0, *told}) if len(single) < len(rows) else told
    alone = iter([", ".join(dict.fromkeys(part[i] for i in told if i < len(part) and part[i])) for part in parts])
    texts = [next(alone) if len(row) == 1 else f"{row[0].system}, {plural(len(row), 'cell')}" for row in rows]
    return [plain(text if len(text) <= LONGEST else text[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}") for text in texts]


def _marks(ax: Axes, y: int, line: Line, look: style.Look, panel: Panel, letters: float) -> None:
    color, marker, factor = look.color, look.marker, 100 if panel.percent else 1
    hollow, full = line[panel.hollow], line[panel.full]
    if hollow.n and full.n:
        ends = [factor * hollow.median, factor * full.median]
        ax.plot(ends, [y, y], color=color, linewidth=1.4, alpha=0.5, zorder=1)
    if hollow.n:
        ax.plot(factor * hollow.median, y, marker, color=color, markerfacecolor="white", markersize=6.5, zorder=2)
    # A healthy speed beside one after a fault is no result.
    for told in [full, hollow] if panel.percent or panel.hollow_alone else [full]:
        if told.n and told.low == told.low:
            ax.hlines(y, factor * told.low, factor * told.high, color=color, linewidth=3, alpha=0.45, zorder=1)
    if full.n:
        ax.plot(factor * full.median, y, marker, color=color, markersize=6.5, zorder=3)
    if panel.tick and line[panel.tick].n:
        ax.plot(factor * line[panel.tick].median, y, **TICK, color=color, zorder=4)


def _say_ends(
    ax: Axes, rows: Sequence[Row], looks: dict[str, style.Look], panel: Panel, letters: float
) -> list[tuple[Annotation, float]]:
    """Says of every row why nothing follows; returns the words on the left of marks, and where the marks end on their
    right."""
    known = [line[panel.hollow].median for row in rows for line in row if line[panel.hollow].n]
    middle = sum(ax.get_xlim()) / 2 if panel.percent else max(known, default=0.0) / 2
    told = [_ended(ax, y, row, looks[row[0].system], panel, middle, letters) for y, row in enumerate(rows)]
    return [each for each in told if each]


def _keep_off_labels(ax: Axes, dpi: float, left: Sequence[tuple[Annotation, float]]) -> None:
    """Moves words that reach from the left of their marks over the labels of the rows to the right of where the marks
    end, unless they have less room there."""
    for text, end in left:
        words, away = text.get_window_extent(), -text.xyann[0]
        over = ax.bbox.x0 - words.x0
        right = ax.transData.transform((end, 0))[0] + away * dpi / 72 + words.width
        if over > 0 and right - ax.bbox.x1 < over:
            text.xy, text.xyann = (end, text.xy[1]), (away, 0)
            text.set_horizontalalignment("left")


def _ended(
    ax: Axes, y: int, row: Row, look: style.Look, panel: Panel, middle: float, letters: float
) -> tuple[Annotation, float] | None:
    """Says why nothing follows: beside the healthy marks, on the side where there is room. Returns words on their left,
    and where the marks end on their right."""
    why = _end(row[0]) or why_nothing_after(row[0])
    if not why:
        return None
    marked = [metric for metric in (panel.hollow, panel.tick) if metric]
    speeds = [line[metric].median for line in row for metric in marked if line[metric].n] or [0.0]
    side, away, x = ("right", -9, min(speeds)) if min(speeds) > middle else ("left", 9, max(speeds))
    text = ax.annotate(
        why,
        (x, y),
        xytext=(away, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=min(8.0, letters),
        color=look.color if why == "stopped" else style.LINE,
    )
    return (text, max(speeds)) if side == "right" else None


def _bar(ax: Axes, y: int, line: Line, look: style.Look, panel: Panel, letters: float) -> None:
    lost = line[panel.full]
    beside: dict[str, Any] = {
        "xytext": (4, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": min(8.0, letters),
    }
    if not lost.n:
        if line.unknown(METRICS[panel.full]):
            ax.annotate(NOT_KNOWN, (0, y), **beside)
        return
    ax.barh(y, lost.median, 0.55, color=look.color, hatch=look.hatch if line.run else "", edgecolor="white", alpha=0.85)
    if lost.low == lost.low:
        ax.hlines(y, lost.low, lost.high, color="#111111", linewidth=1)
    end = max(lost.median, lost.high if lost.high == lost.high else lost.median, 0.0)
    ax.annotate(f"{number(lost.median)}{_in_part(line, panel)}", (end, y), **beside)


def _in_part(line: Line, panel: Panel) -> str:
    """What follows a time lost of which trials have seen a part only, as the first table says beside it."""
    return f", {IN_PART}" if panel.full == "lost_ms" and line["lost_ms"].n and line.cost_goes_on else ""


def caption(lines: Sequence[Line]) -> str:
    """Describes the figure."""
    rows = shown(lines)
    sizes = ", ".join(dict.fromkeys(sized(line.size_bytes) for row in rows for line in row if line.size_bytes))
    at = f", at {sizes}" if sizes else ""
    what = f"{screen_of(lines).caption}{at}{_only_fault(rows)}{_kinds(lines)}"
    missing = any(not line.conclusive for row in rows for line in row)
    why = f" {NOT_MEASURED.capitalize()}: every trial is inconclusive." if missing else ""
    ticks = _have_ticks(rows, screen_of(lines).panels[0])
    why += " A tick is the speed after the repair." if ticks else ""
    if any(_in_part(line, panel) for row in rows for line in row for panel in screen_of(lines).panels):
        why += f" {IN_PART.capitalize()}: trials ended before the cost was over, and saw a part of it only."
    return f"{what}: {style.INTERVAL_NOTE}.{why}{_left_out(rows, drawable(lines))}"


def _only_fault(rows: Sequence[Row]) -> str:
    """The fault, where there is one only: then no row names it (`names`)."""
    faults = list({line.scenario for row in rows for line in row if line.with_fault})
    return f" (fault: {plain(faults[0])})" if len(faults) == 1 else ""


def _kinds(lines: Sequence[Line]) -> str:
    """Of a report of several kinds of workloads, those that the figure has."""
    if len({line.workload for line in lines}) == 1:
        return ""
    drawn = dict.fromkeys(line.workload for line in drawable(lines))
    return f" (of {' and '.join(drawn)} alone)" if drawn else ""


def _left_out(rows: Sequence[Row], cells: Sequence[Line]) -> str:
    """What became of the cells that have no row of their own."""
    told = ["cells of one system that stopped, or were not measured, share a row"] if any(map(_shared, rows)) else []
    more = len(cells) - sum(map(len, rows))
    if more:
        which = _which(rows, cells)
        told.append(f"{which}{'; ' * bool(which)}{more} more {'cell is' if more == 1 else 'cells are'} {IN_TABLE}")
    return "".join(f" {text[:1].upper()}{text[1:]}." for text in told)


def _which(rows: Sequence[Row], cells: Sequence[Line]) -> str:
    """Which of the cells that went on have a row; empty: all of them, or there is none."""
    groups = _groups(cells)
    drawn = {id(line) for row in rows for line in row}
    kept = [group for group in groups if id(group[0]) in drawn]
    if len(kept) == len(groups):
        return ""
    faults = len({group[0].scenario for group in groups})
    what = "faults" if faults == len(groups) else "points" if faults == 1 else "faults and points"
    went_on = sum(map(len, groups)) < len(cells)
    of = f"{len(kept)} of {len(groups)} {what}{' where a system went on' if went_on else ''}"
    whole = f"each with all its systems{' that went on' if went_on else ''}"
    if all(_worst(group) == -inf for group in groups):
        return f"the figure has the first {of}, {whole}"
    known = all(line["lost_ms"].n for group in groups for line in group)
    most = "lost most" if known else "is known to have lost most"
    turns = "taken fault by fault, " if 1 < faults < len(groups) else ""
    return f"the figure has {of}, {whole}: {turns}those where a system {most}"


def _shared(row: Row) -> bool:
    return len(row) > 1


def result(lines: Sequence[Line]) -> str:
    """The result in words, for readers who cannot see the figure."""
    rows = shown(lines)
    told = "; ".join(_told(row, name, lines) for row, name in zip(rows, names(rows), strict=True))
    return f"{told}.{_left_out(rows, drawable(lines))}"


def _told(row: Row, name: str, lines: Sequence[Line]) -> str:
    if _shared(row):
        who = f"{name} ({', '.join(dict.fromkeys(line.scenario for line in row))})"
    else:
        fault = [row[0].scenario] if row[0].with_fault else []  # of a healthy one, the numbers say so
        who = ", ".join(dict.fromkeys([*name.split(", "), *fault]))
    if _end(row[0]) == NOT_MEASURED:
        return f"{who}: {NOT_MEASURED}"
    screen, line = screen_of(lines), row[0]
    ends = [_panel_told(row, panel) if panel.told[0] else _speeds_told(row, panel) for panel in screen.panels[:1]]
    ends += ["stopped"] if line.stopped and not line.runs_after else []
    ends += [why_nothing_after(line)]
    ends += [_panel_told(row, panel) for panel in screen.panels[1:]]
    return f"{who}: {', '.join(filter(None, ends))}"


def _speeds_told(row: Row, panel: Panel) -> str:
    """Of a panel of speeds, the unit of which is said once."""
    before, after = METRICS[panel.hollow], row[0][panel.full]
    healthy = sorted(each[before.name].median for each in row if each[before.name].n)
    speeds = " to ".join(dict.fromkeys(map(number, healthy[:1] + healthy[-1:]))) or number(None)
    told = f"{speeds} {before.unit} healthy"
    told += f", {number(after.median)} after the fault" if after.n else ""
    repaired = row[0][panel.tick] if panel.tick else after
    return f"{told}, {number(repaired.median)} after the repair" if panel.tick and repaired.n else told


def _panel_told(row: Row, panel: Panel) -> str:
    """Of any other panel, each number with its words."""
    line, metric = row[0], METRICS[panel.full]
    if not panel.hollow:
        value, unknown = line[metric.name], line.unknown(metric)
        if value.n:
            return f"{number(value.median)} {metric.unit} lost{_in_part(line, panel)}"
        return "time lost not known" if unknown else ""
    told = [
        f"{value_text(METRICS[name], line[name].median)} {METRICS[name].shown_unit} {words}"
        for name, words in zip((panel.hollow, panel.full), panel.told, strict=True)
        if line[name].n
    ]
    return f"{panel.axis.partition(' (')[0]}: {', '.join(told)}" if told else ""
