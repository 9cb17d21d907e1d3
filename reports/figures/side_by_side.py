"""Published, model and measured values of one experiment side by side, each divided by the model at its own scale."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style

SERIES = {"published": ("#333333", "X"), "measured": ("#0072B2", "o")}


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with what, published and measured (each over its model), low and high of measured; NaN: no
    value."""
    with style.applied():
        figure = style.sheet(6.4, 0.34 * len(frame) + 1.3)
        ax = figure.subplots()
        places = range(len(frame))
        ax.axvline(1, color=style.LINE, linestyle=(0, (5, 3)), linewidth=1)
        for y, low, high in zip(places, frame["low"], frame["high"], strict=True):
            if low == low:
                ax.hlines(y + 0.12, low, high, color=SERIES["measured"][0], linewidth=1.2)
        for name, (color, marker) in SERIES.items():
            beside = 0.12 if name == "measured" else -0.12
            ax.plot(
                frame[name], [y + beside for y in places], marker, color=color, markersize=6.5, markeredgecolor="white",
                linestyle="none",
            )  # fmt: skip
        ax.set_yticks(list(places), [style.plain(str(what), 44) for what in frame["what"]])
        ax.set_ylim(len(frame) - 0.5, -0.5)
        ax.grid(axis="x", color="#E4E4E4")
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("value over the model at its own scale")
        shown = [name for name in SERIES if frame[name].notna().any()]
        handles: list[Line2D] = [
            Line2D([], [], color=SERIES[n][0], marker=SERIES[n][1], markersize=6, linestyle="none", label=n)
            for n in shown
        ]
        model = Line2D([], [], color=style.LINE, linestyle=(0, (5, 3)), linewidth=1, label="model")
        style.legend_of(figure, [*handles, model])
    return figure


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    known = frame[frame["measured"].notna()]
    repeats = (
        f"; {style.count_text(known['n'], 'repeat')} per measured point" if len(known) else "; nothing is measured"
    )
    return (
        "Published and measured values, each divided by the model's value at the scale where it was taken, so that a "
        f"small cluster and a large one compare: 1 is the model. {style.INTERVAL_NOTE.capitalize()}{repeats}."
    )
