"""Training under a lost NIC at our own scale: how runs of ``training_overhead`` and ``training`` answer the published
values. Pure."""

from collections.abc import Mapping
from math import exp

import pandas as pd

from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import stats
from reports.metrics.training import references
from reports.model import HOT_REPAIR, balance
from reports.reproduce import overhead
from reports.reproduce.entry import Scale, Trials
from reports.stats import Estimate

SHARE = 0.05
"""The share of communication in a step of ``training_overhead``, none of it hidden; it follows from its rates and
sizes."""
K = 4

SYSTEMS = {"repair": "hot_repair", "balance": "balance", "r2cc": "r2cc"}


def overheads_here(scale: Scale) -> Mapping[str, float]:
    """The cost of a lost NIC for one of our steps in percent, by the same formulas."""
    lost, ranks = scale.lost, scale.ranks
    ratios = {"repair": HOT_REPAIR, "balance": balance(lost), "r2cc": predicted_ratio(ranks, lost, K)}
    return {key: 100 * overhead.overhead(SHARE, ratio) for key, ratio in ratios.items()}


def overheads_measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    """A step after the loss compared with one before it, in percent more."""
    measured = frame[frame["source"] == "measured"]
    return {
        key: stats.estimate(100 * (pd.to_numeric(measured[measured["system"] == system]["slowdown"]) - 1))
        for key, system in SYSTEMS.items()
    }


def perplexities_measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    """Perplexity of the last step under a failure, in percent more than in the healthy trials of the same system."""
    known = references(frame[frame["workload"] == "training"])
    known = known[known["faulted"] & (known["status"] == "ok")]
    found = {}
    for key in ("balance", "r2cc"):
        own = known[known["system"] == SYSTEMS[key]]
        pairs = zip(own["losses"], own["losses_healthy"], strict=True)
        found[key] = stats.estimate(100 * (exp(a[-1] - b[-1]) - 1) for a, b in pairs if len(a) == len(b) > 0)
    return found


MEASURED = Trials("training_overhead", overheads_measured, tuple(f"system={name}" for name in SYSTEMS.values()))
IN_STAGES = Trials("training_stages", overheads_measured)
PERPLEXITY = Trials(
    "training",
    perplexities_measured,
    ("system=balance", "system=r2cc", "fault=dies", "fault=healthy_before"),
    ("system[3].env={R2CC_AR_MIN_BYTES='1 MiB'}",),
)
"""`r2cc` with buckets that it reduces: by itself it leaves those below 16 MiB to Balance."""
