"""GPU hours lost per year to network failures, over cluster size and failure rate, by system."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from reports.figures import style


def draw(frame: pd.DataFrame) -> Figure:
    """`frame`: rows with gpus, rates (a name), system and gpu_hours (lost per year). One panel for each kind of
    rates."""
    rates, systems = list(dict.fromkeys(frame["rates"])), systems_of(frame)
    with style.applied():
        figure = style.sheet(2.3 * len(rates) + 0.8, 3.2)
        axes = figure.subplots(1, len(rates), sharey=True, squeeze=False)[0]
        for ax, name in zip(axes, rates, strict=True):
            for system, (color, marker, line, _) in style.looks(systems).items():
                own = frame[(frame["rates"] == name) & (frame["system"] == system)].sort_values("gpus")
                shown = own[own["gpu_hours"] > 0]  # a logarithmic axis cannot show zero
                ax.plot(
                    shown["gpus"], shown["gpu_hours"], color=color, marker=marker, linestyle=line, linewidth=1.3,
                    markersize=5, markeredgecolor="white", markeredgewidth=0.5,
                )  # fmt: skip
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xticks(sorted(frame["gpus"].unique()))
            ax.xaxis.set_minor_locator(NullLocator())
            for axis in (ax.xaxis, ax.yaxis):
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            ax.set_xlabel("GPUs")
            ax.set_title(style.plain(name, 24))
            ax.tick_params(axis="x", labelsize=7)
        axes[0].set_ylabel("GPU hours lost per year")
        style.legend(figure, systems, systems)
    return figure


def systems_of(frame: pd.DataFrame) -> list[str]:
    """The systems in the figure, in the order of the frame."""
    return list(dict.fromkeys(map(str, frame["system"])))


def caption(frame: pd.DataFrame) -> str:
    """Describes the figure."""
    return (
        "GPU hours per year that failures of NICs, links and switches cost a training job, by what the job does "
        f"about them: means over {int(frame['trials'].max())} simulated histories per point. Panels are failure rates "
        "by their source; each system is compared with itself without a failure, and points that lost nothing are left "
        "out. Simulated, not measured."
    )
