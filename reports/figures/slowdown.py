"""T/T0, the duration after the fault over the duration before it, compared with the models."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style
from reports.figures.points import captioned, draw_points
from reports.metrics.duration import RATIO_OF_MEANS
from reports.wording import NOT_KNOWN, plural

MOST_LINES = 2
"""At most this many models of one mode are drawn."""
LABEL_HEIGHT = 0.05
"""Label of the axis."""
BOUND = "no schedule beats"
MODEL_NAMES = {1: "hot repair", 2: "Balance 1/(1\N{MINUS SIGN}X)", 3: "R2CC-AllReduce"}


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case. Systems that stopped have no T/T0 and are left out."""
    shown = frame[frame["slowdown"].notna()]
    systems, sizes = style.systems_of(frame), style.sizes_of(frame)
    with style.applied():
        figure = style.sheet(5.6, 3.2)
        ax = figure.subplots()
        draw_points(ax, frame, "slowdown", sizes, systems, joined=False)
        ax.set_ylabel("T/T0")
        lines = model_lines(frame)
        models = [1.0, *(line.value for line in lines)]
        highest = max([*models, *shown["slowdown"]])
        ax.set_ylim(min([*models, *shown["slowdown"]]) - 0.05, 1 + (highest - 1) * 1.12 + 0.05)
        named = _lines(ax, lines, sizes)
        _unknown(ax, shown, sizes)
        style.legend_of(figure, [*style.system_handles(systems, style.with_values(frame, "slowdown")), *named])
    return figure


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    shown = frame[frame["slowdown"].notna()]
    unknown = int(frame["disturbed_slowdown"].sum())
    words = (
        f" The T/T0 of {plural(unknown, 'trial')} is not known: something slowed the healthy ones." if unknown else ""
    )
    lines, share = "", ""
    if drawn := model_lines(frame):
        bounds = sum(line.text.startswith(BOUND) for line in drawn)
        named = [("model", len(drawn) - bounds), ("lower bound", bounds)]
        told = [f"{count} {word}{'' if count == 1 else 's'}" for word, count in named if count]
        lines = f", beside {' and '.join(told)} as {'a line' if len(drawn) == 1 else 'lines'}"
        share = " X is the share of the host's bandwidth that was lost."
    words += style.burst_text(frame)
    return (
        f"Slowdown after the fault: {_ratio(shown)} in the same trial{lines}; "
        f"{style.INTERVAL_NOTE}; dots are single trials; {captioned(frame, 'slowdown')}."
        f"{share}{words}"
    )


def _ratio(shown: pd.DataFrame) -> str:
    """What T/T0 divides: means if the fault of every trial comes and goes, as `reports.metrics.duration` defines it."""
    medians = (
        "the median iteration after it (after the last of several failures, and after a change of the schedule, where "
        "there was one) over the median one"
    )
    if len(shown) and shown["comes_and_goes"].all():
        return RATIO_OF_MEANS
    and_means = f" ({RATIO_OF_MEANS}, where the fault comes and goes)" if shown["comes_and_goes"].any() else ""
    return f"{medians} before it{and_means}"


class ModelLine(NamedTuple):
    """A horizontal line, and the smallest size to which it applies."""

    text: str
    value: float
    size_bytes: int


def model_lines(frame: pd.DataFrame) -> list[ModelLine]:
    """Each mode's model, and the lower bound over all schedules."""
    named: dict[str, list[str]] = {}
    sizes: dict[str, int] = {}
    known = frame.dropna(subset=["model"])
    # Lines of many values (a sweep over K) would overlap; such a sweep has its own figure.
    known = known[known.groupby("mode")["model"].transform("nunique") <= MOST_LINES]
    for (mode, value), part in known.groupby(["mode", "model"]):
        key = f"{value:.3g}"
        named.setdefault(key, []).append(MODEL_NAMES.get(int(str(mode)), f"mode {mode}"))
        sizes[key] = min(int(part["size_bytes"].min()), sizes.get(key, int(part["size_bytes"].min())))
    lines = [ModelLine(f"model of {', '.join(names)}: {v}", float(v), sizes[v]) for v, names in named.items()]
    if "floor" in frame:
        for floor, part in frame.groupby("floor"):
            least = float(str(floor))
            lines.append(ModelLine(f"{BOUND} {least:.4g}", least, int(part["size_bytes"].min())))
    return sorted(lines, key=lambda line: line.value)


def _lines(ax: Axes, lines: Sequence[ModelLine], sizes: Sequence[int]) -> list[Line2D]:
    """Each line, from the first size to which it applies, with its text at its end; texts of neighbouring lines are
    stacked. On a phone, which has no room there, returns the lines for the legend."""
    low, high = ax.get_ylim()
    free = low
    drawn = []
    for text, value, first in lines:
        pattern = ":" if text.startswith(BOUND) else (0, (5, 3))
        start = sizes.index(first) / len(sizes)
        drawn.append(ax.axhline(value, start, color=style.LINE, linestyle=pattern, linewidth=1, label=text))
        if style.narrow():
            continue
        at = max(value, free)
        free = at + LABEL_HEIGHT * (high - low)
        ax.annotate(
            text, (1.01, at), xycoords=("axes fraction", "data"), ha="left", va="center", fontsize=7.5, color=style.LINE
        )
    return drawn if style.narrow() else []


def _unknown(ax: Axes, shown: pd.DataFrame, sizes: Sequence[int]) -> None:
    """Says of sizes where no system has a T/T0 that this is so; the caption says why."""
    for place in (at for at, size in enumerate(sizes) if not (shown["size_bytes"] == size).any()):
        ax.annotate(
            NOT_KNOWN, (place, 0.5), xycoords=("data", "axes fraction"), ha="center", fontsize=8, color=style.LINE
        )
