"""The first figure of a report: each system's speed before and after the fault, and the time that it lost."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from reports.figures import style
from reports.headline import Line
from reports.overview import cells_of, speed, unit
from reports.wording import NOT_KNOWN, number, plain, sized

MOST_ROWS = 24
MOST_TICKS, MOST_TICKS_NARROW = 6, 3
"""Intervals of an axis whose numbers may be long, as with thousands below 0; on a phone names take half the width."""
ROOM = 1.03
"""Of the axis of speeds, so that no mark is cut at its end."""
ROW_IN = ((6, 0.3), (9, 0.22), (math.inf, 0.175))
"""The height of each of up to so many rows: many stand closer together, so that the table below is on the first
screen."""


def draw(lines: Sequence[Line]) -> Figure:
    """A row for each system and fault: a hollow mark for the healthy speed, a full one for the speed after the fault;
    beside them the time lost."""
    rows = shown(lines)
    height = next(each for most, each in ROW_IN if len(rows) <= most) * len(rows) + 0.9
    with style.applied():
        figure = style.sheet(style.WIDTH_IN, 2 * height + 0.4 if style.narrow() else height + 0.25)
        if style.narrow():
            left, right = figure.subplots(2, 1)
        else:
            left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
        looks = style.looks(list(dict.fromkeys(line.system for line in rows)))
        middle = max((line[f"before_{speed(lines)}"].median for line in rows), default=0.0) / 2
        for y, line in enumerate(rows):
            _speeds(left, y, line, looks[line.system], speed(lines))
            _stopped(left, y, line, looks[line.system], speed(lines), middle)
            _lost(right, y, line, looks[line.system])
        _rows(left, rows)
        named = {"gbs": "bus bandwidth", "tokens_s": "trained", "ms": "an iteration"}[speed(lines)]
        left.set_xlabel(f"{named} ({unit(lines)})")
        left.set_xlim(0, left.get_xlim()[1] * ROOM)
        right.set_xlabel("time lost against healthy (ms)")
        if style.narrow():
            _rows(right, rows)
        if not any(line["lost_ms"].n for line in rows):
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


def shown(lines: Sequence[Line]) -> list[Line]:
    """The rows of the figure; if there are too many, those that lost most."""
    cells = cells_of(lines)
    if len(cells) <= MOST_ROWS:
        return cells
    kept = sorted(cells, key=lambda line: -line["lost_ms"].median if line["lost_ms"].n else 0.0)[:MOST_ROWS]
    return [line for line in cells if any(line is one for one in kept)]


def _rows(ax: Axes, rows: Sequence[Line]) -> None:
    ax.set_yticks(range(len(rows)), names(rows))
    ax.set_ylim(len(rows) - 0.5, -0.5)
    for axis in ax.figure.axes:
        axis.grid(axis="x", color="#E4E4E4")
        axis.grid(axis="y", visible=False)
        axis.tick_params(axis="y", length=0)


def names(rows: Sequence[Line]) -> list[str]:
    """The parts that distinguish the rows: system, fault and axes, each only if there are several; and what runs, which
    is long, only if these do not tell the rows apart."""
    short = [(line.system, line.scenario, *line.points.values()) for line in rows]
    long = [(line.system, line.operation, line.scenario, *line.points.values()) for line in rows]
    parts = short if len(set(short)) == len(rows) else long
    told = [i for i in range(max(map(len, parts), default=0)) if len({part[i : i + 1] for part in parts}) > 1] or [0]
    return [plain(", ".join(dict.fromkeys(part[i] for i in told if i < len(part))), 44) for part in parts]


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


def _stopped(ax: Axes, y: int, line: Line, look: style.Look, kind: str, middle: float) -> None:
    """Says beside the healthy mark that nothing follows, on the side where there is room."""
    before = line[f"before_{kind}"]
    if line[f"after_{kind}"].n or not line.stopped:
        return
    x = before.median if before.n else 0.0
    side, away = ("right", -9) if x > middle else ("left", 9)
    ax.annotate(
        "stopped",
        (x, y),
        xytext=(away, 0),
        textcoords="offset points",
        ha=side,
        va="center",
        fontsize=8,
        color=look.color,
    )


def _lost(ax: Axes, y: int, line: Line, look: style.Look) -> None:
    lost = line["lost_ms"]
    if not lost.n:
        if line.disturbed:
            ax.annotate(NOT_KNOWN, (0, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        return
    ax.barh(y, lost.median, 0.55, color=look.color, hatch=look.hatch if line.run else "", edgecolor="white", alpha=0.85)
    if lost.low == lost.low:
        ax.hlines(y, lost.low, lost.high, color="#111111", linewidth=1)
    end = max(lost.median, lost.high if lost.high == lost.high else lost.median, 0.0)
    ax.annotate(number(lost.median), (end, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)


def caption(lines: Sequence[Line]) -> str:
    """Describes the figure."""
    rows = shown(lines)
    sizes = ", ".join(dict.fromkeys(sized(line.size_bytes) for line in rows if line.size_bytes))
    left_out = len(cells_of(lines)) - len(rows)
    more = f" Those {MOST_ROWS} that lost most; {left_out} more are in the table." if left_out else ""
    at = f", at {sizes}" if sizes else ""
    what = f"Speed healthy (hollow) and after the fault (full), and the time lost{at}"
    return f"{what}: {style.INTERVAL_NOTE}.{more}"


def result(lines: Sequence[Line]) -> str:
    """The result in words, for readers who cannot see the figure."""
    kind, told = speed(lines), []
    rows = shown(lines)
    for line, name in zip(rows, names(rows), strict=True):
        before, after, lost = line[f"before_{kind}"], line[f"after_{kind}"], line["lost_ms"]
        ends = f"{number(before.median)} {unit(lines)} healthy"
        ends += f", {number(after.median)} after the fault" if after.n else ", stopped" if line.stopped else ""
        ends += f", {number(lost.median)} ms lost" if lost.n else ", time lost not known" if line.disturbed else ""
        told.append(f"{', '.join(dict.fromkeys([*name.split(', '), line.scenario]))}: {ends}")
    return "; ".join(told) + "."
