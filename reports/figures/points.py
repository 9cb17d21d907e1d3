"""Medians with intervals by size and system, the mark that most figures share.

Single trials are drawn beside the median, so that readers can judge an interval over five repeats themselves. A median
is that of the tables, and there is none where values that are not known could make it another.
"""

from collections.abc import Collection, Hashable, Sequence

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from reports import stats
from reports.cells import listed_and
from reports.figures import style
from reports.metrics import METRICS
from reports.wording import NOT_MEASURED, NOTHING_AFTER, UNTIL_REPAIR, not_known, sized

CELL = ["size_bytes", "system"]
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
    """The values of a metric that its medians are of, by size and system (`reports.stats.counted`)."""
    unknown_in = METRICS[column].unknown_in
    parts = [
        pd.DataFrame({"size_bytes": size, "system": system, column: stats.counted(part[column], unknown_in(part))})
        for (size, system), part in frame.groupby(CELL, sort=False)
    ]
    return pd.concat(parts) if parts else frame.head(0)


def captioned(frame: pd.DataFrame, column: str, otherwise: str = "no value", shown: Collection[str] = ()) -> str:
    """How many repeats a point has, and which cells have no point and why: `otherwise`, where no outcome explains it.
    Cells whose outcome is among `shown` are drawn in another way."""
    drawn = _drawn(frame, column)
    known = [int(part[column].count()) for cell, part in frame.groupby(CELL, sort=False) if cell in drawn]
    told = f"{style.count_text(pd.Series(known), 'repeat')} per point" if known else "no point"
    lacking = gaps(frame, column, otherwise, shown)
    return f"{told}{', none for' if known else ':'} {lacking}" if lacking else told


def gaps(frame: pd.DataFrame, column: str, otherwise: str = "no value", shown: Collection[str] = ()) -> str:
    """Which cells have no median, and why, as in `captioned`; empty: all have one."""
    drawn = _drawn(frame, column)
    found: dict[tuple[str, str], list[int]] = {}
    for (size, system), part in frame.groupby(CELL, sort=False):
        if (size, system) not in drawn and (why := _why(part, column, otherwise)) not in shown:
            found.setdefault((str(system), why), []).append(int(str(size)))
    alike: dict[str, list[str]] = {}
    for (system, why), sizes in found.items():
        alike.setdefault(f"{_at(sizes, frame, system)} ({why})", []).append(system)
    return ", ".join(f"{listed_and(names)}{rest}" for rest, names in alike.items())


def _drawn(frame: pd.DataFrame, column: str) -> set[Hashable]:
    """The cells that have a median."""
    values = counted(frame, column)
    return set(zip(values["size_bytes"], values["system"], strict=True))


def _at(sizes: Sequence[int], frame: pd.DataFrame, system: str) -> str:
    """The sizes, unless they are all of the system's."""
    everywhere = frame.loc[frame["system"] == system, "size_bytes"].nunique() == len(sizes)
    return "" if everywhere else f" at {', '.join(map(sized, sorted(sizes)))}"


def _why(part: pd.DataFrame, column: str, otherwise: str) -> str:
    """Why a cell has no median."""
    metric, ends = METRICS[column], set(part["status"]) - {"inconclusive"}
    if not ends:
        return NOT_MEASURED
    if ends == {"failed"} and metric.of.endswith("went on"):
        return "stopped"
    if metric.not_known(part).any():
        went_on = ~part["status"].isin(["inconclusive", "failed"])
        return not_known(int(metric.not_known(part).sum()), int(went_on.sum()))
    if part["before_ms"].isna().all():
        return "no iteration before the fault"
    if not part["after_ms"].isna().all():
        return otherwise
    rest = part[~part["status"].isin(["inconclusive", "failed"])]
    return UNTIL_REPAIR if rest["until_repair"].all() else f"{NOTHING_AFTER} the fault"


def _dots(ax: Axes, data: pd.DataFrame, column: str, sizes: Sequence[int], systems: Sequence[str]) -> None:
    shown = data if len(data) <= MAX_DOTS else data.iloc[:: -(-len(data) // MAX_DOTS)]
    for index, system in enumerate(systems):
        own = shown[shown["system"] == system]
        beside = style.position(index, len(systems), DODGE) + 0.1
        xs = [sizes.index(int(size)) + beside for size in own["size_bytes"]]
        ax.scatter(xs, own[column], s=9, color=style.looks(systems)[system].color, alpha=0.55, linewidths=0, zorder=1)
