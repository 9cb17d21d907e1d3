"""The authors' CloudLab tests: three servers with three 10 Gbit/s NICs and two GPUs each, one NIC lost.

Numbers are from the public logs that come with R2CCL (arXiv 2512.25059); tests are numbered as there.
"""

from collections.abc import Mapping

import pandas as pd

from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import stats
from reports.model import balance
from reports.reproduce import training
from reports.reproduce.entry import Entry, Fact, Scale, Trials
from reports.stats import Estimate

SCALE = Scale(hosts=3, nics=3, ranks=6, nic_bit_s=10e9, size_bytes=4 << 30)
SETUP = "3 servers r7525, 2 GPUs and 3 NICs of 10 Gbit/s each, 6 ranks; one NIC of one server is cut (X = 1/3)"
K = 4
LOGS = "R2CCL's CloudLab logs, test {}"
K_SWEEP = {1: 1.599, 2: 1.458, 4: 1.376, 8: 1.341, 16: 1.329}

REPEATS = "sweep.repeats=3"


def of(frame: pd.DataFrame, system: str, column: str, factor: float = 1.0) -> Estimate:
    """Median and interval of one measure of one system."""
    own = frame[frame["system"] == system]
    return stats.estimate(pd.to_numeric(own[column]) * factor)


def ring_s(scale: Scale) -> float:
    """Time of the healthy ring AllReduce: 2 (n-1)/n of the vector through the NICs of each host."""
    return 2 * (scale.ranks - 1) / scale.ranks * scale.size_bytes / scale.host_bytes_s


def _facts(test: str, *rows: tuple[str, str, str, float, bool]) -> tuple[Fact, ...]:
    return tuple(Fact(key, what, unit, value, LOGS.format(test), free=free) for key, what, unit, value, free in rows)


def _times(system: str, ratio_of: str) -> Trials:
    def measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
        return {
            "healthy": of(frame, system, "before_ms", 1e-3),
            "hit": of(frame, system, "hit_ms", 1e-3),
            "first": of(frame, system, "switch_ms", 1e-3),
            "after": of(frame, system, "after_ms", 1e-3),
            ratio_of: of(frame, system, "slowdown"),
            "wrong": of(frame, system, "wrong"),
        }

    return Trials("cloudlab_r7525", measured, (f"system={system}", "size=64MiB"), (REPEATS,))


def _balance_model(scale: Scale) -> Mapping[str, float]:
    healthy_s, ratio = ring_s(scale), balance(scale.lost)
    return {"healthy": healthy_s, "after": healthy_s * ratio, "ratio": ratio, "wrong": 0.0}


def _r2cc_model(scale: Scale) -> Mapping[str, float]:
    healthy_s, ratio = ring_s(scale), predicted_ratio(scale.ranks, scale.lost, K)
    return {"healthy": healthy_s, "after": healthy_s * ratio, "ratio": ratio}


def _bytes_model(scale: Scale) -> Mapping[str, float]:
    """Bytes that a host receives, in vector sizes; R2CC: both rings, and the degraded hosts' values to and from the
    helper."""
    n, healthy, lost = scale.ranks, scale.ranks - scale.ranks // scale.hosts, scale.lost
    ring = 2 * (n - 1) / n
    degraded = ring * (1 - lost) + lost
    return {
        "healthy": ring,
        "balance": ring,
        "r2cc_degraded": degraded,
        "r2cc_other": degraded + 2 * (healthy - 1) / healthy * lost,
    }


def _bytes_measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    """The same by the NICs' counters."""

    def received(system: str, phase: str, degraded: bool | None) -> Estimate:
        own = frame[(frame["system"] == system) & frame["received_bytes"].notna()]
        return stats.estimate(
            item.received_bytes / size_bytes
            for size_bytes, items in zip(own["size_bytes"], own["received_bytes"], strict=True)
            for item in items
            if item.source == "counters" and item.phase == phase
            if degraded is None or (item.host == DEGRADED) == degraded
        )

    return {
        "healthy": received("balance", "before", None),
        "balance": received("balance", "after", None),
        "r2cc_degraded": received("r2cc_all_reduce", "after", True),
        "r2cc_other": received("r2cc_all_reduce", "after", False),
    }


DEGRADED = "host1"
"""The host whose NIC the experiment file takes down."""


def _bandwidth_model(scale: Scale) -> Mapping[str, float]:
    limit = scale.host_bytes_s / 1e9
    r2cc = limit / predicted_ratio(scale.ranks, scale.lost, K)
    return {"healthy": limit, "balance": limit / balance(scale.lost), "r2cc": r2cc}


def _bandwidth_measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    return {
        "healthy": of(frame, "balance", "before_gbs"),
        "balance": of(frame, "balance", "after_gbs"),
        "r2cc": of(frame, "r2cc_all_reduce", "after_gbs"),
    }


