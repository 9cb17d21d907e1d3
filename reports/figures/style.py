"""The common style of figures: fonts, sizes, and a distinct colour (`reports.palette`) and marker for every system."""

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reports import palette as palettes
from reports.columns import natural
from reports.palette import COLORS as COLORS
from reports.palette import Place
from reports.wording import at_size, sized
from reports.wording import plain as plain

MARKERS = ("o", "s", "D", "^", "v", "P", "*", "X", "h", "<", ">", "p")
"""By mark; `reports.palette.GLYPHS` are the same in text."""
RAIL_COLORS = ("#08306B", "#4292C6", "#9ECAE1", "#FDAE6B", "#E6550D", "#A63603", "#74C476", "#31A354")
"""By NIC of a host; neighbours in a stack differ in lightness."""
HOST_COLORS = ("#1B1F24", "#7A4FA3", "#2F8F83", "#B8860B")
"""By host, with a line style besides; none of them is a system's colour."""
HOST_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (5, 1.5, 1, 1.5)))
ACCENT = "#B2182B"
"""The colour of failures: the fault, the hit iteration."""
LINE = "#666666"
WIDTH_IN = 8.6
"""The width of every figure, so that letters have the same size in all of them."""
NARROW_IN = 4.2
"""The same on a phone."""
LETTER_IN = 0.072
"""The approximate width of a letter in a legend."""
FILLED = 0.96
"""Share of a figure's width that a measured legend may take: letters differ a little between PNG, SVG and PDF."""
COARSE_DPI = 72
"""Where a legend is measured: the fewer dots an inch has, the more of it letters take."""
AIR_IN = 0.12
"""Between the legends and the panels of a `fixed_sheet`."""
HATCHES = ("", "////", "xxxx", "....", "\\\\\\\\", "----", "||||", "++++", "oo", "//..", "\\\\||", "**")
"""Of bars, by mark: with the colours' lightness they distinguish bars in greyscale."""
LINES: tuple[Any, ...] = (
    "-", (0, (6, 2)), (0, (2, 1.5)), (0, (6, 2, 1.5, 2)), (0, (1, 3)), (0, (9, 3)), (0, (6, 2, 1.5, 2, 1.5, 2)),
    (0, (12, 2, 3, 2)), (0, (4, 1)), (0, (3, 3)), (0, (9, 2, 1, 2)), (0, (12, 3)),
)  # fmt: skip
"""Of lines, by mark, for the same purpose."""

_RC: dict[str, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "figure.autolayout": False,
    "figure.constrained_layout.use": False,
    "figure.dpi": 100,
    "savefig.dpi": 180,
    "svg.hashsalt": "r2ccl",
    # Names come from files: a dollar sign in a name must not start mathematics.
    "text.parse_math": False,
}


@contextmanager
def applied() -> Iterator[None]:
    """The style, while drawing or saving; the caller's own figures are not affected."""
    with mpl.rc_context(), sns.axes_style("ticks", _RC):
        mpl.rcParams.update(_RC)  # type: ignore[arg-type]
        yield


_NARROW: ContextVar[bool] = ContextVar("narrow", default=False)


@contextmanager
def narrowed() -> Iterator[None]:
    """Within this context figures are as wide as a phone, with their panels one above the other."""
    token = _NARROW.set(True)
    try:
        yield
    finally:
        _NARROW.reset(token)


def narrow() -> bool:
    """Whether figures are drawn for a phone."""
    return _NARROW.get()


def sheet(width_in: float, height_in: float) -> Figure:
    """An empty figure outside pyplot's global state, at least as wide as a page, or as wide as a phone."""
    return Figure(figsize=(NARROW_IN if narrow() else max(width_in, WIDTH_IN), height_in), layout="constrained")


