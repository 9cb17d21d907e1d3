"""T/T0 of R2CC-AllReduce over K, its number of pipeline chunks, compared with the published formula."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import stats
from reports.figures import style
from reports.metrics import METRICS

SOURCES = {
    "measured": ("#0072B2", "o"), "simulated": ("#E69F00", "s"), "published": ("#333333", "X"),
}  # fmt: skip


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with pipeline, slowdown, ranks, nics (`reports.measures.trial_frame`, one case), and `source`
    (measured, simulated, published) if not all are measured. The formula has one line for each cluster."""
    points = known(frame)
    with style.applied():
        figure = style.sheet(5.6, 3.2)
        ax = figure.subplots()
        clusters = points[["ranks", "nics"]].drop_duplicates().astype(int)
        for ranks, nics in clusters.itertuples(index=False):
            own = points[(points["ranks"] == ranks) & (points["nics"] == nics)]
            xs = np.geomspace(own["pipeline"].min(), own["pipeline"].max(), 60)
            ys = [predicted_ratio(ranks, 1 / nics, k) for k in xs]
            ax.plot(xs, ys, color=style.LINE, linestyle=(0, (5, 3)), linewidth=1)
            ax.annotate(
                f"formula, n = {ranks}, X = 1/{nics}", (xs[-1], ys[-1]), xytext=(6, 0),
                textcoords="offset points", va="center", fontsize=7.5, color=style.LINE, annotation_clip=False,
            )  # fmt: skip
        for source, (color, marker) in SOURCES.items():
            middles = estimates(points[points["source"] == source])
            for k, found in middles:
                ax.vlines(k, found.low, found.high, color=color, linewidth=1.2)
            if middles:
                ax.plot(
                    [k for k, _ in middles], [found.median for _, found in middles], marker, color=color,
                    markersize=6.5, markeredgecolor="white", linestyle="none", label=source,
                )  # fmt: skip
        ks = sorted({int(k) for k in points["pipeline"]})
        ax.set_xscale("log", base=2)
        ax.set_xticks(ks, [str(k) for k in ks])
        ax.minorticks_off()
        ax.set_xlabel("K (pipeline chunks of stage 2)")
        ax.set_ylabel("T/T0")
        figure.legend(loc="outside upper left", ncols=3)
    return figure


def estimates(points: pd.DataFrame) -> list[tuple[float, stats.Estimate]]:
    """T/T0 by K and number of ranks, as in the tables."""
    told = []
    for (_, k), part in points.groupby(["ranks", "pipeline"]):
        found = stats.estimate(part["slowdown"], int(_not_known(part).sum()))
        told += [(float(str(k)), found)] if found.n else []
    return told


def known(frame: pd.DataFrame) -> pd.DataFrame:
    """The data of the figure: the rows that have a K and a T/T0, or one that is not known, each with its source."""
    points = frame if "source" in frame else frame.assign(source="measured")
    return points[points["pipeline"].notna() & (points["slowdown"].notna() | _not_known(points))]


def _not_known(points: pd.DataFrame) -> "pd.Series[bool]":
    """The trials whose T/T0 is not known; of published or simulated data alone, none."""
    if "disturbed_slowdown" in points:
        return METRICS["slowdown"].not_known(points)
    return pd.Series(False, points.index)


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure, with the number of repeats."""
    points = known(frame)
    measured = points[(points["source"] == "measured") & points["slowdown"].notna()]
    counts = measured.groupby("pipeline").size()
    repeats = f" {style.count_text(counts, 'repeat')} per measured point." if len(counts) else ""
    return (
        "T/T0 after the loss of a NIC over K: operations after the change to R2CC-AllReduce against those before "
        f"the fault, beside the published formula for the same n and X; {style.INTERVAL_NOTE}.{repeats}"
    )
