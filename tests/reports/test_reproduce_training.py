"""How runs of training answer for published lines: overheads of a step, perplexity after a failure."""

from math import exp

import pandas as pd
import pytest

from harness.experiment.examples import named
from harness.experiment.file import load
from harness.workloads.training import TrainingWorkload
from r2ccl_core.units import parse_size
from reports.reproduce.catalog import find
from reports.reproduce.entry import Scale, lines
from reports.reproduce.training import PERPLEXITY, SHARE, overheads_here, overheads_measured, perplexities_measured

HERE = Scale(hosts=3, nics=8, ranks=3, nic_bit_s=50e6, size_bytes=0)


def test_an_overhead_is_what_a_step_takes_longer_and_simulated_ones_are_left_out() -> None:
    rows = [("hot_repair", "measured", 1.05), ("balance", "measured", 1.007), ("balance", "simulated", 1.5)]
    found = overheads_measured(pd.DataFrame(rows, columns=["system", "source", "slowdown"]))
    assert found["repair"].median == pytest.approx(5.0) and found["balance"].median == pytest.approx(0.7)
    assert found["balance"].n == 1 and found["r2cc"].n == 0


def test_the_model_at_our_scale_is_the_share_times_the_slowdown() -> None:
    model = overheads_here(HERE)
    assert model["repair"] == pytest.approx(100 * SHARE)
    assert model["balance"] == pytest.approx(100 * SHARE / 7)
    shown = {line.fact.key: line for line in lines(find("train-dp-2.7b"), HERE, pd.DataFrame(
        [("balance", "measured", 1.008)], columns=["system", "source", "slowdown"]))}  # fmt: skip
    assert shown["balance"].measured_over_model == pytest.approx(0.8 / (100 * SHARE / 7))
    assert shown["repair"].measured is None and shown["balance"].model != shown["balance"].model_here


def test_perplexity_is_compared_with_the_healthy_trial_of_the_same_system() -> None:
    def row(system: str, scenario: str, last: float) -> dict[str, object]:
        return {
            "run": "r", "setup": "", "system": system, "scenario": scenario, "faulted": scenario != "healthy",
            "status": "ok", "workload": "training", "weights": "aa", "steps": [0, 1],
            "losses": [5.0, last],
        }  # fmt: skip

    frame = pd.DataFrame(
        [
            row("balance", "healthy", 4.0),
            row("balance", "dies", 4.0),
            row("r2cc", "healthy", 4.0),
            row("r2cc", "dies", 4.01),
        ]
    )
    found = perplexities_measured(frame)
    assert found["balance"].median == 0.0
    assert found["r2cc"].median == pytest.approx(100 * (exp(0.01) - 1))


def test_a_scale_without_a_vector_tells_no_size() -> None:
    assert HERE.told() == "3 hosts with 8 NICs of 50 Mbit/s each"
    assert HERE._replace(size_bytes=1 << 20).told() == "3 hosts with 8 NICs of 50 Mbit/s each, 1MiB"


def test_r2cc_reduces_the_buckets_whose_perplexity_is_compared() -> None:
    experiment = load(named(PERPLEXITY.experiment), list(PERPLEXITY.changes))
    (least,) = (system.env["R2CC_AR_MIN_BYTES"] for system in experiment.systems if system.name == "r2cc")
    work = experiment.workload
    assert isinstance(work, TrainingWorkload)
    assert sum(size >= parse_size(least) for size in work.buckets()) >= len(work.buckets()) - 1
