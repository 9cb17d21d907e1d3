"""How every figure looks: fonts, sizes, and colours that survive print in grey and colour-blind eyes.

Colours differ in lightness, not only in hue, and every system has a marker of its own besides.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from r2ccl_core.units import format_size
from reports.wording import plain as plain

COLORS = ("#333333", "#E69F00", "#0072B2", "#CC79A7", "#009E73", "#56B4E9", "#8C510A", "#999999")
"""By system, in the order of their modes: L* is 21, 71 and 46 for the first three."""
MARKERS = ("X", "s", "o", "D", "^", "v", "P", "*")
RAIL_COLORS = ("#08306B", "#4292C6", "#9ECAE1", "#FDAE6B", "#E6550D", "#A63603", "#74C476", "#31A354")
"""By NIC of a host; neighbours in a stack differ in lightness."""
ACCENT = "#B2182B"
"""What went wrong: the fault, the hit iteration."""
LINE = "#666666"
LETTER_IN = 0.072
"""About as wide is a letter of a legend."""
HATCHES = ("", "////", "", "xxxx", "\\\\\\\\", "....", "", "----")
"""Of bars, by system: with the colours' lightness they tell bars apart in grey."""
FILLS = ("#EFEFEF", "#4F9CCB", "#F0E442", "#8C510A", "#CC79A7", "#0B3C5D", "#009E73", "#E69F00")
"""Of areas that have a letter in them."""

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
    """An empty figure that no global state knows about."""
    return Figure(figsize=(width_in, height_in), layout="constrained")


def fixed_sheet(width_in: float, height_in: float, margins_in: tuple[float, float, float, float]) -> Figure:
    """As `sheet` with fixed margins (left, bottom, right, top): quick, for figures that a report has many of."""
    figure = Figure(figsize=(width_in, height_in))
    left, bottom, right, top = margins_in
    figure.subplots_adjust(left / width_in, bottom / height_in, 1 - right / width_in, 1 - top / height_in, hspace=0.16)
    return figure


def looks(systems: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each system, in the given order."""
    return {s: (COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)]) for i, s in enumerate(systems)}


def systems_of(frame: pd.DataFrame) -> list[str]:
    """The systems in `frame`, by mode, then by name; numbers in names count as numbers: k2 before k16."""
    modes = dict(zip(frame["system"], frame["mode"], strict=True))
    return sorted(modes, key=lambda system: (modes[system], _natural(system)))


def _natural(name: str) -> list[tuple[bool, int, str]]:
    parts = re.findall(r"[0-9]{1,15}|[^0-9]+|[0-9]+", name)
    return [(not p.isascii() or not p.isdigit(), int(p) if p.isascii() and p.isdigit() else 0, p) for p in parts]


def sizes_of(frame: pd.DataFrame) -> list[int]:
    """The message sizes in `frame`, ascending."""
    return sorted(int(size) for size in frame["size_bytes"].unique())


def size_axis(ax: Axes, sizes: Sequence[int]) -> None:
    """Sizes as categories 0, 1, ... on the x axis."""
    ax.set_xticks(range(len(sizes)), [format_size(size) for size in sizes])
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
                facecolor=color, hatch=HATCHES[systems.index(system) % len(HATCHES)], edgecolor="white",
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
    return format_size(int(frame["size_bytes"].max()))


INTERVAL_NOTE = "medians over repeats with 95 % bootstrap intervals (with fewer than 5 repeats, their range)"
