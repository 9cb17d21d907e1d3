"""Recovery timeline of one trial: the throughput of every NIC, host by host, with the iterations above.

Each host's NICs are stacked, so the height is the host's total and a lost NIC is a missing band. The shaded window
lasts from the fault to its heal.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import is_color_like, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from reports.figures import state, style
from reports.setting import Setting
from reports.stats import Floats
from reports.trial import Iteration, Trial
from reports.wording import number

GRID_S = 0.01
MAX_BINS = 450
MAX_HOSTS = 8
NARROW = 1 / 1000
"""Share of the time axis below which iterations are not drawn one by one: a pixel, at the width of the report."""
LABEL = 0.12
"""Share of the time axis that the text above a hit iteration takes."""
BETWEEN = "#808080"
"""Between the dark and the light that alternate."""
MAX_LABELS = 3
"""Maximum number of different faults in the legend."""
BESIDE = 0.014
"""Share of the time axis that the number of a fault takes."""
MAX_NICS = 12
"""The same of NICs."""
EVENT_MARKS = {
    "path_down": ("v", "path lost"),
    "migrated": ("D", "chunks moved"),
    "copied": ("d", "chunks copied"),
    "switched": ("s", "new schedule"),
    "path_returned": ("^", "path back"),
    "path_held": ("o", "path held"),
    "rdma_off": ("<", "RDMA off"),
    "rdma_on": (">", "RDMA on"),
    "failed": ("X", "gave up"),
    "refused": ("P", "refused"),
    "nccl": ("*", "NCCL's log: trouble"),
}


def draw(
    trial: Trial,
    rates: pd.DataFrame,
    events: Sequence[dict[str, Any]],
    setting: Setting,
    watched: pd.DataFrame | None = None,
) -> Figure:
    """`rates`: `reports.recovery.throughput` of the trial's counters; `events`: its core events, times in `t_ns`;
    `watched`: `reports.state.state_frame`, whose panels are drawn below on the same time axis."""
    zero_ns = trial.fault.t_before_ns if trial.fault else _first_ns(trial, rates)
    hosts = shown_hosts(trial, rates)
    with style.applied():
        panels = 0 if watched is None else watched["panel"].nunique()
        figure = style.fixed_sheet(8.6, 1.65 + 0.95 * len(hosts) + 0.9 * panels, (1.05, 0.5, 0.15, 0.4))
        ratios = [0.65] + [1.0] * len(hosts) + [0.9] * panels
        axes = figure.subplots(len(ratios), 1, sharex=True, squeeze=False, height_ratios=ratios)[:, 0]
        _iterations(axes[0], trial, zero_ns)
        _events(axes[0], events, zero_ns)
        if watched is not None:
            state.draw_panels(list(axes[len(hosts) + 1 :]), watched)
        for ax, host in zip(axes[1 : len(hosts) + 1], hosts, strict=True):
            _host(ax, rates[rates["host"] == host], host, zero_ns, setting)
        for ax in axes:
            _fault(ax, trial, zero_ns)
        span = _span(trial, rates, zero_ns)
        _numbers(axes[0], trial, zero_ns, BESIDE * (span[1] - span[0]))
        axes[-1].set_xlabel("time since the fault (s)" if trial.fault else "time (s)")
        axes[-1].set_xlim(*span)
        _legend(figure, rates, trial, axes[0], state.handles(watched) if watched is not None else ())
        middle = axes[1].get_position().y1 / 2 + axes[len(hosts)].get_position().y0 / 2
        figure.supylabel("sent (Mbit/s)", fontsize=9, x=0.012, y=middle)
        figure.align_ylabels(axes[1:])
    return figure


def caption(trial: Trial, rates: pd.DataFrame, watched: pd.DataFrame | None = None) -> str:
    """Describes the figure."""
    left_out = rates["host"].nunique() - len(shown_hosts(trial, rates))
    more = f"; {left_out} more hosts are not shown" if left_out else ""
    return (
        f"{trial.trial_id}: throughput sent by every NIC, stacked by host (one trial, counters every 10 ms){more}. "
        "Top: iterations alternate dark and light (grey where they are narrower than a pixel), the hit one in red "
        "(hatched where it never ended); marks are events in the cores' logs and NCCL's. "
        "Shaded: from the fault to its heal. Compared: every host with the limit of its NICs (dashed)."
        + (f" {state.caption(watched)}" if watched is not None else "")
    )


def shown_hosts(trial: Trial, rates: pd.DataFrame) -> list[str]:
    """The hosts with a panel, always including the struck one."""
    hosts = list(dict.fromkeys(rates["host"]))
    if len(hosts) <= MAX_HOSTS:
        return hosts
    struck = [trial.fault.host] if trial.fault and trial.fault.host in hosts else []
    kept = set(struck + [h for h in hosts if h not in struck][: MAX_HOSTS - len(struck)])
    return [h for h in hosts if h in kept]


def stack(rates: pd.DataFrame) -> tuple[Floats, dict[str, Floats]]:
    """Throughput of one host's NICs (Mbit/s) on a common grid of times (ns): the bands of the figure."""
    first, last = float(rates["start_ns"].min()), float(rates["end_ns"].max())
    bins = int(min(MAX_BINS, max(2, (last - first) / (GRID_S * 1e9))))
    grid = np.linspace(first, last, bins)
    bands = {}
    for nic, own in rates.groupby("nic", sort=True):
        at = np.minimum(np.searchsorted(own["end_ns"], grid), len(own) - 1)
        bands[str(nic)] = own["bit_s"].to_numpy(np.float64)[at] / 1e6
    return grid, bands


