"""Bus bandwidth by message size and system: before the fault, in the hit iteration, and after it."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.points import DODGE, captioned, draw_points

PANELS = (("before", "before the fault"), ("hit", "the iteration that is hit"), ("after", "after it"))


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case. A system that stopped is a cross on the zero line."""
    systems, sizes = style.systems_of(frame), style.sizes_of(frame)
    panels = PANELS if frame["faulted"].any() else (("before", "without a fault"),)
    with style.applied():
        figure = style.sheet(2.9 * len(panels) + 0.6, 3.1)
        axes = style.panels(figure, len(panels), sharey=True)
        for ax, (phase, title) in zip(axes, panels, strict=True):
            draw_points(ax, frame, f"{phase}_gbs", sizes, systems)
            ax.set_title(title)
            ax.set_ylabel("bus bandwidth (GB/s)" if ax is axes[0] or style.narrow() else "")
            _limit(ax, frame, phase, sizes)
            if phase != "before":
                _stopped(ax, frame, f"{phase}_gbs")
        axes[0].set_ylim(bottom=0, top=_top(frame))
        style.legend(figure, systems, systems)
    return figure


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    faulted = frame["faulted"].any()
    each = ", each before and after the fault" if faulted else ""
    before = f"of all NICs{' before the fault' if faulted else ''}"
    limits = {"limit_gbs": before} | ({"limit_after_gbs": "of the remaining NICs after it"} if faulted else {})
    drawn = [text for column, text in limits.items() if frame[column].notna().any()]
    limit = f" The dashed line is the limit by the rate {', '.join(drawn)}." if drawn else ""
    of_means = " (after a fault that comes and goes, of the mean of all until its repair)"
    means = of_means if frame["comes_and_goes"].any() else ""
    return (
        f"Bus bandwidth of the median iteration{means} by message size and system: {style.INTERVAL_NOTE}; "
        f"dots are single trials; {_told(frame)}. "
        f"Compared: systems at equal size{each}.{limit}{style.burst_text(frame)}"
    )


def _told(frame: pd.DataFrame) -> str:
    """How many repeats the points have, and which panel lacks which."""
    panels = PANELS if frame["faulted"].any() else PANELS[:1]
    told = {title: captioned(frame, f"{phase}_gbs", shown=("stopped",)) for phase, title in panels}
    if len(set(told.values())) == 1:
        return next(iter(told.values()))
    return "; ".join(f"{title}: {text}" for title, text in told.items())


def _limit(ax: Axes, frame: pd.DataFrame, phase: str, sizes: Sequence[int]) -> None:
    """The dashed line of the NICs' rate, from the first size that it limits; the hit iteration runs partly before and
    partly after the fault, so it has none."""
    column = {"before": "limit_gbs", "after": "limit_after_gbs"}.get(phase)
    for key, part in frame.groupby(column) if column else ():
        value = float(str(key))
        start = sizes.index(int(part["size_bytes"].min())) / len(sizes)
        ax.axhline(value, start, color=style.LINE, linestyle=(0, (5, 3)), linewidth=1)
        ax.annotate(
            f"NICs' limit {value:.4g} GB/s", (1, value), xycoords=("axes fraction", "data"), xytext=(0, 2),
            textcoords="offset points", ha="right", va="bottom", fontsize=7.5, color=style.LINE,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4}, zorder=4,
        )  # fmt: skip


def _stopped(ax: Axes, frame: pd.DataFrame, column: str) -> None:
    """A cross on the zero line for every system and size without a trial that reached this phase. The last one, whose
    neighbours are the fastest and so the farthest from it, says what the crosses are."""
    systems, sizes = style.systems_of(frame), style.sizes_of(frame)
    last = (-1.0, "")
    for (system, size), trials in frame.groupby(["system", "size_bytes"], observed=True):
        if trials[column].notna().any() or not (trials["status"] == "failed").any():
            continue
        index, color = systems.index(str(system)), style.looks(systems)[str(system)].color
        x = sizes.index(int(str(size))) + style.position(index, len(systems), DODGE)
        ax.plot(x, 0, "x", color=color, markersize=7, markeredgewidth=2, clip_on=False)
        last = max(last, (x, color))
    if last[1]:
        ax.annotate(
            "stopped", (last[0], 0), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=7.5,
            color=last[1], bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8}, zorder=4,
        )  # fmt: skip


def _top(frame: pd.DataFrame) -> float:
    columns = ["before_gbs", "hit_gbs", "after_gbs", "limit_gbs"]
    highest = pd.to_numeric(frame[columns].max().dropna()).max()
    return float(highest) * 1.12 if highest == highest and highest > 0 else 1.0
