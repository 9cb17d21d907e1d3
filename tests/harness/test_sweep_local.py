"""A sweep on the local cluster with a NIC that really goes down, and ranks that only keep time."""

from pathlib import Path

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec
from harness.errors import ExitCode
from harness.experiment.file import load
from harness.sweep.command import Options, sweep_command
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.load import counters, load_folder

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def test_the_fault_is_seen_proven_and_healed(tmp_path: Path) -> None:
    experiment = load(SMOKE, ["workload.backend=noop", "sweep.order=listed", "sweep.retries=9"])
    request = Request(experiment, "", plan(experiment), tmp_path)
    folder, _ = open_folder(request, SilentProgress())

    status = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())

    records = {record.system: record for record in folder.records() if record.status != "inconclusive"}
    assert status is ExitCode.OK
    assert {name: record.status for name, record in records.items()} == {
        "failstop": "failed",
        "hot_repair": "ok",
        "balance": "ok",
    }
    for record in records.values():
        assert record.fault is not None
        assert record.evidence.in_flight
        assert record.evidence.healed
        assert record.evidence.dead_nic_tx_after == record.evidence.dead_nic_rx_after == 0
    error = records["failstop"].error
    assert error is not None
    assert error.message == "NIC eth1 is down"
    loaded = load_folder(folder.path)
    taken = counters(loaded, records["balance"])
    assert not isinstance(taken, str)
    assert set(taken["host"]) == {"host0", "host1"}


def test_a_sweep_beside_another_cluster_says_that_both_disturb_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(LocalSpec(name="other", hosts=1, nics=1)):
        sweep_command(SMOKE, ["workload.backend=noop"], ["system=balance"], Options(tmp_path))
    assert "warning: 1 other local cluster of yours is in use" in capsys.readouterr().out
