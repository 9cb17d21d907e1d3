"""Training and inference under failed NICs, as R2CCL reports them (arXiv 2512.25059), and our model of them.

Our own measurements are of a small GPT on CPUs, one rank per host, and of a small engine that serves one.
"""

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports.model import HOT_REPAIR, balance
from reports.reproduce import jobs, overhead, serving, training
from reports.reproduce.entry import Entry, Fact, Model, Scale

README = "R2CCL's README"
THIRD = "a third party's summary of R2CCL"

DP_NONE, DP_REPAIR, DP_BALANCE, DP_R2CC, DP_TWO, DP_ADAPCC = 314618, 300151, 310516, 312394, 310756, 289565
"""Tokens per second of GPT-3 2.7B, DP = 16: without a failure, and with one NIC lost, by system."""
PP_NONE, PP_REPAIR, PP_BALANCE, PP_TWO = 8340, 8233, 8309, 8257
SHARE_DP = overhead.share_of(DP_NONE / DP_REPAIR - 1, HOT_REPAIR)
SHARE_PP = overhead.share_of(PP_NONE / PP_REPAIR - 1, HOT_REPAIR)
SHARE_INFER = overhead.share_of(0.03, balance(1 / 8))
"""Upper limit: the share of communication at which one failure under Balance costs the published limit of 3 %."""

TESTBED = Scale(hosts=2, nics=8, ranks=16, nic_bit_s=400e9, size_bytes=256 << 20)
MONTE_CARLO = Scale(hosts=64, nics=8, ranks=512, nic_bit_s=400e9, size_bytes=256 << 20)


def _cost(tokens: float, none: float) -> float:
    """Percent more time per token than without a failure."""
    return 100 * (none / tokens - 1)


FIXED = (
    "about half a percent more than bandwidth explains, whatever the batch: a fixed cost of the degraded state, which "
    "the model leaves out"
)
UNKNOWN = (
    "8340 tokens/s are 43 TFLOP/s a GPU, so neither computation nor NICs set this pace; what does is not published, "
    "and the row confirms nothing"
)


def _fact(key: str, what: str, value: float, source: str = README, high: float | None = None, reason: str = "") -> Fact:
    return Fact(key, what, "%", value, source, high=high, free=True, reason=reason)


def _tensor_and_pipeline(scale: Scale) -> Mapping[str, float]:
    """By the share of communication that hot repair's line implies, and simulated with the degrees of the title: tensor
    parallelism 8 inside a host, two pipeline stages between hosts."""
    if scale != TESTBED:
        return {}  # how much of our own step in stages is exposed communication is not known beforehand
    simulated = jobs.training("train-tppp-13b")
    return {**_one_loss(SHARE_PP, scale), "simulated": simulated["repair"], "simulated_balance": simulated["balance"]}


def _by_job(name: str, published: Scale) -> Model:
    """The simulated job at the published scale; at our scale the formulas, with our step's share of communication."""
    return lambda scale: jobs.training(name) if scale == published else training.overheads_here(scale)


def _one_loss(share: float, scale: Scale) -> Mapping[str, float]:
    """Overheads in percent with one NIC lost, and for Balance also with two NICs of different hosts."""
    ratios = {
        "repair": HOT_REPAIR,
        "balance": balance(scale.lost),
        "r2cc": predicted_ratio(scale.ranks, scale.lost, 4),
        "two": balance(scale.lost),
    }
    return {key: 100 * overhead.overhead(share, ratio) for key, ratio in ratios.items()}


def training_and_inference() -> pd.DataFrame:
    """The testbed of 4 hosts with 8 NICs each: training by its published share, inference by its upper limit."""
    training = overhead.table("training, 4 hosts", SHARE_DP, 4, 8, range(7))
    inference = overhead.table("inference, 4 hosts (at most)", SHARE_INFER, 4, 8, range(7))
    told = [
        ("training, 4 hosts", "hot repair", 1, DP_NONE / DP_REPAIR - 1),
        ("training, 4 hosts", "Balance", 1, DP_NONE / DP_BALANCE - 1),
        ("training, 4 hosts", "Balance", 2, DP_NONE / DP_TWO - 1),
        ("inference, 4 hosts (at most)", "Balance", 1, 0.03),
    ]
    published = pd.DataFrame([(*row, row[3], row[3], "published", 1) for row in told], columns=training.columns)
    return pd.concat([training, inference, published], ignore_index=True)


