"""Medians with intervals by size and system, the mark that most figures share.

Single trials are drawn beside the median, so that readers can judge an interval over five repeats themselves. A median
is that of the tables: a trial whose value is not known because it is too low counts as a low one.
"""

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from reports import stats
from reports.figures import style
from reports.metrics import METRICS

DODGE = 0.5
MAX_DOTS = 2000
"""At most this many single trials are drawn; more would be a smear, and megabytes of SVG."""


def draw_points(
    ax: Axes, frame: pd.DataFrame, column: str, sizes: Sequence[int], systems: Sequence[str], joined: bool = True
) -> None:
    """Draws `column` of `frame` (one row per trial) into `ax`; x is the index of the size."""
    data = counted(frame, column)
    looks = style.looks(systems)
    _dots(ax, frame[frame[column].notna()], column, sizes, systems)
    if not data.empty:
        sns.pointplot(
            data, x="size_bytes", y=column, hue="system", order=sizes, hue_order=systems,
            estimator="median", errorbar=stats.interval, dodge=DODGE if len(systems) > 1 else False,
            palette=[looks[s].color for s in systems], markers=[looks[s].marker for s in systems],
            linestyles=[looks[s].line if joined else "none" for s in systems], linewidth=1.2, markersize=5.5,
            markeredgecolor="white", markeredgewidth=0.5, err_kws={"linewidth": 1.2}, capsize=0.07, legend=False, ax=ax,
        )  # fmt: skip
    style.size_axis(ax, sizes)


def counted(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """The values of a metric that its medians are of, by size and system (`reports.stats.with_low`)."""
    low = METRICS[column].reads_low(frame)
    parts = [
        pd.DataFrame(
            {"size_bytes": size, "system": system, column: stats.with_low(part[column], int(low[part.index].sum()))}
        )
        for (size, system), part in frame.groupby(["size_bytes", "system"], sort=False)
    ]
    return pd.concat(parts) if parts else frame.head(0)


def _dots(ax: Axes, data: pd.DataFrame, column: str, sizes: Sequence[int], systems: Sequence[str]) -> None:
    shown = data if len(data) <= MAX_DOTS else data.iloc[:: -(-len(data) // MAX_DOTS)]
    for index, system in enumerate(systems):
        own = shown[shown["system"] == system]
        beside = style.position(index, len(systems), DODGE) + 0.1
        xs = [sizes.index(int(size)) + beside for size in own["size_bytes"]]
        ax.scatter(xs, own[column], s=9, color=style.looks(systems)[system].color, alpha=0.55, linewidths=0, zorder=1)
