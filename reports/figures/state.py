"""The hosts' state around the fault, as panels below a timeline: CPU, retransmissions, RDMA ports, GPUs."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from reports.figures import style
from reports.state import panels_of

MAX_HOSTS = 8


def draw_panels(axes: Sequence[Axes], frame: pd.DataFrame) -> None:
    """`frame`: `reports.state.state_frame` of one trial, a panel for each of `axes`; a line is a host."""
    hosts = shown_hosts(frame)
    for ax, (label, part) in zip(axes, panels_of(frame), strict=True):
        for place, host in enumerate(hosts):
            own = part[part["host"] == host].sort_values("seconds")
            color, line = style.HOST_COLORS[place % len(style.HOST_COLORS)], style.HOST_LINES[place % 4]
            # Steps, because a value applies to the interval before it.
            ax.step(own["seconds"], own["value"], where="pre", color=color, linestyle=line, linewidth=1.1)
        # The label is wrapped: one line along a panel's height is too short for a name with its unit.
        ax.set_ylabel(label if "\n" in label else label.replace(" (", "\n("), fontsize=7.5)
        ax.set_ylim(0, None if part["value"].max() > 0 else 1)  # of nothing but zeros, matplotlib shows 0 to 0.05


def handles(frame: pd.DataFrame) -> list[Line2D]:
    """The legend entries of the hosts."""
    return [
        Line2D(
            [], [], color=style.HOST_COLORS[place % len(style.HOST_COLORS)], linestyle=style.HOST_LINES[place % 4],
            label=style.plain(host, 16),
        )
        for place, host in enumerate(shown_hosts(frame))
    ]  # fmt: skip


def shown_hosts(frame: pd.DataFrame) -> list[str]:
    """The first hosts; more lines could not be told apart."""
    return [str(host) for host in dict.fromkeys(frame["host"])][:MAX_HOSTS]


def caption(frame: pd.DataFrame) -> str:
    """Describes the panels."""
    hosts, shown = frame["host"].nunique(), len(shown_hosts(frame))
    more = f"; {hosts - shown} more hosts are not shown" if hosts > shown else ""
    return f"Below: the state of every host, read every 100 ms or so; rates are those of the interval before{more}."
