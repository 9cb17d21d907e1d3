"""Schedules that follow a NIC which really goes down, on the local cluster, every element checked."""

from pathlib import Path

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment_file import load
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep

OPTCC = Path(__file__).parents[2] / "experiments" / "optcc.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def test_every_schedule_takes_over_after_the_loss(tmp_path: Path) -> None:
    experiment = load(OPTCC, ['workload.sizes=["4MiB"]', "workload.iterations=60", "sweep.repeats=1"])
    request = Request(experiment, "", plan(experiment), tmp_path)
    folder, _ = open_folder(request, SilentProgress())

    status = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())

    assert status is ExitCode.OK
    for record in folder.records():
        if record.status == "inconclusive":
            continue
        assert record.status == "ok"
        switched = {
            rank: [event for event in core["events"] if event["kind"] == "switched"]
            for rank, core in record.core.items()
        }
        assert len(switched) == 3
        for events in switched.values():
            assert bool(events) is (record.system != "balance")
            assert all("rank 1 lost NIC 1" in event["detail"] for event in events)
