"""The headline: what a run should reach, what it reached, and whether that is enough. Pure.

The targets are those of the project: healthy bandwidth near the NICs' limit, T/T0 near the model's, a short
stop, a prompt error where stopping is right, and no wrong element. What a run did not measure has no line.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from r2ccl_core.units import format_size
from reports.cells import Cell, largest
from reports.wording import number

HEALTHY_SHARE = 0.90
"""Of the sum of the NICs' rates; TCP at MTU 1500 can carry 95.6 %."""
MODEL_MARGIN = {1: 1.10, 2: 1.55 / 1.5}
"""By mode: how far above its model T/T0 may lie. Balance: 1.55 where the model says 1.5."""
HIT_COST_MS = 100.0
ERROR_S = 5.0


@dataclass(frozen=True)
class Target:
    """One line of the headline table."""

    what: str
    wanted: str
    measured: str
    met: bool
    detail: str = ""


def targets(frame: pd.DataFrame, found: Sequence[Cell]) -> list[Target]:
    """Every target that `frame` (`reports.measures.trial_frame`) can be held against."""
    makers: tuple[Callable[[pd.DataFrame, Sequence[Cell]], Iterator[Target]], ...]
    makers = (_healthy, _slowdown, _hit_cost, _error, _wrong)
    return [target for make in makers for target in make(frame, found)]


def _healthy(frame: pd.DataFrame, found: Sequence[Cell]) -> Iterator[Target]:
    for case in frame["case"].unique():
        shares = {c.system: c.share_of_limit for c in largest(found, case) if c.share_of_limit == c.share_of_limit}
        if not shares:
            continue
        lowest = min(shares.values())
        size = format_size(largest(found, case)[0].size_bytes)
        yield Target(
            f"healthy bus bandwidth at {size}, share of the NICs' limit{_where(frame, case)}",
            f"at least {HEALTHY_SHARE:.0%}".replace("%", " %"),
            f"{100 * lowest:.1f} %",
            lowest >= HEALTHY_SHARE,
            ", ".join(f"{system} {100 * share:.1f} %" for system, share in shares.items()),
        )


def _slowdown(frame: pd.DataFrame, found: Sequence[Cell]) -> Iterator[Target]:
    for case in frame["case"].unique():
        for cell in largest(found, case):
            took = cell.measures["slowdown"]
            if cell.model is None or took.n == 0:
                continue
            most = cell.model * MODEL_MARGIN.get(cell.mode, 1.1)
            yield Target(
                f"T/T0 of {cell.system} at {format_size(cell.size_bytes)}{_where(frame, case)}",
                f"at most {number(most)} (model {number(cell.model)})",
                number(took.median),
                took.median <= most,
                f"interval {number(took.low)} to {number(took.high)} over {took.n} repeats"
                if took.n > 1
                else "1 trial",
            )


def _hit_cost(frame: pd.DataFrame, found: Sequence[Cell]) -> Iterator[Target]:
    costs = frame.dropna(subset=["hit_cost_ms"])
    if costs.empty:
        return
    worst = costs.iloc[int(costs["hit_cost_ms"].to_numpy().argmax())]
    middle = [f"{s} {number(g.median())} ms" for s, g in costs.groupby("system", sort=False)["hit_cost_ms"]]
    yield Target(
        "the hit iteration, more than one after it, worst trial",
        f"at most {HIT_COST_MS:g} ms",
        f"{number(worst['hit_cost_ms'])} ms",
        bool(worst["hit_cost_ms"] <= HIT_COST_MS),
        f"worst: {worst['trial_id']}; medians: {', '.join(middle)}",
    )


def _error(frame: pd.DataFrame, found: Sequence[Cell]) -> Iterator[Target]:
    stopped = frame[(frame["status"] == "failed") & frame["expected"]]
    for system, trials in stopped.groupby("system", sort=False):
        times_s = trials["error_after_ms"].dropna() / 1e3
        if len(times_s):
            yield Target(
                f"{system} stops with an error after the fault, latest trial",
                f"within {ERROR_S:g} s",
                f"{number(times_s.max())} s",
                bool(times_s.max() <= ERROR_S),
                f"median {number(times_s.median())} s over {len(times_s)} trials",
            )


def _wrong(frame: pd.DataFrame, found: Sequence[Cell]) -> Iterator[Target]:
    wrong, checked = int(frame["wrong"].sum()), int(frame["checked"].sum())
    if checked:
        yield Target("wrong elements", "0", str(wrong), wrong == 0, f"{checked} iterations compared in full")


def _where(frame: pd.DataFrame, case: str) -> str:
    return f" ({case})" if frame["case"].nunique() > 1 else ""
