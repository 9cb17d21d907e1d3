"""How far each algorithm is above the lower bound, over the number of hosts p and the straggler's bandwidth x."""

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from reports.figures import style
from reports.trial import SIMULATED


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with algorithm, hosts, remaining (x, 0 to 1) and gap (time over bound, minus 1)."""
    algorithms = list(dict.fromkeys(frame["algorithm"]))
    top = max(5.0, 100 * float(frame["gap"].quantile(0.95)))
    with style.applied():
        figure = style.sheet(1.9 * len(algorithms) + 0.9, 0.42 * frame["hosts"].nunique() + 1.5)
        axes = figure.subplots(1, len(algorithms), sharey=True, squeeze=False)[0]
        for ax, algorithm in zip(axes, algorithms, strict=True):
            table = cells(frame, algorithm)
            sns.heatmap(
                table, ax=ax, vmin=0, vmax=top, cmap="cividis_r", annot=True, fmt=".0f", annot_kws={"size": 7.5},
                cbar=ax is axes[-1], cbar_kws={"label": "above the bound (%)"}, linewidths=0.6, linecolor="white",
            )  # fmt: skip
            ax.set_title(style.plain(algorithm, 24))
            ax.set_xlabel("x")
            ax.set_ylabel("hosts p" if ax is axes[0] else "")
            ax.tick_params(axis="both", length=0, rotation=0)
            ax.tick_params(axis="x", labelsize=7.5)
    return figure


def cells_of(trials: pd.DataFrame) -> pd.DataFrame:
    """The data of the figure, from `trials` (`reports.measures.trial_frame`): the simulated ones, one system per
    algorithm."""
    own = trials[trials["gap"].notna() & trials["remaining"].notna() & trials["hosts"].notna()]
    named = own["system"].str.replace(SIMULATED, "", regex=False)
    return own[["hosts", "remaining", "gap", "source"]].astype({"hosts": int}).assign(algorithm=named)


def cells(frame: pd.DataFrame, algorithm: str) -> pd.DataFrame:
    """The values of one algorithm: percent above the bound, p down and x across."""
    own = frame[frame["algorithm"] == algorithm]
    return 100 * own.pivot_table(index="hosts", columns="remaining", values="gap")


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure."""
    source = " and ".join(dict.fromkeys(map(str, frame["source"]))) if "source" in frame else "simulated"
    return (
        "AllReduce with one slow host that keeps the share x of its bandwidth: time of each algorithm's schedule above "
        f"the lower bound for any schedule, in percent ({source}; fair-shared ports; deterministic, so one run per "
        "cell suffices). 0 is optimal."
    )