def _k_model(scale: Scale) -> Mapping[str, float]:
    return {f"k{k}": predicted_ratio(scale.ranks, scale.lost, k) for k in K_SWEEP}


def _k_measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    return {f"k{k}": of(frame, f"k{k}", "slowdown") for k in K_SWEEP}


def published_k_sweep() -> pd.DataFrame:
    """The published points for the figure over K."""
    common = {"ranks": SCALE.ranks, "nics": SCALE.nics, "source": "published"}
    return pd.DataFrame([{"pipeline": k, "slowdown": ratio} | common for k, ratio in K_SWEEP.items()])


_BOTH = ("system=balance", "system=r2cc_all_reduce", "size=64MiB")

ENTRIES = (
    Entry(
        "cloudlab-01",
        "A NIC is cut during an AllReduce, then Balance",
        SETUP,
        _facts(
            "01",
            ("healthy", "AllReduce, healthy", "s", 2.04, False),
            ("hit", "AllReduce that is hit", "s", 3.54, False),
            ("after", "AllReduce after the loss", "s", 3.04, False),
            ("ratio", "T/T0 after the loss", "", 1.49, True),
            ("wrong", "wrong elements", "", 0.0, True),
        ),
        SCALE,
        _balance_model,
        _times("balance", "ratio"),
    ),
    Entry(
        "cloudlab-02",
        "A NIC is cut during an AllReduce, then R2CC-AllReduce",
        SETUP,
        _facts(
            "02",
            ("healthy", "AllReduce, healthy", "s", 2.03, False),
            ("hit", "AllReduce that is hit", "s", 2.97, False),
            ("first", "first one on the new schedule", "s", 3.16, False),
            ("after", "those after it", "s", 2.80, False),
            ("ratio", "T/T0 after the change", "", 1.38, False),
        ),
        SCALE,
        _r2cc_model,
        _times("r2cc_all_reduce", "ratio"),
    ),
    Entry(
        "cloudlab-bytes",
        "Bytes that each host receives per AllReduce",
        SETUP,
        _facts(
            "01 and 02",
            ("healthy", "healthy, each host", "vectors", 7032 / 4096, False),
            ("balance", "Balance, each host", "vectors", 7078 / 4096, False),
            ("r2cc_degraded", "R2CC-AllReduce, the degraded host", "vectors", 6150 / 4096, False),
            ("r2cc_other", "R2CC-AllReduce, each other host", "vectors", (8230 + 8218) / 2 / 4096, False),
        ),
        SCALE,
        _bytes_model,
        Trials("cloudlab_r7525", _bytes_measured, _BOTH, (REPEATS,)),
    ),
    Entry(
        "cloudlab-03",
        "Bus bandwidth by nccl-tests",
        SETUP,
        _facts(
            "03",
            ("healthy", "bus bandwidth, healthy", "GB/s", 3.53, False),
            ("balance", "bus bandwidth, Balance", "GB/s", 2.35, False),
            ("r2cc", "bus bandwidth, R2CC-AllReduce", "GB/s", 2.56, False),
        ),
        SCALE,
        _bandwidth_model,
        Trials("cloudlab_r7525", _bandwidth_measured, _BOTH, (REPEATS,)),
    ),
    Entry(
        "cloudlab-07",
        "R2CC-AllReduce over its number of pipeline chunks K",
        SETUP,
        _facts("07", *((f"k{k}", f"T/T0, K = {k}", "", ratio, False) for k, ratio in K_SWEEP.items())),
        SCALE,
        _k_model,
        Trials("k_sweep", _k_measured, (), ("workload.iterations=12",)),
        draw="k_sweep",
        figure=published_k_sweep,
    ),
    Entry(
        "cloudlab-08",
        "A CUDA graph that was captured before the failure",
        SETUP,
        _facts(
            "08",
            ("replayed", "replayed as it was captured", "s", 4.07, False),
            ("balance", "captured again, Balance", "s", 3.04, False),
            ("r2cc", "captured again, R2CC-AllReduce", "s", 2.79, False),
        ),
        SCALE,
        lambda scale: {"balance": _balance_model(scale)["after"], "r2cc": _r2cc_model(scale)["after"]},
        missing="the sweep has no workload that captures CUDA graphs; it needs GPUs under NCCL",
    ),
    Entry(
        "cloudlab-09",
        "GPT-2 124M, data-parallel, 1000 updates, a NIC cut at update 400",
        SETUP,
        _facts(
            "09",
            ("balance", "perplexity against no failure, Balance", "%", 0.006, True),
            ("r2cc", "perplexity against no failure, R2CC-AllReduce", "%", 0.023, True),
        ),
        SCALE,
        trials=training.PERPLEXITY,
    ),
)
