"""Bytes that each host receives per operation, by its NICs' counters and by the schedule, before and after the loss."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from reports.figures import style

PHASES = {"before": "before the fault", "after": "after it"}
TOO_FEW = {
    "before": "no operation there, or too short ones for counting their bytes",
    "after": "no operation on the schedule that follows the fault until the heal, or too short ones for counting their"
    " bytes",
}
"""Why a system has no bar in a phase."""
MAX_HOSTS = 8


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case. Shows the largest size with counts; bars are medians."""
    long = counts(frame)
    systems, hosts = style.systems_of(frame), list(dict.fromkeys(long["host"]))
    shown = [s for s in systems if (long["system"] == s).any()]
    phases = [phase for phase in PHASES if (long["phase"] == phase).any()] or ["before"]
    with style.applied():
        figure = style.sheet(3.4 * len(phases) + 0.6, 3.1)
        axes = style.panels(figure, len(phases), sharey=True)
        for ax, phase in zip(axes, phases, strict=True):
            _panel(ax, long[long["phase"] == phase], hosts, systems, shown)
            ax.set_title(PHASES[phase] if frame["faulted"].any() else "without a fault")
            if ax is axes[0] or style.narrow():
                ax.set_ylabel("received per operation\n(vector sizes)")
        axes[0].set_ylim(bottom=0)
        mark = Line2D([], [], color="#111111", linewidth=1.8, label="as the schedule says")
        marks = [mark] if _with_schedule(long) else []
        style.legend_of(figure, [*style.system_handles(systems, shown, bars=True), *marks])
    return figure


def _panel(ax: Axes, long: pd.DataFrame, hosts: list[str], systems: list[str], shown: list[str]) -> None:
    width = 0.8 / max(1, len(shown))
    looks = style.looks(systems)
    for place, system in enumerate(shown):
        for x, host in enumerate(hosts):
            own = long[(long["system"] == system) & (long["host"] == host)]
            counted = own[own["source"] == "counters"]["share"]
            left = x - 0.4 + place * width
            if len(counted):
                look, middle = looks[system], counted.median()
                ax.bar(left, middle, 0.92 * width, align="edge", color=look.color, hatch=look.hatch, edgecolor="white")
            planned = own[own["source"] == "schedule"]["share"]
            if len(planned):
                ax.hlines(planned.median(), left - 0.02 * width, left + 0.94 * width, color="#111111", linewidth=1.8)
    ax.set_xticks(range(len(hosts)), [style.plain(host, 14) for host in hosts])


def counts(frame: pd.DataFrame) -> pd.DataFrame:
    """The data of the figure: one row per trial, host, phase and source; `share` is bytes over the vector's size."""
    known = frame[frame["received_bytes"].notna()]
    known = known[known["size_bytes"] == known["size_bytes"].max()]
    rows = [
        {"system": row.system, "host": item.host, "phase": item.phase, "source": item.source,
         "share": item.received_bytes / row.size_bytes}
        for row in known.itertuples() for item in row.received_bytes
    ]  # fmt: skip
    long = pd.DataFrame(rows, columns=["system", "host", "phase", "source", "share"])
    return long[long["host"].isin(sorted(long["host"].unique())[:MAX_HOSTS])]


def _with_schedule(long: pd.DataFrame) -> bool:
    """Whether a schedule is known, so that a line is drawn."""
    return bool((long["source"] == "schedule").any())


def _without_bars(long: pd.DataFrame) -> str:
    """Which systems of the figure lack in one of its panels, and why."""
    counted = long[long["source"] == "counters"]
    shown, told = list(dict.fromkeys(counted["system"])), ""
    for phase in [phase for phase in PHASES if (long["phase"] == phase).any()]:
        there = set(counted[counted["phase"] == phase]["system"])
        missing = [system for system in shown if system not in there]
        if missing:
            told += f" Not {PHASES[phase]}: {', '.join(missing)}, which ran {TOO_FEW[phase]}."
    return told


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    known = frame[frame["received_bytes"].notna()]
    largest = known[known["size_bytes"] == known["size_bytes"].max()]
    farthest = max((abs(ratio - 1) for ratio in largest["over_schedule"].dropna()), default=None)
    told = "" if farthest is None else f" The farthest of any trial was {100 * farthest:.1f} % off its line."
    long = counts(frame)
    drawn = _with_schedule(long)
    lines = ", the black lines are what the system's schedule moves, where that is known" if drawn else ""
    compared = "hosts with each other" + (", counters with schedule" if drawn else "")
    phases = ", and operations before the fault with those after it" if known["faulted"].any() else ""
    return (
        f"Bytes that each host receives in one operation of {style.size_text(largest)}: the bars are counted "
        f"by its NICs (without the headers of TCP where frames were counted, too; medians; "
        f"{style.repeats_text(largest)}){lines}.{_without_bars(long)} Compared: {compared}{phases}.{told}"
    )


def result(frame: pd.DataFrame) -> str:
    """The bars in words: for each system and phase, what its hosts received."""
    long = counts(frame)
    bars = (
        long[(long["source"] == "counters") & long["phase"].isin(PHASES)]
        .groupby(["system", "phase", "host"], sort=False)["share"]
        .median()
    )
    told = []
    for (system, phase), own in bars.groupby(["system", "phase"], sort=False):
        ends = " to ".join(dict.fromkeys(f"{value:.3g}" for value in (own.min(), own.max())))
        when = f" {PHASES[str(phase)]}" if frame["faulted"].any() else ""
        told.append(f"{system}{when}: {ends}")
    return f"received per operation and host, in vector sizes: {'; '.join(told)}"
