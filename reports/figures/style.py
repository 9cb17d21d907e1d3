"""How every figure looks: fonts, sizes, and a colour (`reports.palette`) and a marker of its own for every system."""

import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reports.columns import natural
from reports.palette import COLORS as COLORS
from reports.wording import plain as plain
from reports.wording import sized

MARKERS = ("X", "s", "o", "D", "^", "v", "P", "*")
RAIL_COLORS = ("#08306B", "#4292C6", "#9ECAE1", "#FDAE6B", "#E6550D", "#A63603", "#74C476", "#31A354")
"""By NIC of a host; neighbours in a stack differ in lightness."""
HOST_COLORS = ("#1B1F24", "#7A4FA3", "#2F8F83", "#B8860B")
"""By host, with a line style besides; none is a system's."""
HOST_LINES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (5, 1.5, 1, 1.5)))
ACCENT = "#B2182B"
"""What went wrong: the fault, the hit iteration."""
LINE = "#666666"
WIDTH_IN = 8.6
"""Of every figure, so that letters are of one size in all of them."""
LETTER_IN = 0.072
"""About as wide is a letter of a legend."""
HATCHES = ("", "////", "", "xxxx", "\\\\\\\\", "....", "", "----")
"""Of bars, by system: with the colours' lightness they tell bars apart in grey."""

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
    # Names come from files: a dollar sign in one is a dollar sign, not mathematics.
    "text.parse_math": False,
}


@contextmanager
def applied() -> Iterator[None]:
    """The style, for the time of drawing or saving; nothing of it leaks to the caller's own figures."""
    with mpl.rc_context(), sns.axes_style("ticks", _RC):
        mpl.rcParams.update(_RC)  # type: ignore[arg-type]
        yield


def sheet(width_in: float, height_in: float) -> Figure:
    """An empty figure that no global state knows about, as wide as a page at least."""
    return Figure(figsize=(max(width_in, WIDTH_IN), height_in), layout="constrained")


def narrow_sheet(height_in: float) -> Figure:
    """The same for a telephone."""
    return Figure(figsize=(4.2, height_in), layout="constrained")


def fixed_sheet(width_in: float, height_in: float, margins_in: tuple[float, float, float, float]) -> Figure:
    """As `sheet` with fixed margins (left, bottom, right, top): quick, for figures that a report has many of."""
    figure = Figure(figsize=(width_in, height_in))
    left, bottom, right, top = margins_in
    figure.subplots_adjust(left / width_in, bottom / height_in, 1 - right / width_in, 1 - top / height_in, hspace=0.16)
    return figure


_PLACES: ContextVar[Mapping[str, int]] = ContextVar("places", default=types.MappingProxyType({}))


@contextmanager
def palette(systems: Sequence[str]) -> Iterator[None]:
    """While it lasts each of `systems` has the same colour and marker in every figure, whoever stands beside it."""
    token = _PLACES.set({system: place for place, system in enumerate(systems)})
    try:
        yield
    finally:
        _PLACES.reset(token)


def place_of(system: str, systems: Sequence[str]) -> int:
    """The number of a system's colour: in the whole report, or else among `systems`."""
    return _PLACES.get().get(system, systems.index(system))


def looks(systems: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each system."""
    places = {system: place_of(system, systems) for system in systems}
    return {s: (COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]) for s, i in places.items()}


def systems_of(frame: pd.DataFrame) -> list[str]:
    """The systems in `frame`, by mode, then by name; numbers in names count as numbers: k2 before k16."""
    modes = dict(zip(frame["system"], frame["mode"], strict=True))
    return sorted(modes, key=lambda system: (modes[system], natural(system)))


def sizes_of(frame: pd.DataFrame) -> list[int]:
    """The message sizes in `frame`, ascending."""
    return sorted(int(size) for size in frame["size_bytes"].unique())


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Sizes as categories 0, 1, ... on the x axis."""
    ax.set_xticks(range(len(sizes)), [sized(size) for size in sizes])
    ax.set_xlim(-0.5, len(sizes) - 0.5)
    ax.set_xlabel("message size")


def position(index: int, count: int, width: float = 0.5) -> float:
    """Where system number `index` of `count` stands beside the middle of its category."""
    return 0.0 if count < 2 else width * (index / (count - 1) - 0.5)


def system_handles(systems: Sequence[str], shown: Sequence[str], bars: bool = False) -> list[Line2D | Patch]:
    """The legend's entries for those of `systems` that are `shown`, as lines with markers or as bars."""
    if bars:
        return [
            Patch(
                facecolor=color, hatch=HATCHES[place_of(system, systems) % len(HATCHES)], edgecolor="white",
                label=plain(system, 60),
            )
            for system, (color, _) in looks(systems).items() if system in shown
        ]  # fmt: skip
    return [
        Line2D([], [], color=color, marker=marker, markersize=6, linestyle="-", linewidth=1.4, label=plain(system, 60))
        for system, (color, marker) in looks(systems).items()
        if system in shown
    ]


def legend(figure: Figure, systems: Sequence[str], shown: Sequence[str]) -> None:
    """The systems that are `shown`, in rows above all panels."""
    legend_of(figure, system_handles(systems, shown))


def legend_of(figure: Figure, handles: Sequence[Line2D | Patch]) -> None:
    """A legend above all panels, in as many columns as the figure is wide for."""
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    fitting = int(figure.get_figwidth() / (0.55 + LETTER_IN * longest))
    columns = max(1, min(4, fitting, len(handles)))
    # The panels keep their height under a legend of many rows.
    rows = -(-len(handles) // columns)
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 2))
    figure.legend(handles=list(handles), loc="outside upper left", ncols=columns)


def with_values(frame: pd.DataFrame, column: str) -> list[str]:
    """The systems of which any trial has `column`."""
    return systems_of(frame[frame[column].notna()])


def repeats_text(frame: pd.DataFrame) -> str:
    """How many repeats stand behind a point, for the caption."""
    return f"{count_text(frame.groupby(['case', 'system', 'size_bytes'], observed=True).size(), 'repeat')} per point"


def count_text(counts: pd.Series, noun: str) -> str:
    """``5 repeats``, ``2 to 5 repeats``."""
    low, high = int(counts.min()), int(counts.max())
    many = f"{low}" if low == high else f"{low} to {high}"
    return f"{many} {noun}{'' if high == 1 else 's'}"


def size_text(frame: pd.DataFrame) -> str:
    """The largest message size in `frame`."""
    return sized(int(frame["size_bytes"].max()))


INTERVAL_NOTE = "medians over repeats with 95 % bootstrap intervals (with fewer than 5 repeats, their range)"
