"""The algorithm that the planner chooses, over the message size and the slow host's remaining bandwidth."""

import numpy as np
import pandas as pd
from matplotlib.colors import ListedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from r2ccl_core.planning.algorithms import ALGORITHMS
from r2ccl_core.units import format_size
from reports.figures import style

UNKNOWN = "#B0B0B0"
"""The mark of an algorithm that this version does not have."""


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with hosts, remaining (x, 0 to 1), size_bytes and algorithm; one panel for each number of hosts."""
    algorithms = [name for name in ALGORITHMS if (frame["algorithm"] == name).any()]
    algorithms += sorted(set(frame["algorithm"]) - set(algorithms))
    counts = sorted(frame["hosts"].unique())
    with style.applied():
        figure = style.sheet(2.7 * len(counts) + 0.8, 2.9)
        axes = figure.subplots(1, len(counts), sharey=True, squeeze=False)[0]
        for ax, hosts in zip(axes, counts, strict=True):
            table = cells(frame, int(hosts))
            codes = np.array([[algorithms.index(name) for name in row] for row in table.to_numpy()])
            colors = ListedColormap([_color(name) for name in algorithms])
            ax.imshow(codes, cmap=colors, vmin=-0.5, vmax=len(algorithms) - 0.5, aspect="auto", origin="lower")
            for (y, x), code in np.ndenumerate(codes):
                # A letter in every cell, because colours alone cannot be told apart in greyscale print.
                ink = "white" if sum(to_rgb(_color(algorithms[code]))) < 1.3 else "#111111"
                ax.text(x, y, letter(algorithms[code]), ha="center", va="center", fontsize=7, color=ink)
            shown = range(0, table.shape[1], max(1, table.shape[1] // 5))
            ax.set_xticks(list(shown), [format_size(int(table.columns[i])) for i in shown], fontsize=7.5)
            ax.set_yticks(range(table.shape[0]), [f"{x:.3g}" for x in table.index])
            ax.set_title(f"{int(hosts)} hosts")
            ax.set_xlabel("message size")
            ax.grid(visible=False)
        axes[0].set_ylabel("x, left of the slow host")
        handles = [Patch(color=_color(name), label=f"{letter(name)}  {style.plain(name, 24)}") for name in algorithms]
        style.legend_of(figure, handles)
    return figure


def cells(frame: pd.DataFrame, hosts: int) -> pd.DataFrame:
    """The chosen algorithm for one number of hosts, x down and size across."""
    own = frame[frame["hosts"] == hosts]
    return own.pivot(index="remaining", columns="size_bytes", values="algorithm")


def letter(name: str) -> str:
    """The mark of an algorithm, from its record if it has one."""
    return ALGORITHMS[name].letter if name in ALGORITHMS else name[:1].upper()


def _color(name: str) -> str:
    return ALGORITHMS[name].color if name in ALGORITHMS else UNKNOWN


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure."""
    alpha = f", {frame['alpha_s'].iloc[0] * 1e6:g} µs per message" if "alpha_s" in frame else ""
    rate = f" at {frame['rate_bytes_s'].iloc[0] / 1e9:g} GB/s per host" if "rate_bytes_s" in frame else ""
    return (
        "The planner's choice for an AllReduce with one slow host that keeps the share x of its bandwidth, by size and "
        f"number of hosts{rate}{alpha}. Each cell compares the models of all algorithms; the ring stays unless another "
        "promises more than 3 %. Computed, not measured: one plan per cell."
    )
