"""Overhead of training and inference over the number of failed NICs, by the network's strategy."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.figures import style


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with workload, strategy, failures, overhead (share of an iteration or request), low and high of the
    draws, and source (model or published). One panel per workload."""
    workloads = list(dict.fromkeys(frame["workload"]))
    strategies = strategies_of(frame)
    with style.applied():
        figure = style.sheet(3.4 * len(workloads) + 0.6, 3.2)
        axes = figure.subplots(1, len(workloads), squeeze=False)[0]
        for ax, workload in zip(axes, workloads, strict=True):
            _panel(ax, frame[frame["workload"] == workload], strategies)
            ax.set_title(style.plain(workload, 40))
        axes[0].set_ylabel("overhead (%)")
        style.legend(figure, strategies, strategies)
    return figure


def _panel(ax: Axes, frame: pd.DataFrame, strategies: list[str]) -> None:
    for strategy, (color, marker, style_of_line, _) in style.looks(strategies).items():
        own = frame[frame["strategy"] == strategy].sort_values("failures")
        for source, line in (("model", style_of_line), ("published", "none")):
            told = own[own["source"] == source]
            if source == "model" and len(told):
                low, high = 100 * told["low"], 100 * told["high"]
                ax.fill_between(told["failures"], low, high, color=color, alpha=0.13, linewidth=0)
            ax.plot(
                told["failures"], 100 * told["overhead"], linestyle=line, linewidth=1.3, color=color, marker=marker,
                markersize=5.5 if source == "model" else 8, markeredgecolor="white", markeredgewidth=0.5,
            )  # fmt: skip
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("failed NICs")
    ax.set_ylim(bottom=0)


def strategies_of(frame: pd.DataFrame) -> list[str]:
    """The strategies in the figure, in the order of the frame."""
    return list(dict.fromkeys(map(str, frame["strategy"])))


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of draws."""
    draws = int(frame["draws"].max()) if "draws" in frame else 1
    return (
        "Overhead of an iteration (training) or a request (inference) over the number of NICs that failed at random, "
        "against the same cluster without a failure: means of the model over "
        f"{draws} random draws per point, bands from the 5th to the 95th percentile. Large marks without a line are "
        "published figures."
    )
