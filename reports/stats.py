"""Statistics over rows: pure functions of frames and arrays. Every result says over how many repeats it is.

Repeats are trials of the same cell (scenario, size, system); a trial counts as the median over its
iterations, a cell as the median over its trials, and an interval is a seeded percentile bootstrap over them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]

CELL = ["scenario", "size_bytes", "system"]
TRIAL = ["run", *CELL, "trial_id", "repeat"]
RESAMPLES = 2000
MIN_PAIRS = 3
"""Below this many pairs no difference is claimed, whatever they are."""


@dataclass(frozen=True)
class Estimate:
    """A median over `n` repeats with its 95 % interval; all NaN for none, and no interval for one."""

    median: float
    low: float
    high: float
    n: int

    @property
    def known(self) -> bool:
        """There was something to take a median of."""
        return self.n > 0


@dataclass(frozen=True)
class Difference:
    """The median of `first - second` over pairs from the same run, size and repeat."""

    scenario: str
    size_bytes: int
    first: str
    second: str
    estimate: Estimate

    @property
    def shown(self) -> bool:
        """Enough pairs, and an interval without 0; otherwise no difference is shown."""
        e = self.estimate
        return e.n >= MIN_PAIRS and not e.low <= 0.0 <= e.high


def estimate(values: Sequence[float] | Values, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """Median and 95 % percentile bootstrap interval of the finite values; the same seed, the same result."""
    taken = np.asarray(values, dtype=np.float64)
    taken = taken[np.isfinite(taken)]
    if len(taken) == 0:
        return Estimate(math.nan, math.nan, math.nan, 0)
    if len(taken) == 1:
        return Estimate(float(taken[0]), math.nan, math.nan, 1)
    drawn = np.random.default_rng(seed).choice(taken, (resamples, len(taken)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return Estimate(float(np.median(taken)), float(low), float(high), len(taken))


def percentile(values: Sequence[float] | Values, q: float) -> float:
    """The `q`-th percentile (0 to 100) of the finite values; NaN for none."""
    taken = np.asarray(values, dtype=np.float64)
    taken = taken[np.isfinite(taken)]
    return float(np.percentile(taken, q)) if len(taken) else math.nan


def per_trial(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per trial: status columns, median time and bandwidth by phase, and what follows from them.

    Columns beside `TRIAL`: status, expected, before_ms, hit_ms, after_ms (medians; NaN where the phase is
    empty), before_gbs, hit_gbs, after_gbs (bus bandwidth), slowdown (T/T0), hit_cost_ms, wrong,
    checked (iterations whose elements were compared), error_ms (from the fault to the error).
    """
    if frame.empty:
        return pd.DataFrame(columns=[*TRIAL, "status", "expected", *_NUMBERS])
    whole = frame.groupby(TRIAL, sort=False, observed=True)
    trials = whole[["status", "expected", "error_after_fault_ns"]].first()
    trials["wrong"] = whole["wrong"].sum().astype("float64")
    trials["checked"] = whole["wrong"].count().astype("float64")
    trials["error_ms"] = trials.pop("error_after_fault_ns").astype("float64") / 1e6
    timed = frame[frame["phase"].isin(PHASES)].copy()
    timed["ms"] = timed["duration_ns"].astype("float64") / 1e6
    timed["gbs"] = timed["busbw_gbs"].astype("float64")
    medians = timed.groupby([*TRIAL, "phase"], observed=True)[["ms", "gbs"]].median().unstack("phase")
    for unit in ("ms", "gbs"):
        for phase in PHASES:
            column = medians.get((unit, phase), pd.Series(dtype="float64"))
            trials[f"{phase}_{unit}"] = column.reindex(trials.index).astype("float64")
    trials["slowdown"] = trials["after_ms"] / trials["before_ms"]
    trials["hit_cost_ms"] = _hit_cost_ms(timed, trials)
    return trials.reset_index()


PHASES = ("before", "hit", "after")
_NUMBERS = (
    "wrong", "checked", "error_ms", "before_ms", "hit_ms", "after_ms",
    "before_gbs", "hit_gbs", "after_gbs", "slowdown", "hit_cost_ms",
)  # fmt: skip


def _hit_cost_ms(timed: pd.DataFrame, trials: pd.DataFrame) -> pd.Series:
    """What the iterations that were hit took more than as many after them would have, in ms."""
    hit = timed[timed["phase"] == "hit"].groupby(TRIAL, observed=True)["ms"].agg(["sum", "count"])
    hit = hit.reindex(trials.index)
    return hit["sum"] - hit["count"] * trials["after_ms"]


def by_cell(trials: pd.DataFrame, column: str, seed: int = 0) -> dict[tuple[str, int, str], Estimate]:
    """The estimate of one column of `per_trial` for every (scenario, size, system), in order of appearance."""
    return {
        (str(scenario), int(str(size)), str(system)): estimate(group.to_numpy(np.float64), seed)
        for (scenario, size, system), group in trials.groupby(CELL, sort=False, observed=True)[column]
    }


def nic_share(gbs: float, rate_bit_s: float, nics: int) -> float:
    """Bus bandwidth (GB/s) as a share of what `nics` NICs carry in one direction at full rate."""
    return gbs * 1e9 * 8 / (rate_bit_s * nics)


def paired(trials: pd.DataFrame, column: str, first: str, second: str) -> list[Difference]:
    """`first - second` of one column for every scenario and size, pairing trials of one run and repeat."""
    keys = ["run", "scenario", "size_bytes", "repeat"]
    sides = [trials[trials["system"] == name][[*keys, column]] for name in (first, second)]
    both = sides[0].merge(sides[1], on=keys, suffixes=("_first", "_second"))
    both["difference"] = both[f"{column}_first"] - both[f"{column}_second"]
    return [
        Difference(str(scenario), int(str(size)), first, second, estimate(group.to_numpy(np.float64)))
        for (scenario, size), group in both.groupby(["scenario", "size_bytes"], sort=False)["difference"]
    ]


def throughput(samples: pd.DataFrame, bin_ms: float) -> pd.DataFrame:
    """Counter samples as rates: columns host, nic, t_ns (middle of a bin), tx_bit_s, rx_bit_s.

    A counter is interpolated to the edges of bins of `bin_ms` that all NICs share, so that late samples do
    not show as spikes.
    """
    if samples.empty:
        return pd.DataFrame(columns=["host", "nic", "t_ns", "tx_bit_s", "rx_bit_s"])
    step = bin_ms * 1e6
    start, end = int(samples["t_ns"].min()), int(samples["t_ns"].max())
    edges = np.arange(0, end - start + step, step)
    parts = [_rates(group, start, edges, step) for _, group in samples.groupby(["host", "nic"])]
    return pd.concat(parts, ignore_index=True)


def _rates(group: pd.DataFrame, start: int, edges: Values, step: float) -> pd.DataFrame:
    group = group.sort_values("t_ns")
    at = (group["t_ns"] - start).to_numpy(np.float64)
    rates = {
        f"{way}_bit_s": np.diff(np.interp(edges, at, group[f"{way}_bytes"].to_numpy(np.float64))) * 8e9 / step
        for way in ("tx", "rx")
    }
    middle = start + ((edges[:-1] + edges[1:]) / 2).astype(np.int64)
    return pd.DataFrame({"host": group["host"].iloc[0], "nic": group["nic"].iloc[0], "t_ns": middle, **rates})
