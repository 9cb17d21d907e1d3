"""The distribution of recovery times: the share of trials whose traffic had recovered by a given time."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from reports.effect import uncertain_effects
from reports.figures import style
from reports.metrics import METRICS
from reports.recovery import LEAST_BASELINE_NS, RESOLUTION_NS, STEADY_NS, by_then
from reports.stats import Floats
from reports.wording import number, plural, sized

EFFECT = "the struck NIC's last byte or, if it still sends, the end of the injection"
"""When a fault takes effect, in captions."""
LEAST_MS = RESOLUTION_NS / 1e6
"""Where a logarithmic axis shows shorter times: no time is known better."""


APART_PT = 3.0
"""How far apart the curves of systems stand that would cover each other."""


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: `reports.measures.trial_frame`, one case; one step per trial, over all sizes."""
    systems, wide = style.systems_of(frame), _is_wide(frame)
    with style.applied():
        figure = style.sheet(5.6, 3.0)
        ax, curves = figure.subplots(), []
        for system, look in style.looks(systems).items():
            times, shares = steps(frame, system)
            times = times.clip(min=LEAST_MS) if wide else times
            if times.size:
                # The curve starts at the foot of its first step, so that a single trial is a visible step too.
                line = ax.step(
                    [times[0], *times], [0, *shares], where="post", color=look.color, linestyle=look.line, linewidth=1.5
                )
                points = ax.plot(
                    times, shares, look.marker, color=look.color, markersize=4.5, markeredgecolor="white",
                    markeredgewidth=0.4, clip_on=False,
                )  # fmt: skip
                curves.append((*line, *points))
        if wide:
            ax.set_xscale("log")
            ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            ax.xaxis.set_minor_locator(NullLocator())
            least = "≤ " if (by_then(frame) < LEAST_MS).any() else ""
            ax.xaxis.set_major_formatter(
                FuncFormatter(lambda value, _: f"{least if value == LEAST_MS else ''}{value:g}")
            )
        else:
            last_ms = max(ax.get_xlim()[1], 2 * LEAST_MS)
            ax.set_xlim(-0.03 * last_ms, last_ms)  # the axis would hide a time of 0
        ax.set_ylim(0, 104)
        _move_apart(ax, curves)
        ax.set_xlabel(f"time from the fault until traffic was back (ms{', logarithmic' if wide else ''})")
        ax.set_ylabel("trials (%)")
        style.legend(figure, systems, style.with_values(frame, "recover_ms"))
    return figure


def _move_apart(ax: Axes, curves: Sequence[Sequence[Line2D]]) -> None:
    """Moves the curves side by side, each with its markers: several systems may have only times of 0."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    for place, curve in enumerate(curves):
        right_in = APART_PT / 72 * (place - (len(curves) - 1) / 2)
        for line in curve:
            line.set_transform(ax.transData + ScaledTranslation(right_in, 0, figure.dpi_scale_trans))


def _is_wide(frame: pd.DataFrame) -> bool:
    """Whether the times need a logarithmic axis."""
    known = by_then(frame).dropna().clip(lower=LEAST_MS)
    return bool(known.max() > 10 * known.min())


def steps(frame: pd.DataFrame, system: str) -> tuple[Floats, Floats]:
    """A system's sorted times (ms), and the share of trials (%) that had recovered by each."""
    times: Floats = np.sort(np.asarray(by_then(frame[frame["system"] == system]).dropna(), dtype=np.float64))
    return times, 100 * np.arange(1, times.size + 1) / max(1, times.size)


def result(frame: pd.DataFrame) -> str:
    """The curves in words."""
    told = []
    for system in style.systems_of(frame):
        times, _ = steps(frame, system)
        if times.size:
            told.append(
                f"{system} {number(float(np.median(times)))}, at most {number(float(times[-1]))} ms ({times.size})"
            )
    medians = f"medians{style.over_sizes(frame[frame['recover_ms'].notna()])}, and how many trials: {'; '.join(told)}"
    return "; ".join(filter(None, [medians, *at_their_ends(frame), _uncertain(frame)]))


def at_their_ends(frame: pd.DataFrame) -> Sequence[str]:
    """Which trials stand where they were back at the latest (`reports.recovery.by_then`), how many, and why."""
    return [told for told in (_without_stop(frame), _without_baseline(frame)) if told]


def _without_stop(frame: pd.DataFrame) -> str:
    still = frame["recover_most_ms"].where((frame["recover_ms"] == 0) & ~frame["by_mean"]).dropna()
    if still.empty:
        return ""
    count = "counts by its" if len(still) == 1 else "count by their"
    return (
        f"no stop was seen in {plural(len(still), 'trial')}, which {count} longest pause: at most "
        f"{number(still.median())} ms in the median, {number(still.max())} ms in all"
    )


def _without_baseline(frame: pd.DataFrame) -> str:
    count = int((frame["recover_ms"].notna() & frame["by_mean"]).sum())
    if not count:
        return ""
    least = f"{STEADY_NS / 1e6:g} ms"
    they_count = "it counts" if count == 1 else "they count"
    return (
        f"{plural(count, 'trial')} had less than {LEAST_BASELINE_NS / 1e9:g} s of close samples before the fault: "
        f"{they_count} by the mean of {least}, which takes pauses for stops, and as {least} if it tells less; if the "
        f"hit iteration ended less than {2 * STEADY_NS / 1e6:g} ms after the effect, up to its end"
    )


def in_sentences(told: Sequence[str]) -> str:
    """The texts as sentences behind others."""
    return "".join(f" {text[:1].upper()}{text[1:]}." for text in told)


def _uncertain(frame: pd.DataFrame) -> str:
    """In how many trials the times may be wrong."""
    return uncertain_effects(METRICS["recover_ms"].errors_ms(frame))


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of trials."""
    counts = frame.groupby("system", sort=False)["recover_ms"].count()
    trials = ", ".join(f"{system} {count}" for system, count in counts.items() if count)
    return (
        f"Recovery time by system: from the fault's effect ({EFFECT}) until the struck host's other NICs, or the only "
        "one that its system uses, send at 80 % of their later speed again, in the mean of 10 ms and after every stop, "
        "by their counters (read every millisecond from shortly before the fault). Healthy traffic pauses, too: a host "
        "without a pause longer than its own before the fault stands where it was back at the latest."
        f"{in_sentences(at_their_ends(frame))} Every step is one trial; curves that coincide stand side by side. "
        f"Trials: {trials}.{_unknown(frame)} Compared: how late each system is back."
        + (f" Here {wrong}." if (wrong := _uncertain(frame)) else "")
    )


def _unknown(frame: pd.DataFrame) -> str:
    """How many trials that went on have no value, by size, and why."""
    went_on = frame[frame["faulted"] & ~frame["status"].isin(["inconclusive", "failed"])]
    unknown = went_on[went_on["recover_ms"].isna()]
    if unknown.empty:
        return ""
    counts = unknown.groupby("size_bytes")["recover_ms"].size()
    sizes = ", ".join(f"{count} of {sized(int(str(size)))}" for size, count in counts.items())
    by_size = f" ({sizes})" if went_on["size_bytes"].nunique() > 1 else ""
    return (
        f" The time of {plural(len(unknown), 'trial')} is not known{by_size}: too short an iteration, or no return to "
        "the later speed."
    )
