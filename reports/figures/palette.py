"""How every figure looks: colours that colour-blind eyes tell apart, and a second mark for print in grey.

Figures are made without pyplot's global state, so drawing leaks nothing. Colours are those of Okabe and Ito
(2008), ordered here so that neighbours differ in lightness too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib

matplotlib.use("Agg")

import pandas as pd
import seaborn as sns
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.stats import Estimate, estimate

COLORS = ("#000000", "#E69F00", "#0072B2", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
MARKERS = ("s", "^", "o", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.6)), (0, (1.4, 1.2)), (0, (5, 1.4, 1.2, 1.4)), (0, (8, 2)), (0, (3, 3)), (0, (1, 3)))
FAULT = "#B2182B"
FAULT_FILL = "#F6D9D5"
LIMIT = "#555555"

_SETTINGS: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#333333",
    "axes.labelcolor": "#222222",
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "svg.hashsalt": "reports",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    # Names come from files: a dollar sign in one is a dollar sign, not mathematics.
    "text.parse_math": False,
}


@contextmanager
def styled() -> Iterator[None]:
    """Everything drawn and saved inside looks as the others do."""
    with rc_context(sns.axes_style("whitegrid") | _SETTINGS):
        yield


def cells(trials: pd.DataFrame, column: str) -> dict[tuple[int, str], Estimate]:
    """The median of a column over repeats, with its interval, by (size in bytes, system)."""
    groups = trials.groupby(["size_bytes", "system"], sort=False)[column]
    return {(int(str(size)), str(system)): estimate(values) for (size, system), values in groups}


def arms(known: Sequence[Estimate]) -> list[list[float]]:
    """The lower and upper arms of intervals as `errorbar` wants them; 0 where there is no interval."""
    return [
        [max(e.median - e.low, 0.0) if e.n > 1 else 0.0 for e in known],
        [max(e.high - e.median, 0.0) if e.n > 1 else 0.0 for e in known],
    ]


def color(order: Sequence[str], name: str) -> str:
    """The colour of `name`, the same in every figure with the same `order`."""
    return COLORS[order.index(name) % len(COLORS)]


def marker(order: Sequence[str], name: str) -> str:
    """The marker of `name`, for eyes and printers without colour."""
    return MARKERS[order.index(name) % len(MARKERS)]


def frameless(axes: Axes) -> None:
    """Only the left and lower axis lines, and a grid along y."""
    sns.despine(ax=axes)
    axes.grid(visible=False, axis="x")
    axes.set_axisbelow(True)


def caption(figure: Figure, text: str) -> None:
    """Small text below the axes: what an interval is, over how many repeats."""
    figure.supxlabel(text, fontsize=7.8, color="#444444", x=0.01, ha="left")


def repeats_text(counts: Sequence[int]) -> str:
    """``5 repeats``, ``3 to 5 repeats``."""
    known = [n for n in counts if n > 0] or [0]
    low, high = min(known), max(known)
    number = f"{low}" if low == high else f"{low} to {high}"
    return f"{number} repeat{'' if high == 1 else 's'}"
