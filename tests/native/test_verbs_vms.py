"""RDMA for real: AllReduces between virtual machines with Soft-RoCE, every element checked, while RDMA is lost.

    pytest -m vms tests/native/test_verbs_vms.py

Guests may be translated and starved: limits are wide, and what is awaited is a condition, never a time.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from plugin_build import build_plugin, build_program

from harness.cluster import rights
from harness.cluster.vms.cluster import VmsCluster, find_program
from harness.errors import ClusterError
from harness.experiment.file import load
from harness.sweep.breakage import Breakage
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"
SETTINGS = ('cluster={kind="vms", hosts=2, nics=2, rdma="rxe", mtu=4200, rate="200 Mbit/s"}', "fault=[]")
LIMIT_S = 300
PATIENCE = {
    "NCCL_IB_TIMEOUT": "16",
    "R2CC_CONNECT_TIMEOUT_MS": "20000",
    "R2CC_FAILOVER_TIMEOUT_MS": "4000",
    "R2CC_FAILOVER_GIVE_UP_MS": "60000",
}
STATUS = "/tmp/verbs-status"

pytestmark = [pytest.mark.vms, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def testbed() -> Iterator[HostTestbed]:
    if not rights.have():
        pytest.skip("needs the right to make network namespaces")
    try:
        find_program()
    except ClusterError as error:
        pytest.skip(str(error))
    experiment = load(SMOKE, list(SETTINGS))
    with VmsCluster(experiment.cluster) as cluster:
        testbed = HostTestbed(experiment, cluster.hosts, cluster.switches)
        testbed.measure_clocks()
        yield testbed


class Running:
    """An AllReduce of 1 MiB between the two guests, again and again."""

    def __init__(self, testbed: HostTestbed, transport: str, iterations: int, port: int) -> None:
        self.testbed = testbed
        self.pool = ThreadPoolExecutor(2)
        self.ranks: list[Future[str]] = [
            self.pool.submit(self._rank, rank, transport, iterations, port) for rank in range(2)
        ]

    def _rank(self, rank: int, transport: str, iterations: int, port: int) -> str:
        root = self.testbed.host("host0").nics[0].address
        env = {
            **PATIENCE, "R2CC_TRANSPORT": transport, "R2CC_RANK": str(rank), "R2CC_SIZE": "2",
            "R2CC_ROOT": f"{root}:{port}", "R2CC_SOCKET_IFNAME": "=eth0,eth1", "R2CC_STATUS_DIR": STATUS,
        }  # fmt: skip
        words = " ".join(f"{name}={value}" for name, value in env.items())
        perf = f"{sys.executable} -m r2ccl_core.perf all_reduce -b 1M -e 1M -n {iterations} -w 1 -c 1 --meet 200 -T 200"
        line = f"mkdir -p {STATUS}; {words} {perf}; echo exit $?"
        done = self.testbed.host(f"host{rank}").run(["sh", "-c", line], timeout_s=LIMIT_S, check=False)
        return done.stdout + done.stderr

    def nics(self, rank: int) -> list[dict[str, Any]]:
        """What the rank's process says of its NICs; nothing while it does not run."""
        text = self.testbed.host(f"host{rank}").run(["sh", "-c", f"cat {STATUS}/*.json"], check=False).stdout
        try:
            return list(json.loads(text)["nics"])
        except ValueError:
            return []

    def until(self, condition: Callable[[list[dict[str, Any]]], bool], rank: int = 0) -> None:
        """Until it is true of the rank's NICs."""
        deadline = time.monotonic() + LIMIT_S
        while not ((nics := self.nics(rank)) and condition(nics)):
            assert time.monotonic() < deadline, f"it has not come true: {nics}"
            assert not any(rank.done() for rank in self.ranks), [rank.result() for rank in self.ranks if rank.done()]
            time.sleep(0.5)

    def under_way(self) -> None:
        """Until both NICs have sent by RDMA."""
        self.until(lambda nics: all(nic["rdma_sent_bytes"] > 1 << 18 for nic in nics))

    def end(self) -> list[str]:
        """What the ranks said."""
        said = [rank.result() for rank in self.ranks]
        self.pool.shutdown()
        return said

    def right(self) -> None:
        """Ends well, every element right."""
        first, second = self.end()
        assert "exit 0" in first, first
        assert "exit 0" in second, second
        assert "# Out of bounds values : 0 OK" in first, first


def packets(testbed: HostTestbed, host: str) -> int:
    """That the guest's RDMA devices have sent."""
    line = "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"
    return sum(int(word) for word in testbed.host(host).run(["sh", "-c", line]).stdout.split())


def resources(testbed: HostTestbed, host: str) -> str:
    """What processes of the guest hold of its RDMA devices: the kernel's own queue pair is always there."""
    said = testbed.host(host).run(["rdma", "resource", "show"]).stdout
    return " ".join(word for word in said.split() if not word.startswith("rxe"))