def _host(ax: Axes, rates: pd.DataFrame, host: str, zero_ns: int, setting: Setting) -> None:
    if not rates.empty:
        grid, bands = stack(rates)
        colors = [style.RAIL_COLORS[i % len(style.RAIL_COLORS)] for i in range(len(bands))]
        # Steps, not slopes: only the mean between two samples is known.
        ax.stackplot((grid - zero_ns) / 1e9, *bands.values(), colors=colors, step="pre", linewidth=0)
    if setting.rate_bit_s and setting.nics:
        limit = setting.rate_bit_s * setting.nics / 1e6
        ax.axhline(limit, color=style.LINE, linestyle=(0, (5, 3)), linewidth=0.9)
        ax.set_ylim(0, limit * 1.15)
        ax.set_yticks(
            [0, limit / 2, limit] if setting.nics > 4 else [i * limit / setting.nics for i in range(setting.nics + 1)]
        )
    ax.set_ylabel(style.plain(host, 16), fontweight="bold")


def _iterations(ax: Axes, trial: Trial, zero_ns: int) -> None:
    """A strip of bars, one per iteration, and a cross where the trial stopped."""
    shown = bars(trial.iterations)
    spans = [((bar.begin_ns - zero_ns) / 1e9, (bar.end_ns - bar.begin_ns) / 1e9) for bar in shown]
    ax.broken_barh(spans, (0, 1), facecolors=[bar.colour for bar in shown], linewidth=0)
    if (cut := unfinished(trial)) is not None:
        begin, end = ((ns - zero_ns) / 1e9 for ns in cut)
        ax.broken_barh(
            [(begin, end - begin)], (0, 1), facecolors="white", edgecolor=style.ACCENT, hatch="/////", linewidth=0.8
        )
    begins = [window.begin_ns for window in windows(trial)]
    for item in labelled(trial.iterations, begins):
        # Above the bar, because for small messages the bar is narrower than its text.
        ax.annotate(
            f"hit: {number(item.duration_ns / 1e6)} ms", ((label_ns(item, begins) - zero_ns) / 1e9, 1.08),
            xytext=(3, 0), textcoords="offset points", va="bottom", fontsize=7.5, color=style.ACCENT,
        )  # fmt: skip
    if trial.error and trial.error.t_ns:
        at = (trial.error.t_ns - zero_ns) / 1e9
        ax.plot(at, 0.5, "X", color=style.ACCENT, markersize=8, markeredgecolor="white", clip_on=False, zorder=5)
        # Left of the fault's line, which would otherwise cross it.
        ax.annotate(
            "stopped", (min(at, 0) if trial.fault else at, 1.08), xytext=(-3, 0), textcoords="offset points",
            ha="right", va="bottom", fontsize=7.5, color=style.ACCENT,
        )  # fmt: skip
    ax.set_ylim(0, 3.1)
    ax.set_yticks([0.5, 2.6], ["iterations", "core"])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    ax.grid(visible=False)


