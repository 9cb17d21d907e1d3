"""Simulated jobs (`r2ccl_core.jobs`) compared with published results, and two questions of our own.

Training rows are calibrated on the healthy row and on hot repair's, the Monte Carlo simulation on its first line, so
those rows cannot confirm the model. All other rows can; where they do not, the table shows it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import pandas as pd

from r2ccl_core.jobs import calibration, montecarlo
from r2ccl_core.jobs.failures import PRESETS, Rates
from r2ccl_core.jobs.goodput import Job, slowdown
from r2ccl_core.jobs.iteration import iteration
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import model_named
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.systems import SYSTEMS, Restart, system_named
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.algorithms import ALGORITHMS, AUTO, for_losses
from r2ccl_core.planning.planner import SWITCH_S, plan
from reports.reproduce.entry import Entry, Fact, Scale

NAMES = {
    "hot_repair": ALGORITHMS["hot_repair"].title,
    "balance": "Balance",
    **{alias: one.title for alias, one in for_losses().items()},
    AUTO: "planner's choice",
}
"""Systems of `r2ccl_core.jobs` under the names of the papers' figures; others keep their names."""

FOR_ANY_LOSS = ("adapcc", "hot_repair", "balance", "r2cc", AUTO)
"""Systems of the Monte Carlo simulation besides the schedules with guarantees; with many slow hosts, the others are
rings."""

FIRST_LINE = 0.015
"""mc-512: the published cost of one failure under Balance."""
PATTERNS = 1000

DAYS = 54
TRIALS = 20
SIZES = (64, 512, 1024, 4096)
"""Cluster sizes, in GPUs, of the goodput figure."""

SWITCH_HOSTS = 8
SWITCH_RATE_BYTES_S, SWITCH_ALPHA_S = 50e9, 5e-6


def training(name: str) -> Mapping[str, float]:
    """Overheads in percent of a published training experiment, with one NIC lost, and with two of different hosts."""
    row = next(row for row in calibration.ROWS if row.name == name)
    first = calibration.ROWS[0]
    wanted = None if "hot_repair" in row.one else first.healthy / first.one["hot_repair"] - 1
    found, healthy = calibration.calibrated(row, wanted), calibration.testbed(row.hosts)
    one, two = healthy.lost(0, 0), healthy.lost(0, 0).lost(1, 1)
    strategies = {"repair": "hot_repair", "balance": "balance", "r2cc": "r2cc"}
    shown = {key: 100 * found.overhead(one, strategy) for key, strategy in strategies.items()}
    left_out = row.layout.data / (row.layout.data - 1) - 1 if row.layout.data > 1 else float("nan")
    return {**shown, "two": 100 * found.overhead(two, "balance"), "adapcc": 100 * left_out}


@lru_cache(maxsize=1)
def job_512() -> Job:
    """GPT-3 2.7B (the published model is not stated), data-parallel over 64 hosts; overlap is fitted to the first
    line."""
    job = Job(model_named("gpt3-2.7b"), Layout(data=512, micro_batch=4), hosts=64)
    lost = [1] + [0] * 63
    healthy_s, degraded_s = (
        iteration(job.model, job.layout, Network(job.topology(one), "balance"), job.compute) for one in ([0] * 64, lost)
    )
    compute_s = healthy_s.compute_s
    shown = FIRST_LINE * compute_s / (degraded_s.data_s - healthy_s.data_s - FIRST_LINE * healthy_s.data_s)
    return replace(job, layout=replace(job.layout, overlap=1 - shown))


