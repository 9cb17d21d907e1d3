"""A replica over time against closed forms, and what a loss costs it by what it does about it."""

from dataclasses import replace

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.replica import HABITS, Asked, Served, poisson, serve
from r2ccl_core.jobs.serving import ENGINES, latency
from r2ccl_core.model.topology import Topology

ENGINE = ENGINES["llama-70b-h100x8"]
TOPOLOGY = Topology.uniform(2, 8, 50e9, gpus=8)
HEALTHY, LOST = Network(TOPOLOGY, "balance"), Network(TOPOLOGY.lost(1, 0), "balance")


def test_one_request_takes_what_the_closed_form_says() -> None:
    (one,) = serve(ENGINE, HEALTHY, [Asked(0.0, 1024, 100)])
    alone = latency(ENGINE, HEALTHY, prompt=1024)
    assert one.ttft_s == pytest.approx((alone.first_ms + alone.token_ms) / 1e3, rel=1e-3)
    assert one.tpot_s == pytest.approx(alone.token_ms / 1e3)


def test_requests_queue_for_prompts_and_are_decoded_together() -> None:
    first, second = serve(ENGINE, HEALTHY, [Asked(0.0, 2048, 50), Asked(0.0, 2048, 50)])
    assert second.first_s - first.first_s == pytest.approx(2048 * 0.0996e-3 - 11e-3, rel=0.2)
    assert first.tpot_s > (ENGINE.decode_ms + ENGINE.decode_request_ms) / 1e3


def test_what_a_nic_carries_at_once_takes_no_time_and_is_lost_with_it() -> None:
    engine, asked, burst = replace(ENGINE, cache_bytes=10 << 20), [Asked(0.0, 4096, 2)], 1e9
    for network, nics in ((HEALTHY, 8), (LOST, 7)):
        slow, fast = (serve(engine, network, asked, nic_burst=bytes_)[0].ttft_s for bytes_ in (0.0, burst))
        assert slow - fast == pytest.approx(network.point_to_point_s(0, 1, nics * burst), rel=1e-3)
    whole = serve(engine, HEALTHY, asked, nic_burst=1e12)[0].ttft_s
    assert whole == pytest.approx((engine.prefill_ms + engine.prefill_token_ms * 4096 + 30.303) / 1e3, rel=1e-3)


def middle(habit: str) -> list[Served]:
    """Loss in the middle of the first transfer."""
    asked = [Asked(0.0, 4096, 100), Asked(0.0, 1024, 100), Asked(60.0, 1024, 100)]
    sent_s = (ENGINE.prefill_ms + ENGINE.prefill_token_ms * 4096) / 1e3
    whole_s = HEALTHY.point_to_point_s(0, 1, 4096 * ENGINE.cache_bytes)
    return serve(ENGINE, HEALTHY, asked, after=LOST, lost_at_s=sent_s + 0.3 * whole_s, habit=habit)


def test_who_does_more_again_waits_longer() -> None:
    first = {name: middle(name)[0].ttft_s for name in HABITS}
    assert first["auto"] < first["balance"] < first["transfer_again"] < first["recompute"] < first["restart"]
    # What is left at seven eighths of the rate, after the pause.
    whole_s = HEALTHY.point_to_point_s(0, 1, 4096 * ENGINE.cache_bytes)
    undisturbed = serve(ENGINE, HEALTHY, [Asked(0.0, 4096, 100)])[0].ttft_s
    assert first["auto"] - undisturbed == pytest.approx(0.2 + 0.7 * whole_s / 7, rel=0.02)
    assert all(one.tokens == one.asked.generated for name in HABITS for one in middle(name))


def test_a_lost_nic_of_eight_costs_less_than_a_hundredth_and_a_half() -> None:
    asked = poisson(500, 4.0, 1155, 211)
    before, after = serve(ENGINE, HEALTHY, asked), serve(ENGINE, LOST, asked)
    for name in ("ttft_s", "tpot_s"):
        sums = [sum(getattr(one, name) for one in served) for served in (before, after)]
        assert sums[0] <= sums[1] < 1.015 * sums[0]


def test_an_unknown_habit_is_refused() -> None:
    with pytest.raises(UsageError, match="a replica knows auto, balance"):
        serve(ENGINE, HEALTHY, [], habit="pray")