class Bar(NamedTuple):
    """One iteration, or several that are too narrow to be told apart."""

    begin_ns: int
    end_ns: int
    colour: str


def bars(iterations: Sequence[Iteration]) -> list[Bar]:
    """The strip: neighbours of one kind that are narrower than `NARROW` of it are one bar of the colour between theirs.

    A hundred thousand bars of their own would take half a minute to draw, and look like one.
    """
    narrow_ns = NARROW * (_end_ns(iterations[-1]) - iterations[0].t_ns) if iterations else 0
    found: list[Bar] = []
    last, joins = "", False  # the kind of the last bar, and whether a narrow neighbour can join it
    for item in iterations:
        kind = item.phase if item.phase in ("hit", "warmup") else ""
        narrow = item.duration_ns < narrow_ns
        if joins and narrow and kind == last and item.t_ns - found[-1].end_ns < narrow_ns:
            colour = BETWEEN if not kind else found[-1].colour
            found[-1] = Bar(found[-1].begin_ns, max(found[-1].end_ns, _end_ns(item)), colour)
        else:
            found.append(Bar(item.t_ns, _end_ns(item), _color(item)))
        last, joins = kind, narrow
    return found


def labelled(iterations: Sequence[Iteration], begins: Sequence[int] = ()) -> list[Iteration]:
    """The hit iterations whose duration is written above them: the longest first, as long as texts do not overlap.
    `begins` is when the faults took effect."""
    found: list[Iteration] = []
    apart_ns = LABEL * (_end_ns(iterations[-1]) - iterations[0].t_ns) if iterations else 0
    for item in sorted((i for i in iterations if i.phase == "hit"), key=lambda i: (-i.duration_ns, i.t_ns)):
        if all(abs(label_ns(item, begins) - label_ns(other, begins)) >= apart_ns for other in found):
            found.append(item)
    return found


def label_ns(item: Iteration, begins: Sequence[int]) -> int:
    """Where the text of a hit iteration begins: right of the last fault that hit it, whose line would cross it."""
    return max((ns for ns in begins if item.t_ns <= ns <= _end_ns(item)), default=item.t_ns)


def _end_ns(item: Iteration) -> int:
    return item.t_ns + item.duration_ns


def unfinished(trial: Trial) -> tuple[int, int] | None:
    """Start and end (ns) of the iteration that the fault hit and that never completed; None if there is none.

    It began at the end of the previous iteration, or at the fault if it was the first; the error ended it.
    """
    hit = any(i.phase in ("hit", "after") for i in trial.iterations)
    if trial.fault is None or trial.error is None or trial.error.t_ns is None or hit:
        return None
    ends = [i.t_ns + i.duration_ns for i in trial.iterations]
    begin_ns = min([trial.fault.t_before_ns, *ends[-1:]])
    return (begin_ns, trial.error.t_ns) if begin_ns < trial.error.t_ns else None


def _color(item: Iteration) -> str:
    if item.phase in ("hit", "warmup"):
        return style.ACCENT if item.phase == "hit" else "#DDDDDD"
    return ("#555555", "#AAAAAA")[item.iteration % 2]


def _events(ax: Axes, events: Sequence[dict[str, Any]], zero_ns: int) -> None:
    for kind, (marker, name) in EVENT_MARKS.items():
        times = [(int(e["t_ns"]) - zero_ns) / 1e9 for e in events if e.get("kind") == kind]
        if times:
            ax.plot(
                times, [2.6] * len(times), marker, color="#111111", markersize=4.5, linestyle="none", label=name,
                markeredgecolor="white", markeredgewidth=0.4,
            )  # fmt: skip


class Window(NamedTuple):
    """From a fault's effect to its heal, in the form that the fault itself specifies (`faults.base.PlotHint`)."""

    begin_ns: int
    end_ns: int
    label: str
    colour: str | None
    """None: not shaded."""