def panels(figure: Figure, count: int, **how: Any) -> list[Axes]:
    """`count` panels side by side; on a phone one above the other."""
    if narrow():
        figure.set_figheight(figure.get_figheight() * (1 + 0.7 * (count - 1)))  # one legend for all
        return list(figure.subplots(count, 1, squeeze=False, **how)[:, 0])
    return list(figure.subplots(1, count, squeeze=False, **how)[0])


def fixed_sheet(width_in: float, height_in: float, margins_in: tuple[float, float, float, float]) -> Figure:
    """As `sheet` with fixed margins (left, bottom, right, top): fast, for figures that occur many times in a report."""
    figure = Figure(figsize=(width_in, height_in))
    left, bottom, right, top = margins_in
    figure.subplots_adjust(left / width_in, bottom / height_in, 1 - right / width_in, 1 - top / height_in, hspace=0.16)
    return figure


_PLACES: ContextVar[Mapping[str, Place]] = ContextVar("places", default=types.MappingProxyType({}))


@contextmanager
def palette(places: Mapping[str, Place]) -> Iterator[None]:
    """Within this context each system of `places` looks the same in every figure, whatever other systems it shows."""
    token = _PLACES.set(places)
    try:
        yield
    finally:
        _PLACES.reset(token)


class Look(NamedTuple):
    """How a system is drawn."""

    color: str
    marker: str
    line: Any
    hatch: str


def looks(systems: Sequence[str]) -> dict[str, Look]:
    """The look of each system: within the whole report if one is being made, otherwise within `systems`."""
    alone = palettes.places(systems)
    return {system: _look(_PLACES.get().get(system, alone[system])) for system in systems}


def _look(place: Place) -> Look:
    mark = place.mark % len(MARKERS)
    return Look(COLORS[place.color], MARKERS[mark], LINES[mark], HATCHES[mark])


def systems_of(frame: pd.DataFrame) -> list[str]:
    """The systems in `frame`, by mode, then by name; numbers in names count as numbers: k2 before k16."""
    modes = dict(zip(frame["system"], frame["mode"], strict=True))
    return sorted(modes, key=lambda system: (modes[system], natural(system)))


def over_sizes(known: pd.DataFrame) -> str:
    """Of which sizes a number is that is of all sizes together, to follow its name; empty for a workload without."""
    sizes = [int(size) for size in known["size_bytes"].unique()]
    return " over all sizes" if len(sizes) > 1 else "".join(map(at_size, sizes))


def sizes_of(frame: pd.DataFrame) -> list[int]:
    """The message sizes in `frame`, ascending."""
    return sorted(int(size) for size in frame["size_bytes"].unique())


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Labels the x axis with sizes as categories 0, 1, ...; a workload without a size has one, without a label."""
    if not any(sizes):
        ax.set_xticks([])
        ax.set_xlim(-0.5, 0.5)
        ax.set_xlabel("by system, as in the legend")
        return
    ax.set_xticks(range(len(sizes)), [sized(size) for size in sizes])
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_xlabel("message size")


def empty(ax: Axes, why: str) -> None:
    """Says in the middle of a panel why nothing is drawn there."""
    ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", va="center", fontsize=8, color=LINE)


def burst_text(frame: pd.DataFrame) -> str:
    """Which sizes the NICs' rate does not limit; empty if it limits all of them."""
    passing = sorted(frame.loc[~frame["by_rate"], "size_bytes"].unique()) if "by_rate" in frame else []
    if not passing:
        return ""
    told = ", ".join(map(sized, passing))
    return f" The NICs' rate is no limit at {told}: too much of it passes in a burst after a pause."


def position(index: int, count: int, width: float = 0.5) -> float:
    """The offset of system number `index` of `count` from the middle of its category."""
    return 0.0 if count < 2 else width * (index / (count - 1) - 0.5)


