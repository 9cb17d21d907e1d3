"""Collectives and systems on the local cluster, with a NIC that really goes down and networks that are really used."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment.file import read
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.trial import Trial

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]

FAULT = {"kind": "nic_down", "host": "host1", "nic": "eth1", "at_iteration": 3, "into": 0.5}


def sweep(
    runs: Path, systems: list[dict[str, Any]], env: Mapping[str, Mapping[str, str]] = {}, **tables: Any
) -> tuple[ExitCode, dict[str, Trial]]:
    """The last attempt of every system's one trial; `env` are variables by system that no experiment may set."""
    document = {
        "name": "x",
        "cluster": {"hosts": 3, "nics": 2, "rate": "500 Mbit/s"},
        "workload": {"sizes": ["4MiB"], "iterations": 6, "root": 1, **tables.pop("workload", {})},
        "system": systems,
        "sweep": {"retries": 9, "order": "listed"},
        **tables,
    }
    experiment = read(document, "x.toml")
    trials = [
        replace(t, system=t.system.model_copy(update={"env": {**t.system.env, **env.get(t.system.name, {})}}))
        for t in plan(experiment)
    ]
    request = Request(experiment, "", trials, runs)
    folder, _ = open_folder(request, SilentProgress())
    code = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())
    return code, {record.system: record for record in sorted(folder.records(), key=lambda record: record.attempt)}


@pytest.mark.parametrize("collective", ["broadcast", "reduce_scatter", "alltoall"])
def test_every_collective_outlives_a_nic_and_fail_stop_does_not(tmp_path: Path, collective: str) -> None:
    systems = [{"use": "failstop"}, {"use": "balance"}]
    code, records = sweep(tmp_path, systems, workload={"collective": collective, "min_duration": "0 s"}, fault=[FAULT])
    assert code is ExitCode.OK
    assert {name: record.status for name, record in records.items()} == {"failstop": "failed", "balance": "ok"}
    survivor = records["balance"]
    assert [i.iteration for i in survivor.iterations] == [-1, 0, 1, 2, 3, 4, 5]
    assert all(i.wrong == 0 for i in survivor.iterations)
    proof = survivor.evidence.model_dump()["network"]
    assert proof["finding"] == "proven" and proof["used"] == ["eth0", "eth1"]


def test_a_system_on_another_network_is_a_failed_trial(tmp_path: Path) -> None:
    env = {"stray": {"R2CC_SOCKET_IFNAME": "=mgmt0"}, "narrow": {"R2CC_SOCKET_IFNAME": "=eth0"}}
    code, records = sweep(tmp_path, [*({"use": "balance", "name": name} for name in env), {"use": "balance"}], env)
    assert code is ExitCode.WRONG
    assert {name: r.status for name, r in records.items()} == {"stray": "failed", "narrow": "failed", "balance": "ok"}
    assert records["stray"].reason == "the ranks used mgmt0, not eth0, eth1"
    assert records["narrow"].reason == "the ranks left out eth1 of eth0, eth1"
    assert records["stray"].evidence.model_dump()["network"]["finding"] == "another"
