"""The first figure of a report: each system's speed before and after the fault, and the time that it lost."""

import textwrap
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from math import inf
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.headline import Line
from reports.overview import cells_of, nothing_after, speed, unit
from reports.wording import NOT_KNOWN, NOT_MEASURED, NOTHING_AFTER, number, plain, plural, sized

Row = Sequence[Line]
"""A row of the figure: one cell, or in a large figure all cells of a system that stopped or were not measured."""

MOST_ROWS = 24
"""Of a fault at a point with more systems than that, all are shown."""
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
LONGEST = 300
"""Letters of a label; of a longer one the end is cut, with an ellipsis."""


def draw(lines: Sequence[Line]) -> Figure:
    """A row for each system and fault: a hollow mark for the healthy speed, a full one for the speed after the fault;
    beside them the time lost."""
    rows = shown(lines)
    labels = ["\n".join(textwrap.wrap(name, LABEL_NARROW if style.narrow() else LABEL)) for name in names(rows)]
    row_in, letters = _row_in(labels)
    height = row_in * len(rows) + 0.9
    with style.applied():
        figure = style.sheet(style.WIDTH_IN, 2 * height + 0.4 if style.narrow() else height + 0.25)
        if style.narrow():
            left, right = figure.subplots(2, 1)
        else:
            left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
        looks = style.looks(list(dict.fromkeys(row[0].system for row in rows)))
        known = [line for row in rows for line in row if line[f"before_{speed(lines)}"].n]
        middle = max((line[f"before_{speed(lines)}"].median for line in known), default=0.0) / 2
        for y, row in enumerate(rows):
            look = looks[row[0].system]
            for line in row:
                _speeds(left, y, line, look, speed(lines))
                _lost(right, y, line, look, letters)
            _ended(left, y, row, look, speed(lines), middle, letters)
        _rows(left, labels, letters)
        axis = {"gbs": "bus bandwidth", "tokens_s": "trained", "ms": "an iteration"}[speed(lines)]
        left.set_xlabel(f"{axis} ({unit(lines)})")
        left.set_xlim(0, left.get_xlim()[1] * ROOM)
        right.set_xlabel("time lost against healthy (ms)")
        if style.narrow():
            _rows(right, labels, letters)
        if not any(line["lost_ms"].n for row in rows for line in row):
            right.set_xticks([])
            style.empty(right, "no time lost is known")
        low, high = right.get_xlim()
        right.set_xlim(min(0.0, low), max(high, 1.0))
        for ax in (left, right) if style.narrow() else (right,):
            if not len(ax.get_xticks()):
                continue
            ax.xaxis.set_major_locator(MaxNLocator(MOST_TICKS_NARROW if style.narrow() else MOST_TICKS))
        hollow = Line2D([], [], color="#444444", marker="o", markerfacecolor="white", linestyle="none", label="healthy")
        full = Line2D([], [], color="#444444", marker="o", linestyle="none", label="after the fault")
        style.legend_of(figure, [hollow, full])
    return figure


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
    cells = cells_of(lines)
    if len(cells) <= MOST_ROWS:
        return [[line] for line in cells]
    rows: dict[tuple[str, str], list[Line]] = {}
    for at, line in enumerate(cells):
        rows.setdefault((line.system, _end(line) or str(at)), []).append(line)
    ended = [row for row in rows.values() if _end(row[0])][:MOST_ROWS]
    kept = {id(line) for row in [*ended, *_kept(_groups(cells), MOST_ROWS - len(ended))] for line in row}
    return [row for row in rows.values() if id(row[0]) in kept]


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
    short = [(line.system, sized(line.size_bytes), line.scenario, *line.points.values()) for line in single]
    long = [(name, size, line.operation, *rest) for (name, size, *rest), line in zip(short, single, strict=True)]
    parts = short if len(set(short)) == len(single) else long
    told = [i for i in range(max(map(len, parts), default=0)) if len({part[i : i + 1] for part in parts}) > 1] or [0]
    told = sorted({0, *told}) if len(single) < len(rows) else told
    alone = iter([", ".join(dict.fromkeys(part[i] for i in told if i < len(part))) for part in parts])
    texts = [next(alone) if len(row) == 1 else f"{row[0].system}, {plural(len(row), 'cell')}" for row in rows]
    return [plain(text if len(text) <= LONGEST else text[: LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}") for text in texts]


def _speeds(ax: Axes, y: int, line: Line, look: style.Look, kind: str) -> None:
    color, marker = look.color, look.marker
    before, after = line[f"before_{kind}"], line[f"after_{kind}"]
    if before.n and after.n:
        ax.plot([before.median, after.median], [y, y], color=color, linewidth=1.4, alpha=0.5, zorder=1)
    if before.n:
        ax.plot(before.median, y, marker, color=color, markerfacecolor="white", markersize=6.5, zorder=2)
    if after.n:
        if after.low == after.low:
            ax.hlines(y, after.low, after.high, color=color, linewidth=3, alpha=0.45, zorder=1)
        ax.plot(after.median, y, marker, color=color, markersize=6.5, zorder=3)


def _ended(ax: Axes, y: int, row: Row, look: style.Look, kind: str, middle: float, letters: float) -> None:
    """Says why nothing follows: beside the healthy marks, on the side where there is room."""
    why = _end(row[0]) or (NOTHING_AFTER if nothing_after(row[0]) else "")
    if not why:
        return
    speeds = [line[f"before_{kind}"].median for line in row if line[f"before_{kind}"].n] or [0.0]
    side, away, x = ("right", -9, min(speeds)) if min(speeds) > middle else ("left", 9, max(speeds))
    ax.annotate(
        why,
        (x, y),
        xytext=(away, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=min(8.0, letters),
        color=look.color if why == "stopped" else style.LINE,
    )


def _lost(ax: Axes, y: int, line: Line, look: style.Look, letters: float) -> None:
    lost = line["lost_ms"]
    beside: dict[str, Any] = {
        "xytext": (4, 0),
        "textcoords": "offset points",
        "va": "center",
        "fontsize": min(8.0, letters),
    }
    if not lost.n:
        if line.disturbed:
            ax.annotate(NOT_KNOWN, (0, y), **beside)
        return
    ax.barh(y, lost.median, 0.55, color=look.color, hatch=look.hatch if line.run else "", edgecolor="white", alpha=0.85)
    if lost.low == lost.low:
        ax.hlines(y, lost.low, lost.high, color="#111111", linewidth=1)
    end = max(lost.median, lost.high if lost.high == lost.high else lost.median, 0.0)
    ax.annotate(number(lost.median), (end, y), **beside)


def caption(lines: Sequence[Line]) -> str:
    """Describes the figure."""
    rows = shown(lines)
    sizes = ", ".join(dict.fromkeys(sized(line.size_bytes) for row in rows for line in row if line.size_bytes))
    at = f", at {sizes}" if sizes else ""
    what = f"Speed healthy (hollow) and after the fault (full), and the time lost{at}"
    missing = any(not line.conclusive for row in rows for line in row)
    why = f" {NOT_MEASURED.capitalize()}: every trial is inconclusive." if missing else ""
    return f"{what}: {style.INTERVAL_NOTE}.{why}{_left_out(rows, cells_of(lines))}"


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
    return f"{told}.{_left_out(rows, cells_of(lines))}"


def _told(row: Row, name: str, lines: Sequence[Line]) -> str:
    if _shared(row):
        who = f"{name} ({', '.join(dict.fromkeys(line.scenario for line in row))})"
    else:
        who = ", ".join(dict.fromkeys([*name.split(", "), row[0].scenario]))
    if _end(row[0]) == NOT_MEASURED:
        return f"{who}: {NOT_MEASURED}"
    kind, line = speed(lines), row[0]
    before, after, lost = line[f"before_{kind}"], line[f"after_{kind}"], line["lost_ms"]
    healthy = sorted(each[f"before_{kind}"].median for each in row if each[f"before_{kind}"].n)
    speeds = " to ".join(dict.fromkeys(map(number, healthy[:1] + healthy[-1:]))) or number(before.median)
    ends = f"{speeds} {unit(lines)} healthy"
    ends += f", {number(after.median)} after the fault" if after.n else ", stopped" if line.stopped else ""
    ends += f", {NOTHING_AFTER}" if nothing_after(line) else ""
    ends += f", {number(lost.median)} ms lost" if lost.n else ", time lost not known" if line.disturbed else ""
    return f"{who}: {ends}"
