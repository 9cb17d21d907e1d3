"""What the hosts were doing around the fault: CPU, retransmissions and, where there are any, RDMA ports and GPUs."""

import pandas as pd
from matplotlib.figure import Figure

from reports.figures import style
from reports.state import panels_of

MAX_HOSTS = 8


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.state.state_frame` of one trial; a line is a host, the fault is at 0."""
    panels = list(panels_of(frame))
    hosts = shown_hosts(frame)
    with style.applied():
        figure = style.fixed_sheet(7.4, 0.8 + 0.85 * max(1, len(panels)), (1.15, 0.5, 0.15, 0.3))
        axes = figure.subplots(max(1, len(panels)), 1, sharex=True, squeeze=False)[:, 0]
        for ax, (label, part) in zip(axes, panels, strict=False):
            for host in hosts:
                own = part[part["host"] == host].sort_values("seconds")
                color = style.COLORS[hosts.index(host) % len(style.COLORS)]
                # Steps: a value is that of the interval before it.
                ax.step(
                    own["seconds"], own["value"], where="pre", color=color, linewidth=1.1, label=style.plain(host, 16)
                )
            ax.axvline(0, color=style.ACCENT, linewidth=1.1)
            # One line of a panel's height is too short for a name with its unit.
            ax.set_ylabel(label if "\n" in label else label.replace(" (", "\n("), fontsize=7.5)
            ax.set_ylim(bottom=0)
        axes[-1].set_xlabel("time since the fault (s)")
        handles, labels = axes[0].get_legend_handles_labels()
        if handles:
            figure.legend(handles, labels, loc="upper left", ncols=min(8, len(handles)), handlelength=1.2)
        figure.align_ylabels(axes)
    return figure


def shown_hosts(frame: pd.DataFrame) -> list[str]:
    """The first hosts: more lines than these cannot be told apart."""
    return [str(host) for host in dict.fromkeys(frame["host"])][:MAX_HOSTS]


def caption(frame: pd.DataFrame) -> str:
    """What the figure shows."""
    hosts, shown = frame["host"].nunique(), len(shown_hosts(frame))
    more = f"; {hosts - shown} more hosts are not shown" if hosts > shown else ""
    return (
        "State of every host over the same trial, read every 100 ms or so (one trial); rates are those of the "
        f"interval before{more}. The red line is the fault."
    )
