"""A training iteration and a serving replica against closed forms, published rows, and input that cannot be."""

from dataclasses import replace

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import calibration
from r2ccl_core.jobs.iteration import Compute, Iteration, iteration
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import MODELS, Model, model_named
from r2ccl_core.jobs.network import STRATEGIES, Network, ratio
from r2ccl_core.jobs.serving import ENGINES, latency
from r2ccl_core.model.topology import Topology

EIGHT = Topology.uniform(8, 8, 50e9, gpus=8)


def run(model: str = "gpt3-6.7b", topology: Topology = EIGHT, strategy: str = "balance", **layout: int) -> Iteration:
    return iteration(model_named(model), Layout(**layout), Network(topology, strategy))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "billions", "flops"),
    [("gpt3-2.7b", 2.65, 3.67e13), ("gpt3-13b", 12.86, 1.68e14), ("gpt3-175b", 174.6, 2.20e15)],
)
def test_sizes_are_the_published_ones(name: str, billions: float, flops: float) -> None:
    assert MODELS[name].parameters / 1e9 == pytest.approx(billions, rel=0.002)
    assert MODELS[name].operations(1) == pytest.approx(flops, rel=0.005)


def test_computation_is_operations_over_speed() -> None:
    model = model_named("gpt3-175b")
    found = iteration(model, Layout(data=64, micro_batch=1), Network(EIGHT), Compute(400e12 / 989e12))
    assert found.compute_s == pytest.approx(5.51, rel=0.005)  # a sequence a GPU at 400 TFLOP/s
    assert found.bubble_s == found.tensor_s == found.pipeline_s == found.expert_s == 0.0


def test_gradients_take_what_a_ring_of_hosts_takes() -> None:
    found = run(data=64, bucket_bytes=1 << 40)
    size = MODELS["gpt3-6.7b"].parameters * 4
    assert found.data_s == pytest.approx(2 * 7 / 8 * size / 400e9 + 2 * 7 / 8 * size / 450e9, rel=0.01)


def test_the_pipeline_waits_for_its_first_and_last_micro_batch() -> None:
    plain = run("gpt3-13b", data=8, tensor=2, pipeline=4, micro_batches=8)
    woven = run("gpt3-13b", data=8, tensor=2, pipeline=4, micro_batches=8, interleave=2)
    assert plain.bubble_s == pytest.approx(plain.compute_s * 3 / 8)
    assert woven.bubble_s == pytest.approx(plain.bubble_s / 2)
    assert plain.pipeline_s > 0


def test_zero_moves_what_it_shards() -> None:
    plain, one, two, three = (run(data=64, micro_batches=4, zero=zero).data_s for zero in range(4))
    assert one < plain  # half of an AllReduce in 4 bytes, the other half in 2
    assert two > one and three > two


def test_experts_talk_to_each_other() -> None:
    experts = Model("moe", 32, 4096, 32, experts=16, top_k=2)
    network = Network(EIGHT.lost(0, 0), "balance")
    inside = iteration(replace(experts, experts=8), Layout(data=64, expert=8), network)
    across = iteration(experts, Layout(data=64, expert=16), network)
    assert 0 < inside.expert_s < across.expert_s
    assert across.expert_s > iteration(experts, Layout(data=64, expert=16), Network(EIGHT)).expert_s


def test_what_is_hidden_costs_nothing() -> None:
    layout = Layout(data=64, overlap=1.0)
    assert iteration(MODELS["gpt3-6.7b"], layout, Network(EIGHT.lost(0, 0), "hot_repair")).data_s == 0.0


def test_better_strategies_lose_less() -> None:
    lost = EIGHT.lost(0, 0).lost(3, 1)
    seconds = {one: run(topology=lost, strategy=one, data=64, bucket_bytes=8 << 30).seconds for one in STRATEGIES}
    healthy = run(data=64, bucket_bytes=8 << 30).seconds
    assert seconds["hot_repair"] > seconds["balance"] >= seconds["r2cc"] > healthy
    assert seconds["balance"] > seconds["forest"] > healthy
    assert seconds["auto"] <= min(seconds.values()) * (1 + 1e-9)
    assert ratio(Network(EIGHT, "auto")) == 1.0


