"""Serving with a NIC lost: published values, a simulated replica of a 70B model, and our own small engine.

At the published scale, a cache takes about a millisecond at 400 GB/s, and computing its prompt takes a hundred. On a
local cluster with slow links the transfer is most of the time to the first token, so the same loss costs more there.
The model of that scale uses our own pace of computation.

Requests queue, so two requests of one trial differ by more than the loss costs. Each is therefore compared with itself,
in a replica or in trials without the loss, in which it arrives at the same time: the median of these increases.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import pandas as pd

from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.replica import Served, poisson, serve
from r2ccl_core.jobs.serving import ENGINES, Engine
from r2ccl_core.model.topology import Topology
from reports import stats
from reports.reproduce.entry import Entry, Fact, Scale, Trials
from reports.stats import Estimate

LIMIT = "R2CCL (arXiv 2512.25059): less than 3 %"
THIRD = "R2CCL (arXiv 2512.25059)"
CHAT = (1155, 211)
"""Mean tokens of a prompt and of an answer in Azure's conversation traces of 2023."""
OWN_PREFILL_MS, OWN_STEP_MS = 100.0, 15.0
OWN_SEND_MS = 65.0
"""What a transfer takes beyond the rate of its rails, in healthy trials on a machine with two busy processors."""
OWN = Engine("gpt-1m", OWN_PREFILL_MS + OWN_SEND_MS, 0.0, OWN_STEP_MS, 0.0, 4608, shortest=1, longest=1024)
"""Our small engine, whose prompts and tokens take the time of an accelerator (``serving_overhead.toml``)."""
OWN_REQUEST = (384, 16)
OWN_ARRIVALS = 1.0
OWN_BURST = 2 * (65536 + 1024)
"""Bytes that a rail of a local cluster lets pass at once (`TokenBucket`): of a cache of 1.8 MB, half."""
TESTBED = Scale(hosts=2, nics=8, ranks=16, nic_bit_s=400e9, size_bytes=256 << 20)
SLOW_BIT_S = 1e9
"""A cluster with slower NICs is one of ours."""
REQUESTS = 2000


def _replica(scale: Scale, lost: str, habit: str = "balance") -> list[Served]:
    """Requests in a replica whose decode host has lost a NIC ``from_the_start`` or ``half_way``, or ``never``."""
    healthy = Topology.uniform(2, scale.nics, scale.nic_bit_s / 8)
    before, after = Network(healthy, "balance"), Network(healthy.lost(1, 0), "balance")
    small = scale.nic_bit_s < SLOW_BIT_S
    engine, a_second, burst = (OWN, OWN_ARRIVALS, OWN_BURST) if small else (ENGINES["llama-70b-h100x8"], 4.0, 0)
    asked = poisson(REQUESTS, a_second, *CHAT)
    if small:
        asked = [replace(one, prompt=OWN_REQUEST[0], generated=OWN_REQUEST[1]) for one in asked]
    if lost != "half_way":
        network = after if lost == "from_the_start" else before
        return serve(engine, network, asked, habit=habit, nic_burst=burst)
    lost_at_s = asked[REQUESTS // 2].at_s
    return serve(engine, before, asked, after=after, lost_at_s=lost_at_s, habit=habit, nic_burst=burst)


def _mean_s(served: list[Served]) -> float:
    """Mean time from arrival to the last token."""
    return stats.mean(one.last_s - one.asked.at_s for one in served)


def _pairs(healthy: Sequence[float], degraded: Sequence[float]) -> list[tuple[float, float]]:
    """The times of each request; one that generates a single token has none after its first."""
    return [(usual, more) for usual, more in zip(healthy, degraded, strict=True) if usual > 0]


@lru_cache(maxsize=8)
def overheads(scale: Scale) -> Mapping[str, float]:
    """Percent more time with a NIC lost: the median increase of a request, and that of the 99th percentile; and
    DejaVu's cost over ours."""
    before, after = _replica(scale, "never"), _replica(scale, "from_the_start")
    found = {}
    for name in ("ttft", "tpot"):
        healthy, degraded = ([getattr(one, f"{name}_s") for one in served] for served in (before, after))
        found[f"{name}_p50"] = 100 * stats.median(more / usual - 1 for usual, more in _pairs(healthy, degraded))
        found[f"{name}_p99"] = 100 * (stats.percentile(degraded, 99) / stats.percentile(healthy, 99) - 1)
    costs = [_mean_s(_replica(scale, "half_way", habit)) - _mean_s(before) for habit in ("dejavu", "balance")]
    return found | {"dejavu": costs[0] / costs[1]}


def _measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    own = frame[(frame["system"] == "balance") & frame["faulted"]]
    return {f"{name}_p50": stats.estimate(100 * own[f"after_{name}_over"]) for name in ("ttft", "tpot")}


def _fact(key: str, what: str) -> Fact:
    """Not free: at another scale a cache takes another share of the time to the first token."""
    return Fact(key, what, "%", 0.0, LIMIT, high=3.0)


ENTRY = Entry(
    "infer",
    "Serving, a NIC lost: overhead of the time to the first token and of the time for each one after it",
    "8 NICs per host; X = 1/8. Published: vLLM, a limit. Simulated: a replica of Llama-2-70B on 8 H100 per host, "
    "prefill and decode on two hosts, requests as in Azure's conversations, 4 per second",
    (
        _fact("ttft_p50", "time to first token, median of the same requests"),
        _fact("ttft_p99", "time to first token, 99 of 100"),
        _fact("tpot_p50", "time for each token, median of the same requests"),
        _fact("tpot_p99", "time for each token, 99 of 100"),
        Fact(
            "dejavu",
            "DejaVu's overhead over ours (its replication is a model)",
            "",
            47.0,
            THIRD,
            free=True,
            reason="what was counted is not published; here it is the time of all requests, half of which came "
            "after the loss",
        ),
    ),
    TESTBED,
    overheads,
    Trials("serving_overhead", _measured),
    draw="overhead",
)
"""Its figure is that of training and inference, whose data `applications` has."""
