"""A local cluster for real: its network, its hosts over SSH, its end, and what it refuses."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import namespaces, netlink, processes, rights, sshd, state, sysctls
from harness.cluster.layout import tag_of
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec
from harness.errors import ClusterError, RightsError, UnreachableError
from harness.hosts.base import Orders
from harness.hosts.each import all_results, for_each
from harness.hosts.facts import read_congestion_control
from harness.hosts.ssh import SshHost, SshLogin
from r2ccl_core.host.nics import find_nics

pytestmark = pytest.mark.netns

REPOSITORY = Path(__file__).parents[2]


def inject(host: Any, name: str, inject: list[list[str]], heal: list[list[str]], ttl_s: float) -> tuple[int, int]:
    """Arms and fires at once."""
    orders = Orders(tuple(map(tuple, inject)), tuple(map(tuple, heal)))
    host.prepare(name, orders, ttl_s)
    fired: tuple[int, int] = host.fire(name)
    return fired


@pytest.fixture(autouse=True)
def _needs() -> None:
    if not rights.have():
        pytest.skip("no right to make network namespaces; run as root")
    if shutil.which("sshd", path=sshd.PATH) is None:
        pytest.skip("sshd is missing; install openssh-server")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    if not rights.have() or shutil.which("sshd", path=sshd.PATH) is None:
        pytest.skip("needs root and sshd")
    with LocalCluster(LocalSpec(name="test", hosts=3, nics=2, rate="200 Mbit/s")) as cluster:
        yield cluster


def traces(tag: str) -> list[str]:
    """Everything that carries the tag."""
    names = [name for name in namespaces.names() + netlink.uplinks() if tag_of(name) == tag]
    inodes = {namespaces.path_of(name).stat().st_ino for name in names if "-" in name}
    running = [str(p) for p in processes.in_namespaces("net", inodes)]
    return names + running + ([tag] if tag in state.tags() else [])


def network(cluster: LocalCluster, host: int) -> str:
    """Links, addresses, routes and qdiscs, without counters."""
    return cluster.hosts[host].run(["sh", "-c", "ip -o link; ip -o addr; ip route; tc qdisc"]).stdout


def test_our_transport_takes_no_management_interface_for_a_data_nic(cluster: LocalCluster) -> None:
    uplinks = set(netlink.uplinks())
    found = {name for name, _ in find_nics({})}
    # The tests may run in a network of their own, in which there is nothing else.
    assert not found & uplinks or found <= uplinks
    program = "from r2ccl_core.host.nics import find_nics; print(*(name for name, _ in find_nics({})))"
    assert cluster.hosts[0].run([sys.executable, "-c", program]).stdout == "eth0 eth1\n"


def test_hosts_have_what_the_spec_says(cluster: LocalCluster) -> None:
    assert [host.name for host in cluster.hosts] == ["host0", "host1", "host2"]
    host = cluster.hosts[2]
    assert [(nic.name, nic.rail, nic.address) for nic in host.nics] == [
        ("eth0", 0, "10.100.0.3"),
        ("eth1", 1, "10.101.0.3"),
    ]
    text = network(cluster, 2)
    assert "10.101.0.3/24" in text and f"{host.address}/24" in text
    assert text.count("qdisc tbf 2: dev eth") == 2 and "rate 200Mbit" in text
    assert "default" not in text.split("qdisc")[0].replace("group default", "").replace("mode DEFAULT", "")


def test_a_host_looks_like_a_host(cluster: LocalCluster) -> None:
    script = "uname -n; ls /sys/class/net; cat /proc/sys/net/ipv4/conf/all/arp_ignore; getent hosts host2"
    lines = cluster.hosts[1].run(["sh", "-c", script]).stdout.split()
    assert lines == ["host1", "eth0", "eth1", "lo", "mgmt0", "1", cluster.hosts[2].address, "host2"]


def test_tcp_does_not_depend_on_the_machine(cluster: LocalCluster) -> None:
    assert {read_congestion_control(host) for host in cluster.hosts} <= {"cubic", "reno"}


def test_a_namespace_gets_the_first_congestion_control_that_it_may_have() -> None:
    own = sysctls.congestion_control()
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    for wanted, expected in [*(([name], name) for name in allowed), (["none_such", allowed[0]], allowed[0]), ([], own)]:
        name = f"r2t{os.getpid()}"
        namespaces.create(name, partial(sysctls.settle, wanted))
        try:
            assert namespaces.inside(name, sysctls.congestion_control) == expected
        finally:
            namespaces.remove(name)


def test_rails_reach_each_other_and_nothing_else(cluster: LocalCluster) -> None:
    connect = "import socket,sys; socket.create_connection((sys.argv[1], 9), timeout=0.3)"
    same = cluster.hosts[0].run([sys.executable, "-c", connect, "10.101.0.2"], check=False)
    assert "refused" in same.stderr
    other = cluster.hosts[0].run([sys.executable, "-c", connect, "10.150.0.2"], check=False)
    assert "unreachable" in other.stderr


def test_a_link_down_and_up_restores_everything(cluster: LocalCluster) -> None:
    host, before = cluster.hosts[0], network(cluster, 0)
    host.sample_start(0.002)
    fired = inject(
        host, "down", [["ip", "link", "set", "dev", "eth1", "down"]], [["ip", "link", "set", "dev", "eth1", "up"]], 60
    )
    during = network(cluster, 0)
    healed = host.heal("down")
    samples = host.sample_stop()
    assert healed is not None
    assert "10.101.0.0/24" not in during
    assert sorted(network(cluster, 0).splitlines()) == sorted(before.splitlines())
    down = [s.t_ns for s in samples if s.nic == "eth1" and not s.up]
    assert down and fired[0] < down[0] and down[-1] < healed
    assert all(s.up for s in samples if s.nic == "eth0")


def test_the_peer_sees_a_healer_act_alone(cluster: LocalCluster) -> None:
    host = cluster.hosts[1]
    inject(
        host, "short", [["ip", "link", "set", "dev", "eth0", "down"]], [["ip", "link", "set", "dev", "eth0", "up"]], 0.2
    )
    wait = "until ip -o link show dev eth0 | grep -q LOWER_UP; do sleep 0.01; done"
    host.run(["sh", "-c", wait], timeout_s=20)
    assert host.heal("short") is not None


def test_all_hosts_at_once(cluster: LocalCluster) -> None:
    names = all_results(for_each(cluster.hosts, lambda host: host.run(["uname", "-n"]).stdout.strip()))
    assert names == {"host0": "host0", "host1": "host1", "host2": "host2"}


def test_a_host_with_another_key_is_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    good = cluster.hosts[0]
    assert isinstance(good, SshHost)
    known = (state.directory(cluster.tag) / "known_hosts").read_text().splitlines()
    wrong = known[1].split()[1:]
    for text, words in (("", "host key is not known"), (" ".join([good.address, *wrong]), "not the known one")):
        (tmp_path / "known_hosts").write_text(text + "\n")
        login = SshLogin(
            good.login.address, 22, good.login.user, good.login.key_file, tmp_path / "known_hosts", sys.executable
        )
        with pytest.raises(UnreachableError, match=words):
            SshHost("stranger", login, ()).connect()


def test_several_clusters_stand_side_by_side(cluster: LocalCluster) -> None:
    second = LocalCluster(LocalSpec(hosts=1, nics=1, rate=None))
    with second:
        assert second.hosts[0].address != cluster.hosts[0].address
        assert second.hosts[0].nics[0].address == cluster.hosts[0].nics[0].address
        tag = second.tag
        assert traces(tag)
        assert "tbf" not in second.hosts[0].run(["tc", "qdisc"]).stdout
        assert second.describe()["hosts"][0]["nics"][0]["name"] == "eth0"
    assert traces(tag) == []
    assert cluster.hosts[0].run(["true"]).returncode == 0
    second.down()


def test_down_takes_every_process_with_it() -> None:
    with LocalCluster(LocalSpec(hosts=1, nics=1)) as cluster:
        pid = int(cluster.hosts[0].run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"]).stdout)
        cluster.hosts[0].start(["sh", "-c", "trap '' TERM; sleep 1000"], env={}, on_line=lambda *_: None)
        tag = cluster.tag
    assert processes.identify(pid) is None
    assert traces(tag) == []


def test_a_failed_start_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "sshd"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sshd, "find_server", lambda: str(broken))
    before = (namespaces.names(), netlink.uplinks(), state.tags())
    with pytest.raises(ClusterError, match=r"^the local cluster does not come up: host0: "):
        LocalCluster(LocalSpec(hosts=2, nics=1)).up()
    assert (namespaces.names(), netlink.uplinks(), state.tags()) == before


def test_a_network_the_kernel_refuses_leaves_nothing() -> None:
    before = (namespaces.names(), netlink.uplinks(), state.tags())
    try:
        LocalCluster(LocalSpec(hosts=2, nics=1, delay="1 ms")).up()
    except ClusterError as e:
        assert re.search("cannot be made: .*netem", str(e))
        assert (namespaces.names(), netlink.uplinks(), state.tags()) == before
    else:
        pytest.skip("this kernel has netem")


def test_a_missing_server_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ClusterError, match="install the package openssh-server"):
        LocalCluster(LocalSpec()).up()


def test_missing_rights_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "have", lambda: False)
    with pytest.raises(RightsError, match="needs root"):
        LocalCluster(LocalSpec()).up()


ROOTLESS = """
LINK = ("ip", "link", "set", "dev", "eth1")
from harness.cluster import rights
rights.acquire()
import os
from harness.cluster.spec import LocalSpec
from harness.cluster.local import LocalCluster
from harness.hosts.base import Orders
with LocalCluster(LocalSpec(hosts=2, nics=2)) as cluster:
    for host in cluster.hosts:
        host.prepare("f", Orders(((*LINK, "down"),), ((*LINK, "up"),)), 60)
        host.fire("f")
        assert "LOWER_UP" not in host.run(["ip", "link", "show", "dev", "eth1"]).stdout
        assert host.heal("f")
        print(host.run(["id", "-u"]).stdout.strip(), host.run(["uname", "-n"]).stdout.strip())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user, which only root can")
def test_an_ordinary_user_without_a_shell_can_have_one(tmp_path: Path) -> None:
    python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if Path(p).exists()), None)
    if python is None or not REPOSITORY.stat().st_mode & 0o005:
        pytest.skip("nobody cannot run a Python here")
    env = {"PYTHONPATH": ":".join([str(REPOSITORY), *sys.path]), "PATH": os.environ["PATH"], "HOME": "/"}
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]
    probe = subprocess.run([*nobody, python, "-c", "import harness.cluster.local"], env=env, capture_output=True)
    if probe.returncode:
        pytest.skip("nobody cannot read this Python's packages")
    done = subprocess.run([*nobody, python, "-c", ROOTLESS], env=env, capture_output=True, text=True, timeout=240)
    if "user namespace" in done.stderr and done.returncode == 2:
        pytest.skip(done.stderr.strip())
    assert (done.returncode, done.stdout, done.stderr) == (0, "65534 host0\n65534 host1\n", "")
    assert not Path("/tmp/r2ccl-65534").exists()
