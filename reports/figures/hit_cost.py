"""The cost of the hit iteration: against one after it, and beyond the effect of the lower bandwidth."""

import pandas as pd
from matplotlib.figure import Figure

from reports.figures import style
from reports.figures.points import captioned, draw_points

PANELS = (("hit_cost_ms", "more than an iteration after it"), ("stall_ms", "stall: not explained by bandwidth"))

LACKING = {
    "hit_cost_ms": "no iteration after it on the same schedule",
    "stall_ms": "not one iteration hit by one fault, with one after it on the same schedule",
}
"""Why a trial that went on has no value."""


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case."""
    systems, sizes = style.systems_of(frame), style.sizes_of(frame)
    with style.applied():
        figure = style.sheet(7.4, 3.1)
        for ax, (column, title) in zip(style.panels(figure, len(PANELS)), PANELS, strict=True):
            draw_points(ax, frame, column, sizes, systems, joined=False)
            ax.set_title(title)
            ax.set_ylabel("time (ms)")
            ax.axhline(0, color="#444444", linewidth=0.8)
        style.legend(figure, systems, style.with_values(frame, "hit_cost_ms"))
    return figure


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    first, second = (captioned(frame, column, LACKING[column]) for column, _ in PANELS)
    told = first if first == second else f"first {first}; second {second}"
    return (
        f"Cost of the iteration that is hit: {style.INTERVAL_NOTE}; dots are single trials; "
        f"{told}. First: its duration minus the median iteration after "
        "it in the same trial, on the same schedule (if several are hit, their sum; below zero where much of them ran "
        "before the fault). Second: its "
        "duration minus what its parts before and after the fault should have lasted."
    )
