"""The sequence of events after the fault: noticed, moved to other NICs, traffic back, or stopped with an error."""

import math
from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reports.effect import uncertain_effects
from reports.figures import style
from reports.figures.recovery import EFFECT, LEAST_MS, at_their_ends, in_sentences
from reports.metrics import METRICS
from reports.recovery import by_then
from reports.wording import number, plural

STAGES = {
    "detect_ms": "loss noticed\n(core's log)",
    "migrate_ms": "chunks moved\n(core's log)",
    "recover_ms": "traffic back\n(NIC counters)",
    "error_after_ms": "stopped with\nan error",
}

LEAST_OF_CLOCKS = 0.01
LEAST = {stage: LEAST_MS if metric == "recover_ms" else LEAST_OF_CLOCKS for metric, stage in STAGES.items()}
"""Where the logarithmic axis shows times of 0: at the resolution of the counters, or of the clocks, in ms."""

MOST_LABELS, MOST_LABELS_NARROW = 18, 7
"""At most this many labels of the logarithmic axis fit beside each other, on a page and on a phone: the longest,
``0.01`` and ``5000``, are 0.35 inches wide with their gap, and a phone's axis is 2.7 inches wide."""


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case; every dot is one trial, the bars are medians of several."""
    systems, long = style.systems_of(frame), times(frame)
    with style.applied():
        figure = style.sheet(6.6, 3.1)
        ax = figure.subplots()
        if not long.empty:
            _stages(ax, long, systems)
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=_marked(*ax.get_xlim())))
            ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.grid(axis="x", color="#E4E4E4")
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("time after the fault (ms, logarithmic)")
        ax.set_yticks(range(len(STAGES)), list(STAGES.values()))
        ax.set_ylim(len(STAGES) - 0.5, -0.5)
        style.legend(figure, systems, systems)
    return figure


def _marked(low: float, high: float) -> tuple[int, ...]:
    """The multiples of the powers of ten that have a label: as many as stand side by side."""
    decades, most = math.log10(high / low), MOST_LABELS_NARROW if style.narrow() else MOST_LABELS
    return next((subs for subs in ((1, 2, 5), (1, 3)) if decades * len(subs) <= most), (1,))


def _stages(ax: Axes, long: pd.DataFrame, systems: Sequence[str]) -> None:
    """A strip of dots for each stage and system, and behind several a bar at their median."""
    stages, width, looks = list(STAGES.values()), 0.8 / len(systems), style.looks(systems)
    for (stage, system), group in long.groupby(["stage", "system"]):
        middle = stages.index(str(stage)) - 0.4 + width * (systems.index(str(system)) + 0.5)
        look, ms = looks[str(system)], group["ms"].clip(lower=LEAST[str(stage)])
        at = [middle] * len(ms)
        ax.plot(ms, at, look.marker, color=look.color, markersize=3.4, markeredgewidth=0, alpha=0.7, zorder=3)
        if len(group) > 1:
            median = max(group["ms"].median(), LEAST[str(stage)])
            ax.plot([median] * 2, [middle - 0.4 * width, middle + 0.4 * width], color="#111111", linewidth=1.6)


def times(frame: pd.DataFrame) -> pd.DataFrame:
    """The data of the figure: one row per trial and stage, with the times as they were measured, and by when traffic
    was back for sure."""
    frame = frame.assign(recover_ms=by_then(frame))
    long = frame.melt(id_vars=["system", "size_bytes"], value_vars=list(STAGES), var_name="stage", value_name="ms")
    long = long.dropna(subset=["ms"])
    return long.assign(stage=long["stage"].map(STAGES))


def result(frame: pd.DataFrame) -> str:
    """The bars in words."""
    long, told = times(frame), []
    for stage, part in long.groupby("stage", sort=False):
        values = [
            f"{system} {number(own.median())} ms ({plural(own.size, 'trial')})"
            for system, own in part.groupby("system", sort=False)["ms"]
        ]
        told.append(f"{str(stage).replace(chr(10), ' ')}: {', '.join(values)}")
    if not told:
        return ""
    return "; ".join(
        filter(None, [f"medians{style.over_sizes(long)}: {'; '.join(told)}", *at_their_ends(frame), _uncertain(frame)])
    )


def _uncertain(frame: pd.DataFrame) -> str:
    """In how many trials the times from the fault's effect may be wrong, or are not known."""
    unsure = pd.concat([METRICS[name].not_known(frame) for name in STAGES], axis=1).any(axis=1)
    errors_ms = pd.concat([METRICS[name].errors_ms(frame) for name in STAGES], axis=1).max(axis=1)
    return uncertain_effects(errors_ms.where(~unsure, 0.0), int(unsure.sum()))


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of trials."""
    conclusive = int((frame["faulted"] & (frame["status"] != "inconclusive")).sum())
    return (
        f"Times from the fault's effect ({EFFECT}) to each of its signs, by system{style.over_sizes(frame)}, "
        f"{plural(conclusive, 'trial')} ({_known(frame)}); every dot is one trial"
        f"{', the bars are medians' if _several(frame) else ''}."
        f"{_about_lines(frame)}{in_sentences(at_their_ends(frame))}"
        + (f" Here {told}." if (told := _uncertain(frame)) else "")
    )


def _several(frame: pd.DataFrame) -> bool:
    """Whether a system has several trials in one line, so that a bar is drawn."""
    return bool(times(frame).duplicated(["stage", "system"]).any())


def _about_lines(frame: pd.DataFrame) -> str:
    """What dots mean that are no time as it was measured, of the lines that have any."""
    told = []
    if ((frame["recover_ms"] == 0) & ~frame["by_mean"]).any():
        told.append(
            "in the line of traffic back, a host without a pause longer than its own before the fault stands where it "
            "was back at the latest"
        )
    long = times(frame)
    others = long[long["stage"] != STAGES["recover_ms"]]
    if (others["ms"] < LEAST_OF_CLOCKS).any():
        told.append(f"what is earlier than {LEAST_OF_CLOCKS:g} ms is drawn there")
    return in_sentences(told)


def _known(frame: pd.DataFrame) -> str:
    """How many trials each sign is known of, in the order of the lines."""
    counts = times(frame)["stage"].value_counts()
    names = {stage: stage.replace("\n", " ").partition(" (")[0] for stage in STAGES.values() if stage in counts}
    return ", ".join(f"{name} {counts[stage]}" for stage, name in names.items())
