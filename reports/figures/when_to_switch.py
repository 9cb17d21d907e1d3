"""After how many operations leaving the ring pays off, over the message size and the slow host's remaining
bandwidth."""

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.units import format_size
from reports.figures import style
from reports.figures.choice_map import letter


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with remaining (x, 0 to 1), size_bytes, algorithm and operations (infinite: never)."""
    table = frame.pivot(index="remaining", columns="size_bytes", values="operations")
    chosen = frame.pivot(index="remaining", columns="size_bytes", values="algorithm")
    finite = table.replace(np.inf, np.nan)
    with style.applied():
        figure = style.sheet(0.62 * table.shape[1] + 1.9, 0.42 * table.shape[0] + 1.5)
        ax = figure.subplots()
        sns.heatmap(
            finite, ax=ax, norm=LogNorm(1, 1e5), cmap="cividis_r", annot=texts(table, chosen), fmt="",
            annot_kws={"size": 7.5}, cbar_kws={"label": "operations", "format": "%d"}, linewidths=0.6,
            linecolor="white",
        )  # fmt: skip
        ax.set_xticklabels([format_size(int(size)) for size in table.columns], rotation=0, fontsize=7.5)
        ax.set_xlabel("message size")
        ax.set_ylabel("x, left of the slow host")
        ax.tick_params(axis="both", length=0, rotation=0)
        ax.grid(visible=False)
    return figure


def texts(table: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The texts of the cells: the schedule's letter and the number of operations; empty if the ring stays."""
    shown = table.copy().astype(object)
    for row in table.index:
        for column in table.columns:
            count, name = float(table.loc[row, column]), str(chosen.loc[row, column])
            shown.loc[row, column] = "" if not np.isfinite(count) else f"{letter(name)} {max(1, round(count)):,}"
    return shown


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure."""
    names = ", ".join(f"{one.letter} {one.title}" for one in ALGORITHMS.values() if one.alias and one.name != "ring")
    return (
        "The number of AllReduces after which leaving the ring has paid off, with one slow host of "
        f"{int(frame['hosts'].iloc[0])} that keeps the share x of its bandwidth; the letter is the schedule's "
        f"({names}). Empty: the ring is the fastest. "
        "Computed from the planner's models, not measured."
    )
