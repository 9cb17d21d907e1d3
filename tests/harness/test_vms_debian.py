"""Hosts whose Python is older than the harness': guests that run Debian 11 itself, whose Python is 3.9.

    apt-get install mmdebstrap
    pytest -m vms tests/harness/test_vms_debian.py

All that runs on a host does so there: the agent with its samplers, the watch, the healer, the survey and the probes of
`harness cluster check`, the look of the set-up, and the faults' own scripts.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import guests
import pytest

from harness.cluster import export, state
from harness.cluster.checks.evidence import gather
from harness.cluster.checks.finding import Severity
from harness.cluster.inventory import Inventory
from harness.cluster.spec import DEBIAN_PYTHON, VmsSpec
from harness.cluster.vms import debian
from harness.cluster.vms.cluster import VmsCluster
from harness.commands.cluster_check import judge
from harness.errors import ExitCode
from harness.experiment.file import load
from harness.setup.base import Options
from harness.setup.core_source import core_file
from harness.setup.runner import Worker
from harness.setup.stages.catalogue import STAGES
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.summary import last_attempts
from harness.sweep.sweep import Request, open_folder, run_sweep

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"
RELEASE = "bullseye"
SPEC = f'cluster={{kind="vms", name="old", hosts=2, nics=2, rate="20 Mbit/s", debian="{RELEASE}"}}'
FAULTS = ("nic_down", "delay", "cable_pull", "nic_unbind")

pytestmark = [pytest.mark.vms, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[VmsCluster]:
    guests.needed()
    if not debian.is_prepared(RELEASE) and shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is missing (on Debian: apt install mmdebstrap)")
    spec = load(SMOKE, [SPEC, "fault=[]"]).cluster
    assert isinstance(spec, VmsSpec)
    with VmsCluster(spec) as made:
        yield made


@pytest.fixture
def hosts(cluster: VmsCluster) -> Inventory:
    record = state.read(cluster.tag)
    assert record is not None and record.python == DEBIAN_PYTHON
    return export.of_local(record, record.python)


def test_a_guest_is_the_release_itself_with_its_own_python(cluster: VmsCluster) -> None:
    ask = "import sys; print(*sys.version_info[:2]); print(open('/etc/debian_version').read())"
    assert cluster.hosts[0].run([DEBIAN_PYTHON, "-c", ask]).stdout.split()[:2] == ["3", "9"]
    assert cluster.hosts[0].run(["cat", "/etc/debian_version"]).stdout.startswith("11.")


def test_a_check_looks_at_hosts_with_the_old_python(cluster: VmsCluster, hosts: Inventory) -> None:
    told = judge(gather(hosts))
    assert "all 2 NICs reach each other" in str(told)
    wrong = [finding for finding in told if finding.severity is Severity.ERROR]
    assert {finding.topic for finding in wrong} == {"package"}, wrong
    assert all("its Python has no r2ccl" in finding.what for finding in wrong)


def test_the_set_up_says_what_the_release_lacks(cluster: VmsCluster, hosts: Inventory) -> None:
    entry = hosts.hosts[0].model_copy(update={"python": "/opt/r2ccl/bin/python"})
    with core_file(None) as core:
        told = Worker(entry, Options(core=core), STAGES, change=False).run(print)
    found = {result.stage: result for result in told}
    assert found["addresses"].status == found["arp"].status == found["rates"].status == "done"
    assert found["packages"].what == "lacks g++, python3.11, python3.11-venv, python3.11-dev"
    assert found["core"].what == "has no Python 3.11 or later that can make an environment"


def test_a_sweep_strikes_and_heals_under_the_old_python(cluster: VmsCluster, tmp_path: Path) -> None:
    """Last, as a sweep has a cluster of its own."""
    faults = ", ".join(f'{{kind="{kind}", host="host1", rail=1, at_iteration=3}}' for kind in FAULTS)
    settings = [SPEC, "workload.backend=noop", "sweep.retries=9", 'system=[{name="balance", mode=2}]']
    experiment = load(SMOKE, [*settings, f"fault=[{faults}]", 'workload.sizes=["16MiB"]', "workload.iterations=6"])
    cluster.down()
    request = Request(experiment, "", plan(experiment), tmp_path / "runs")
    folder, _ = open_folder(request, SilentProgress())
    assert run_sweep(request, folder, VmsCluster, lambda _: None, SilentProgress()) is ExitCode.OK
    struck = [record for record in last_attempts(folder.records()).values() if record.fault]
    ended = {record.fault.kind: (record.status, record.reason) for record in struck if record.fault}
    assert ended == dict.fromkeys(FAULTS, ("ok", "")), ended
    assert all(record.evidence.in_flight and record.evidence.healed for record in struck)
    assert len(list((folder.path / "trials").glob("*/watch.parquet"))) >= len(FAULTS), "the watch ran"