@lru_cache(maxsize=4)
def monte_carlo(failures: tuple[int, ...] = tuple(range(1, 11)), patterns: int = PATTERNS) -> pd.DataFrame:
    """Training on 512 GPUs by number of failures: every system that continues, and the two published end points."""
    sure = [alias for alias, one in for_losses().items() if one.guaranteed]
    systems = [one for one in SYSTEMS if one.name in (*FOR_ANY_LOSS, *sure)]
    rows = [
        ("training, 512 GPUs", NAMES.get(one.system, one.system), one.failures, one.spread.mean, one.spread.low,
         one.spread.high, "model", patterns // len(failures))
        for one in montecarlo.overheads(job_512(), failures, patterns=patterns, systems=systems)
    ]  # fmt: skip
    told = [("training, 512 GPUs", "published (R2CCL)", k, cost, cost, cost, "published", 1)
            for k, cost in ((1, FIRST_LINE), (10, 0.043))]  # fmt: skip
    columns = ["workload", "strategy", "failures", "overhead", "low", "high", "source", "draws"]
    return pd.DataFrame([*rows, *told], columns=columns)


def monte_carlo_ends(scale: Scale) -> Mapping[str, float]:
    """The two published lines, in percent."""
    del scale
    by = monte_carlo((1, 10), 200).set_index(["strategy", "failures"])["overhead"]
    return {"k1": 100 * float(by["Balance", 1]), "k10": 100 * float(by["Balance", 10])}


def job_1024() -> Job:
    """175B on 128 hosts: tensor 8, pipeline 8 in 4 interleaved stages, data 16, ZeRO-1; the degrees are not
    published."""
    cut = Layout(data=16, tensor=8, pipeline=8, interleave=4, micro_batches=96, zero=1)
    return Job(model_named("gpt3-175b"), cut, hosts=128)


def lost_by_adapcc(scale: Scale) -> Mapping[str, float]:
    """AdapCC's loss with one NIC gone (a whole replica of 64 GPUs), over Balance's loss."""
    del scale
    job, lost = job_1024(), [1] + [0] * 127
    adapcc, balance = (slowdown(job, system_named(name), lost) - 1 for name in ("adapcc", "balance"))
    return {"adapcc": adapcc / balance}


@lru_cache(maxsize=4)
def goodput(sizes: tuple[int, ...] = SIZES, names: tuple[str, ...] = tuple(PRESETS)) -> pd.DataFrame:
    """GPU hours lost per year to network failures, over cluster size and failure rate, by system."""
    rows = [row for gpus in sizes for name in names for row in _goodput_rows(_job_of(gpus), PRESETS[name])]
    return pd.DataFrame(rows, columns=["gpus", "rates", "system", "gpu_hours", "goodput", "low", "high", "trials"])


def _job_of(gpus: int) -> Job:
    """GPT-3 6.7B, data-parallel; checkpoints cost nothing here, since they are made regardless of the network."""
    layout = Layout(data=gpus, micro_batch=4, overlap=0.8)
    return Job(model_named("gpt3-6.7b"), layout, gpus // 8, restart=Restart(checkpoint_s=0.0))


def _goodput_rows(job: Job, rates: Rates) -> list[tuple[object, ...]]:
    systems = [one for one in SYSTEMS if one.name in ("fail-stop", *FOR_ANY_LOSS)]
    return [
        (job.gpus, rates.name, NAMES.get(one.system, one.system), 365.25 * sum(one.gpu_hours_a_day.values()),
         one.goodput.mean, one.goodput.low, one.goodput.high, TRIALS)
        for one in montecarlo.goodputs(job, rates, days=DAYS, trials=TRIALS, systems=systems)
    ]  # fmt: skip


def _network_time(scale: Scale) -> Mapping[str, float]:
    """Percent of time that fail-stop loses to the network at Llama 3's failure rates, and the planner's choice
    likewise."""
    own = goodput((scale.ranks,), ("llama3",)).set_index("system")["goodput"]
    return {"fail_stop": 100 * (1 - float(own["fail-stop"])), "auto": 100 * (1 - float(own["planner's choice"]))}


def when_to_switch() -> pd.DataFrame:
    """The planner's best schedule against the ring, over message size and loss, and how many operations repay a
    switch."""
    rows = []
    for x in (0.25, 0.5, 0.6, 0.75, 0.875, 0.95):
        topology = Topology.of_shares([x] + [1.0] * (SWITCH_HOSTS - 1), SWITCH_RATE_BYTES_S)
        for power in range(16, 34, 2):
            result = plan(topology, "all_reduce", 1 << power, SWITCH_ALPHA_S, operations=10**9)
            ring_s = next(one.seconds for one in result.candidates if one.name == "ring")
            saved_s = ring_s - result.chosen.seconds
            pays = SWITCH_S / saved_s if saved_s > 0 else float("inf")
            rows.append((SWITCH_HOSTS, x, 1 << power, result.chosen.name, saved_s / ring_s, pays))
    return pd.DataFrame(rows, columns=["hosts", "remaining", "size_bytes", "algorithm", "saved", "operations"])


def _least_sizes(scale: Scale) -> Mapping[str, float]:
    """The size in MiB from which a schedule for slow hosts saves 3 %. Trees do not count: they are for small
    messages."""
    del scale
    frame = when_to_switch()
    return {key: _from_on(frame[frame["remaining"] == x]) for key, x in (("half", 0.5), ("eighth", 0.875))}


def _from_on(rows: pd.DataFrame) -> float:
    least = float("inf")
    for _, row in rows.sort_values("size_bytes", ascending=False).iterrows():
        if row["saved"] < 0.03 or row["algorithm"] == "tree":
            break
        least = row["size_bytes"] / (1 << 20)
    return float(least)


_RULE = "a rule of thumb from an independent model, 8 hosts of 50 GB/s and 5 us a message"
_LLAMA = "derived from Llama 3's rates and a recovery of 68 minutes"

ENTRIES = (
    Entry(
        "goodput",
        "GPU hours lost per year to network failures, over cluster size and failure rate, by system",
        f"GPT-3 6.7B, data-parallel, {DAYS} days, {TRIALS} histories per point; checkpoints are not counted",
        (
            Fact(
                "fail_stop",
                "time of 1024 GPUs that fail-stop loses",
                "%",
                0.23,
                _LLAMA,
                free=True,
                reason="a loss costs 115 minutes here (10 until the watchdog, 15 to start again, 90 of work done "
                "twice), 68 there",
            ),
            Fact("auto", "the same with the planner's choice (at most)", "%", 0.0, _LLAMA, high=0.23, free=True),
        ),
        Scale(128, 8, 1024, 400e9, 256 << 20),
        _network_time,
        missing="weeks on a thousand GPUs are not available",
        draw="goodput",
        figure=goodput,
    ),
    Entry(
        "when-to-switch",
        "The message size and loss from which leaving the ring pays off, and after how many operations",
        f"{SWITCH_HOSTS} hosts, one slow; a switch costs a job {SWITCH_S * 1e3:g} ms",
        (
            Fact(
                "half",
                "least size at x = 0.5",
                "MiB",
                1.0,
                _RULE,
                free=True,
                reason="the rule knows one schedule for slow hosts; the planner has five, and leaves the ring for the "
                "first that saves 3 %",
            ),
            Fact("eighth", "least size at x = 0.875", "MiB", 100.0, _RULE, high=1024.0, free=True),
        ),
        Scale(SWITCH_HOSTS, 1, SWITCH_HOSTS, 400e9, 1 << 30),
        _least_sizes,
        missing="a prediction is not a measurement",
        draw="when_to_switch",
        figure=when_to_switch,
    ),
)