def test_an_allreduce_goes_by_rdma_alone_and_leaves_nothing(testbed: HostTestbed) -> None:
    before = {host: (packets(testbed, host), resources(testbed, host)) for host in ("host0", "host1")}
    running = Running(testbed, "verbs", 6, 29500)
    running.right()
    for host, (sent, held) in before.items():
        # Eight AllReduces, twice, send 1 MiB each; a packet carries 4096 bytes.
        assert packets(testbed, host) - sent > 12 * 256
        assert resources(testbed, host) == held


def test_rdma_that_is_dropped_leaves_the_nic_to_tcp_and_comes_back(testbed: HostTestbed) -> None:
    running = Running(testbed, "auto", 60, 29501)
    running.under_way()
    breakage = Breakage(testbed, Injection("roce_drop", "host1", "eth1", parameters={}), "test")
    breakage.arm({}, 600)
    try:
        breakage.fire()
        assert breakage.unseen == []
        running.until(lambda nics: nics[1]["rdma_paths"] == 0)
        by_tcp = [nic["sent_bytes"] - nic["rdma_sent_bytes"] for nic in running.nics(0)]
        running.until(lambda nics: nics[1]["sent_bytes"] - nics[1]["rdma_sent_bytes"] > by_tcp[1] + (1 << 20))
    finally:
        breakage.heal()
    running.until(lambda nics: nics[1]["rdma_paths"] > 0)
    running.right()


def test_a_port_that_goes_down_is_survived_by_rdma_alone(testbed: HostTestbed) -> None:
    running = Running(testbed, "verbs", 60, 29502)
    running.under_way()
    breakage = Breakage(testbed, Injection("ib_port_down", "host1", "eth1", parameters={}), "test")
    breakage.arm({}, 600)
    try:
        breakage.fire()
        assert breakage.unseen == []
        running.until(lambda nics: nics[1]["state"] == "down")
    finally:
        breakage.heal()
    running.until(lambda nics: nics[1]["state"] != "down" and nics[1]["rdma_paths"] > 0)
    running.right()


def test_kill_9_is_an_error_at_the_other_end_and_gives_everything_back(testbed: HostTestbed) -> None:
    before = [resources(testbed, host) for host in ("host0", "host1")]
    running = Running(testbed, "verbs", 2000, 29503)
    running.under_way()
    testbed.host("host1").run(["sh", "-c", "kill -9 $(pgrep -f r2ccl_core.per[f] | tail -n 1)"])
    first, second = running.end()
    assert "exit 0" not in first, first
    assert "exit 0" not in second, second
    assert [resources(testbed, host) for host in ("host0", "host1")] == before


@pytest.mark.parametrize("version", [8, 12])
def test_the_plugins_tables_keep_their_contract_over_rdma(testbed: HostTestbed, version: int) -> None:
    """Two processes of one guest, as NCCL drives them; RDMA goes from the device to itself."""
    plugin = build_plugin("plain")
    driver = build_program("plain", "plugin_driver.c", "plugin_peer.c", "plugin_tables.c")
    before, held = packets(testbed, "host0"), resources(testbed, "host0")
    env = {**PATIENCE, "R2CC_TRANSPORT": "verbs", "R2CC_SOCKET_IFNAME": "=eth0,eth1"}
    words = " ".join(f"{name}={value}" for name, value in env.items())
    line = f"{words} {driver} {plugin} {version} --nics --verbose; echo exit $?"
    done = testbed.host("host0").run(["sh", "-c", line], timeout_s=LIMIT_S, check=False)
    assert "exit 0" in done.stdout, done.stdout + done.stderr
    assert packets(testbed, "host0") - before > 1000
    assert resources(testbed, "host0") == held


REFUSED = {
    "NCCL_IB_HCA=^rxe": "eth0: NCCL_IB_HCA=^rxe leaves out the RDMA device of eth0",
    "NCCL_IB_GID_INDEX=99": "eth0: rxe0 port 1 has no GID of index 99 (NCCL_IB_GID_INDEX)",
    "NCCL_IB_DISABLE=1": "NCCL_IB_DISABLE=1; unset it",
    "NCCL_IB_TIMEOUT=fast": "NCCL_IB_TIMEOUT=fast: give a whole number from 1 to 31",
    "ulimit -l 256; setpriv --bounding-set -ipc_lock": "the limit for locked memory is 256 KiB: raise it (`ulimit -l",
}


@pytest.mark.parametrize("before", REFUSED)
def test_what_is_missing_is_one_line_with_the_remedy(testbed: HostTestbed, before: str) -> None:
    host = testbed.host("host0")
    opened = f"_native.open_net(2, [('eth0', '{host.nics[0].address}')], {{'R2CC_TRANSPORT': 'verbs'}}, None)"
    script = f"from r2ccl_core import _native\ntry: {opened}\nexcept Exception as error: print(error)"
    said = host.run(["sh", "-c", f'{before} {sys.executable} -c "$0"', script], timeout_s=LIMIT_S).stdout
    (line,) = said.splitlines()
    assert line.startswith("R2CC_TRANSPORT=verbs: ")
    assert REFUSED[before] in line