def test_only_the_stage_with_the_loss_is_slow() -> None:
    one_stage = run("gpt3-13b", EIGHT.lost(0, 0), data=8, tensor=2, pipeline=4, micro_batches=8)
    assert one_stage.data_s == pytest.approx(
        run("gpt3-13b", EIGHT.lost(0, 0).lost(7, 3), data=8, tensor=2, pipeline=4, micro_batches=8).data_s
    )


def test_without_pxn_a_numa_domain_has_its_own_nics_only() -> None:
    lost = EIGHT.lost(0, 0)
    assert ratio(Network(lost, "balance")) == pytest.approx(8 / 7, rel=0.01)
    assert ratio(Network(lost, "balance", pxn=False)) == pytest.approx(4 / 3, rel=0.01)
    both = lost.lost(0, 7)  # one of each domain: nobody gains by the others' NICs
    assert ratio(Network(both, "balance", pxn=False)) == pytest.approx(ratio(Network(both, "balance")))


def test_published_rows_fit_as_far_as_bandwidth_explains_them() -> None:
    row = calibration.ROWS[0]
    found = calibration.calibrated(row)
    lost = calibration.testbed(row.hosts).lost(0, 0)
    healthy = iteration(found.model, found.layout, Network(lost.healthy), found.compute)
    assert found.fits
    assert healthy.tokens_per_s == pytest.approx(row.healthy, rel=1e-3)
    assert found.overhead(lost, "hot_repair") == pytest.approx(row.healthy / row.one["hot_repair"] - 1, rel=1e-3)
    missing = row.healthy / row.one["balance"] - 1 - found.overhead(lost, "balance")
    assert missing == pytest.approx(0.0064, abs=0.001)  # the fixed cost that no bandwidth explains
    assert not calibration.calibrated(calibration.ROWS[1]).fits  # 43 TFLOP/s a GPU: not bound by computation


def test_a_wrong_topology_does_not_fit() -> None:
    """Negative control: with NICs of half the rate the same overlap misses hot repair's row by far."""
    row = calibration.ROWS[0]
    found = calibration.calibrated(row)
    slow = Topology.uniform(row.hosts, 8, 25e9, gpus=8)
    assert found.overhead(slow.lost(0, 0), "hot_repair") > 1.5 * (row.healthy / row.one["hot_repair"] - 1)


def test_a_lost_nic_delays_the_first_token_only() -> None:
    engine = ENGINES["llama-70b-h100x8"]
    whole = latency(engine, Network(EIGHT), prompt=2048, requests=4)
    lost = latency(engine, Network(EIGHT.lost(0, 0)), prompt=2048, requests=4)
    repaired = latency(engine, Network(EIGHT.lost(0, 0), "hot_repair"), prompt=2048, requests=4)
    assert whole.first_ms < lost.first_ms < repaired.first_ms
    assert whole.token_ms == lost.token_ms == 30.0 + 4 * 0.303
    assert lost.first_ms / whole.first_ms < 1.03


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ({"data": 63}, "are 63 GPUs, the topology has 64"),
        ({"data": 0}, "data = 0"),
        ({"data": 64, "zero": 4}, "stages 0 to 3"),
        ({"data": 64, "expert": 3}, "does not divide data"),
        ({"data": 64, "interleave": 2}, "no pipeline"),
        ({"data": 64, "overlap": 1.5}, "0 to 1"),
        ({"data": 2, "pipeline": 32, "interleave": 3}, "does not divide the 32 layers"),
        ({"data": 64, "expert": 4}, "does not divide the 1 experts"),
    ],
)
def test_layouts_that_cannot_be_are_one_line(layout: dict[str, int], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        run(**layout)


def test_other_bad_input_is_one_line() -> None:
    with pytest.raises(UsageError, match="no model is called"):
        model_named("gpt5")
    with pytest.raises(UsageError, match="strategy 'best' is unknown"):
        Network(EIGHT, "best")
    with pytest.raises(UsageError, match="outside of what was measured"):
        latency(ENGINES["llama-70b-h100x8"], Network(EIGHT), prompt=10)
    with pytest.raises(UsageError, match="no NIC left"):
        run(topology=Topology.uniform(8, 1, 50e9, gpus=8).lost(0, 0), data=64)