def windows(trial: Trial) -> list[Window]:
    """One window for each failure; in old files faults do not specify how they are drawn."""
    told = [*trial.evidence.strikes, *({} for _ in trial.faults)]
    found = []
    for fault, strike in zip(trial.faults, told, strict=False):
        label = strike.get("label") or f"{fault.kind} on {fault.host} {fault.nic}"
        colour = strike.get("colour", style.ACCENT)
        known = colour if colour is None or is_color_like(colour) else style.ACCENT
        end_ns = fault.heal_ns or fault.t_after_ns
        found.append(Window(fault.t_before_ns, end_ns, style.plain(str(label), 50), known))
    return found


def _fault(ax: Axes, trial: Trial, zero_ns: int) -> None:
    if trial.fault is None:
        return
    for window in windows(trial):
        begin, end = ((ns - zero_ns) / 1e9 for ns in (window.begin_ns, window.end_ns))
        if window.colour is not None:
            ax.axvspan(begin, end, color=window.colour, alpha=0.09, linewidth=0, zorder=0)
        ax.axvline(begin, color=window.colour or style.LINE, linewidth=1.1)


def _numbers(ax: Axes, trial: Trial, zero_ns: int, width_s: float) -> None:
    """Above the strip, the number that each of several faults has in the legend: no colour tells all of them apart."""
    shown = _first(list(_colours(trial)), MAX_LABELS)
    numbers = dict(zip(_colours(trial), range(1, len(shown) + 1), strict=False))
    if len(numbers) < 2:
        return
    ax.set_ylim(0, 4)
    free_s = -float("inf")
    for window in windows(trial):
        if window.label not in numbers:
            continue
        at = max((window.begin_ns - zero_ns) / 1e9, free_s)  # beside another that begins at almost the same time
        ax.annotate(
            str(numbers[window.label]), (at, 3.2), xytext=(2, 0), textcoords="offset points", va="bottom",
            fontsize=7.5, fontweight="bold", color=window.colour or style.LINE,
        )  # fmt: skip
        free_s = at + width_s


def _legend(figure: Figure, rates: pd.DataFrame, trial: Trial, strip: Axes, hosts: Sequence[Line2D]) -> None:
    nics, faults, events = _nic_handles(rates), _fault_handles(trial), strip.get_legend_handles_labels()[0]
    # Several faults have their own lines: their long names would draw the columns of the others apart.
    own = [[*nics, *faults, *events]] if len(faults) < 2 else [[*nics, *events], faults]
    style.legends_above(figure, [*own, hosts], handlelength=1.4, columnspacing=1.2)


def _nic_handles(rates: pd.DataFrame) -> list[Patch]:
    nics = sorted(rates["nic"].unique())
    return [
        Patch(color=style.RAIL_COLORS[i % len(style.RAIL_COLORS)], label=label)
        for i, label in enumerate(_first([style.plain(nic, 16) for nic in nics], MAX_NICS))
    ]


def _fault_handles(trial: Trial) -> list[Patch]:
    colours = _colours(trial)
    labels = _first(list(colours), MAX_LABELS)
    if len(labels) > 1:
        labels = [f"{at}: {label}" for at, label in enumerate(labels, start=1)]
    return [
        Patch(facecolor=to_rgba(colour or style.LINE, 0.2), edgecolor=colour or style.LINE, linewidth=1.1, label=label)
        for label, colour in zip(labels, colours.values(), strict=False)
    ]


def _colours(trial: Trial) -> dict[str, str | None]:
    """The colour of each different fault, by its label and in the order of time."""
    return {window.label: window.colour for window in windows(trial)}


def _first(labels: Sequence[str], most: int) -> list[str]:
    """At most so many labels, the last of which says how many more there are."""
    more = f" and {len(labels) - most} more" if len(labels) > most else ""
    return [*labels[: most - 1], *(f"{label}{more}" for label in labels[most - 1 : most])]


def _span(trial: Trial, rates: pd.DataFrame, zero_ns: int) -> tuple[float, float]:
    """From the first iteration to the end of the samples, with a small margin."""
    first = _first_ns(trial, rates)
    last = max([int(rates["end_ns"].max())] + [i.t_ns + i.duration_ns for i in trial.iterations])
    air = 0.01 * (last - first)
    return (first - zero_ns - air) / 1e9, (last - zero_ns + air) / 1e9


def _first_ns(trial: Trial, rates: pd.DataFrame) -> int:
    return min((i.t_ns for i in trial.iterations), default=int(rates["start_ns"].min()))
