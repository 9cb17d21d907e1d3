"""The transport in network namespaces under failures that only a real network shows, every element checked."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from rails import Job, job, rails

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def lost(running: Job) -> list[dict[str, object]]:
    return [event for rank in range(len(running.ranks)) for event in running.events(rank, "path_down")]


@pytest.mark.parametrize("percent", [1, 5])
def test_losses_cost_speed_and_no_path(tmp_path: Path, percent: int) -> None:
    """A NIC that loses 1 to 5 % of what it carries still carries: it gets less, and is not given up."""
    with rails(2, 2) as network, job(network, tmp_path) as running:
        network.drop(1, 1, percent / 100)
        running.moves()
        before = [running.moved(0, nic) for nic in range(2)]
        time.sleep(3)
        after = [running.moved(0, nic) for nic in range(2)]
        assert lost(running) == [], running.output()
        lossy, well = after[1] - before[1], after[0] - before[0]
        assert lossy > 0
        assert percent < 5 or lossy < well  # 1 % hardly shows at this rate
