"""A request that is hit by a loss, by what the service does about it."""

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.serving import ENGINES
from r2ccl_core.jobs.serving_failures import RECOVERIES, request_s
from r2ccl_core.model.topology import Topology

ENGINE = ENGINES["llama-70b-h100x8"]
NETWORK = Network(Topology.uniform(2, 8, 50e9, gpus=8))


def seconds(at: float | None) -> dict[str, float]:
    return {one.name: request_s(ENGINE, NETWORK, one, prompt=1024, generated=200, at=at) for one in RECOVERIES}


def test_without_a_loss_only_streaming_costs() -> None:
    healthy = seconds(None)
    assert healthy["dejavu"] > healthy["restart"] == healthy["auto"]
    assert healthy["dejavu"] == pytest.approx(healthy["auto"] * 1.02, rel=0.002)


def test_who_does_more_again_pays_more() -> None:
    hit = seconds(0.5)
    assert hit["restart"] > hit["reroute"] > hit["dejavu"] > hit["balance"] > hit["auto"]
    assert hit["auto"] - seconds(None)["auto"] == pytest.approx(0.2)


def test_later_losses_cost_those_more_who_begin_anew() -> None:
    early, late = seconds(0.1), seconds(0.9)
    assert late["restart"] - early["restart"] == pytest.approx(160 * (30.0 + 0.303) / 1e3)
    assert late["reroute"] > early["reroute"] and late["auto"] == early["auto"]


@pytest.mark.parametrize("at", [-0.1, 1.1])
def test_a_loss_outside_of_the_request_is_refused(at: float) -> None:
    with pytest.raises(UsageError, match="0 to 1"):
        seconds(at)