ENTRIES = (
    Entry(
        "train-dp-2.7b",
        "GPT-3 2.7B, data-parallel over 16 GPUs, a NIC lost: overhead of an iteration",
        "2 hosts with 8 GPUs and 8 NICs each, Megatron; X = 1/8. Simulated with 64 sequences (not published), MFU "
        "from the healthy row, overlap from the hot repair line",
        (
            _fact("repair", "hot repair (the model's overlap is taken from it)", _cost(DP_REPAIR, DP_NONE)),
            _fact("balance", "Balance", _cost(DP_BALANCE, DP_NONE), reason=FIXED),
            _fact("r2cc", "R2CC-AllReduce", _cost(DP_R2CC, DP_NONE)),
            _fact("two", "Balance, two failures", _cost(DP_TWO, DP_NONE), reason=FIXED),
            _fact(
                "adapcc",
                "AdapCC (model: one GPU of 16 idles)",
                _cost(DP_ADAPCC, DP_NONE),
                reason="perhaps that its workers report to a coordinator at every step, which the model leaves out",
            ),
        ),
        TESTBED,
        _by_job("train-dp-2.7b", TESTBED),
        training.MEASURED,
        draw="overhead",
        figure=training_and_inference,
    ),
    Entry(
        "train-tppp-13b",
        "GPT 13B, tensor and pipeline parallel, a NIC lost: overhead of an iteration",
        "2 hosts with 8 GPUs and 8 NICs each; X = 1/8. Share of communication from the hot repair line",
        (
            _fact("repair", "hot repair (the model's share is taken from it)", _cost(PP_REPAIR, PP_NONE)),
            _fact("balance", "Balance", _cost(PP_BALANCE, PP_NONE), reason=f"not known. {UNKNOWN}"),
            _fact(
                "two",
                "Balance, two failures",
                _cost(PP_TWO, PP_NONE),
                reason="not known: by bandwidth a second host with a lost NIC adds nothing, here it adds twice as much "
                "as the first",
            ),
            _fact(
                "simulated",
                "hot repair, simulated: tensor 8 in a host, 2 stages",
                _cost(PP_REPAIR, PP_NONE),
                reason="only activations between two stages use NICs, of which filling and draining are not hidden. "
                + UNKNOWN,
            ),
            _fact(
                "simulated_balance",
                "Balance, simulated likewise",
                _cost(PP_BALANCE, PP_NONE),
                reason="as for hot repair",
            ),
        ),
        TESTBED,
        _tensor_and_pipeline,
        training.IN_STAGES,
        draw="overhead",
        figure=training_and_inference,
    ),
    Entry(
        "train-dp-32gpu",
        "Data-parallel over 32 GPUs, a NIC lost, R2CC-AllReduce: overhead of an iteration",
        "4 hosts with 8 GPUs and 8 NICs each; X = 1/8. Simulated; hot repair's overhead is that of train-dp-2.7b",
        (
            _fact(
                "r2cc",
                "R2CC-AllReduce",
                _cost(750627, 752405),
                "R2CCL's README, later version",
                reason="the exposed communication is taken from hot repair's line, which is published for 16 GPUs "
                "only, of an earlier version",
            ),
        ),
        TESTBED._replace(hosts=4, ranks=32),
        _by_job("train-dp-32gpu", TESTBED._replace(hosts=4, ranks=32)),
        training.MEASURED,
        draw="overhead",
        figure=training_and_inference,
    ),
    replace(serving.ENTRY, figure=training_and_inference),
    Entry(
        "mc-512",
        "512 GPUs, 1 to 10 NICs lost at random: overhead of an iteration",
        f"64 hosts with 8 GPUs and 8 NICs; {jobs.PATTERNS} random patterns. Simulated; overlap from the first line",
        (
            _fact("k1", "one failure (the model's overlap is taken from it)", 1.5, THIRD),
            _fact(
                "k10",
                "ten failures, Balance",
                4.3,
                THIRD,
                reason="model, batch and what their patterns hit are not published; ten NICs mostly hit ten hosts, and "
                "the slowest of those has lost one NIC or two",
            ),
        ),
        MONTE_CARLO,
        jobs.monte_carlo_ends,
        missing="512 GPUs are not available",
        draw="overhead",
        figure=jobs.monte_carlo,
    ),
    Entry(
        "sim-1024",
        "175B on up to 1024 GPUs: time lost against AdapCC",
        "simulated by its authors; here tensor 8, pipeline 8, data 16, ZeRO-1 (degrees are not published)",
        (
            Fact(
                "adapcc",
                "AdapCC's lost time over Balance's, one NIC lost",
                "",
                54.0,
                THIRD,
                free=True,
                reason="degrees, batch and overlap are not published; both costs depend on them",
            ),
        ),
        MONTE_CARLO._replace(hosts=128, ranks=1024),
        jobs.lost_by_adapcc,
        missing="1024 GPUs are not available",
    ),
)