def system_handles(systems: Sequence[str], shown: Sequence[str], bars: bool = False) -> list[Line2D | Patch]:
    """The legend's entries for those of `systems` that are `shown`, as lines with markers or as bars."""
    if bars:
        return [
            Patch(
                facecolor=look.color, hatch=look.hatch, edgecolor="white", label=plain(system, 60)
            )
            for system, look in looks(systems).items() if system in shown
        ]  # fmt: skip
    return [
        Line2D(
            [], [], color=look.color, marker=look.marker, markersize=6, linestyle=look.line, linewidth=1.4,
            label=plain(system, 60),
        )
        for system, look in looks(systems).items()
        if system in shown
    ]  # fmt: skip


def legend(figure: Figure, systems: Sequence[str], shown: Sequence[str]) -> None:
    """A legend of the systems that are `shown`, in rows above all panels."""
    legend_of(figure, system_handles(systems, shown))


def legend_of(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    """A legend above all panels, in as many columns as fit the figure's width."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = int(figure.get_figwidth() / (0.55 + LETTER_IN * longest))
    columns = max(1, min(4, fitting, len(handles)))
    # The figure grows with the legend's rows, so that the panels keep their height.
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 2))
    figure.legend(handles=list(handles), loc="outside upper left", ncols=columns)


def legends_above(figure: Figure, groups: Sequence[Sequence[Any]], **how: Any) -> None:
    """A legend for each group of entries, one below the other above the panels of a `fixed_sheet`, each in as many
    columns as fit the figure's width. The figure grows with their rows, so that the panels keep their height."""
    usual = figure.dpi
    figure.set_dpi(COARSE_DPI)
    legends = [_fitting(figure, handles, how) for handles in groups if handles]
    heights = [legend.get_window_extent().height / COARSE_DPI for legend in legends]
    figure.set_dpi(usual)
    _give_top(figure, sum(heights) + AIR_IN)
    used = 0.0
    for legend, height in zip(legends, heights, strict=True):
        legend.set_bbox_to_anchor((0, 1 - used / figure.get_figheight()), figure.transFigure)
        used += height


def _fitting(figure: Figure, handles: Sequence[Any], how: Mapping[str, Any]) -> Legend:
    """The legend with the most columns that the figure's width has room for; measured, as names differ in length."""
    for columns in range(min(8, len(handles)), 0, -1):
        legend = figure.legend(handles=handles, ncols=columns, loc="upper left", **how)
        if columns == 1 or legend.get_window_extent().width <= FILLED * figure.bbox.width:
            break
        legend.remove()
    return legend


def _give_top(figure: Figure, top_in: float) -> None:
    """Makes the margin above the panels so high; the panels and the margin below them stay as they are."""
    old, at = figure.get_figheight(), figure.subplotpars
    below, panels_in = at.bottom * old, (at.top - at.bottom) * old
    new = below + panels_in + top_in
    figure.set_figheight(new)
    figure.subplots_adjust(bottom=below / new, top=(below + panels_in) / new)


def with_values(frame: pd.DataFrame, column: str) -> list[str]:
    """The systems with a value of `column` in any trial."""
    return systems_of(frame[frame[column].notna()])


def repeats_text(frame: pd.DataFrame) -> str:
    """The number of repeats per point, for the caption; an inconclusive trial is in no point."""
    conclusive = frame[frame["status"] != "inconclusive"]
    if conclusive.empty:
        return "no trial is conclusive"
    counts = conclusive.groupby(["case", "system", "size_bytes"], observed=True).size()
    return f"{count_text(counts, 'repeat')} per point"


def count_text(counts: pd.Series, noun: str) -> str:
    """``5 repeats``, ``2 to 5 repeats``."""
    low, high = int(counts.min()), int(counts.max())
    many = f"{low}" if low == high else f"{low} to {high}"
    return f"{many} {noun}{'' if high == 1 else 's'}"


def size_text(frame: pd.DataFrame) -> str:
    """The largest message size in `frame`."""
    return sized(int(frame["size_bytes"].max()))


INTERVAL_NOTE = "medians over repeats with 95 % bootstrap intervals (with fewer than 5 repeats, their range)"
