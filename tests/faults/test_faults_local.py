"""Every fault for real on a local cluster: what still passes, by datagrams of the test's own; then healed twice."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conditions import LIMIT_S, until
from wire import Wire

from faults.base import Target
from faults.errors import FaultError
from faults.registry import FAULTS, create
from harness.cluster import rights
from harness.cluster.local import LocalCluster
from harness.errors import InvalidExperimentError
from harness.experiment.file import load
from harness.hosts.base import RemoteProcess
from harness.hosts.each import all_results, for_each
from harness.hosts.state import differences, read_state
from harness.sweep.breakage import Breakage
from harness.sweep.rehearse import rehearse
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"
RATE_BIT_S = 200e6
SETTINGS = ("cluster.hosts=3", "cluster.nics=2", "cluster.rate=200 Mbit/s")

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def experiment_with(*faults: str) -> Any:
    return load(SMOKE, [*SETTINGS, f"fault=[{', '.join(faults)}]"])


@pytest.fixture(scope="module")
def testbed() -> Iterator[HostTestbed]:
    experiment = experiment_with()
    with LocalCluster(experiment.cluster) as cluster:
        assert cluster.layout is not None
        testbed = HostTestbed(experiment, cluster.hosts, cluster.switches)
        testbed.measure_clocks()
        testbed.layout = cluster.layout  # type: ignore[attr-defined]
        yield testbed


@pytest.fixture(scope="module")
def wires(testbed: HostTestbed) -> Iterator[Wire]:
    wire = Wire(testbed.layout)  # type: ignore[attr-defined]
    yield wire
    wire.close()


@pytest.fixture
def wire(wires: Wire) -> Wire:
    """With addresses that are resolved, whatever the test before has broken."""
    assert wires.passes("host0", "host1", 1) and wires.passes("host1", "host0", 1)
    return wires


def states(testbed: HostTestbed) -> dict[str, Mapping[str, str]]:
    """Of every NIC and every port."""
    ports = [nic.switch_port for host in testbed.hosts for nic in host.nics if nic.switch_port]
    names = {host.name: [nic.name for nic in host.nics] for host in testbed.hosts} | {"switch": ports}
    return all_results(for_each(testbed.places.values(), lambda place: read_state(place, names[place.name])))


def changes(testbed: HostTestbed, before: Mapping[str, Mapping[str, str]]) -> list[str]:
    now = states(testbed)
    return [line for place in before for line in differences(place, before[place], now[place])]


@contextmanager
def broken(
    testbed: HostTestbed, kind: str, parameters: Mapping[str, Any], *, pids: Mapping[str, int] | None = None
) -> Iterator[Breakage]:
    """An injection on host1 eth1 from its effect on; afterwards all is as it was, and stays so when healed again."""
    before = states(testbed)
    breakage = Breakage(testbed, Injection(kind, "host1", "eth1", parameters=parameters), "test")
    breakage.arm(pids or {}, 60)
    try:
        breakage.fire()
        assert breakage.unseen == []
        yield breakage
    finally:
        breakage.heal()
    assert breakage.left == []
    until(lambda: changes(testbed, before) == [])
    for target in breakage.targets:
        heal_again(testbed, kind, parameters, target)
    assert changes(testbed, before) == []
    breakage.heal()


def heal_again(testbed: HostTestbed, kind: str, parameters: Mapping[str, Any], target: Target) -> None:
    for place, argv in create(kind, parameters).recipe(target).heal:
        lenient = argv[0].startswith("-")
        testbed.place(place).run((argv[0].lstrip("-"), *argv[1:]), check=not lenient)


SEND = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR: tell what became of it
    sender.sendto(b"x", (sys.argv[1], 9))
"""


def test_who_sends_into_a_black_hole_is_not_told(testbed: HostTestbed, wire: Wire) -> None:
    """As in a network: Soft-RoCE would send at once again what it is told is dropped, and hang its host's kernel."""
    address = testbed.host("host0").nics[1].address
    with broken(testbed, "blackhole", {"direction": "tx"}):
        testbed.host("host1").run([sys.executable, "-c", SEND, address])


DEAD = [
    ("nic_down", {}, False, False),
    ("switch_port_down", {}, False, False),
    ("route_blackhole", {}, False, True),
    ("blackhole", {}, False, False),
    ("blackhole", {"direction": "tx"}, False, True),
    ("blackhole", {"direction": "rx"}, True, False),
    ("blackhole", {"at": "switch"}, False, False),
    ("blackhole", {"at": "switch", "direction": "tx"}, False, True),
    ("blackhole", {"at": "switch", "direction": "rx"}, True, False),
    ("loss", {"percent": 100, "direction": "tx"}, False, True),
]


@pytest.mark.parametrize(("kind", "parameters", "out", "back"), DEAD, ids=lambda value: str(value))
def test_a_dead_direction_passes_nothing_and_all_else_passes(
    testbed: HostTestbed, wire: Wire, kind: str, parameters: dict[str, Any], out: bool, back: bool
) -> None:
    with broken(testbed, kind, parameters):
        for source, target, passes in (("host1", "host0", out), ("host0", "host1", back)):
            assert (wire.passes if passes else wire.silent)(source, target, 1)
        assert wire.passes("host1", "host0", 0) and wire.passes("host0", "host1", 0)
        assert wire.passes("host0", "host2", 1)
    assert wire.passes("host0", "host1", 1) and wire.passes("host1", "host0", 1)


def test_an_isolated_host_is_still_reached_over_ssh(testbed: HostTestbed, wire: Wire) -> None:
    with broken(testbed, "host_isolate", {}) as breakage:
        assert [target.nic for target in breakage.targets] == ["eth0", "eth1"]
        assert all(wire.silent("host1", "host0", rail) for rail in (0, 1))
        assert wire.passes("host0", "host2", 0) and wire.passes("host0", "host2", 1)
        assert testbed.host("host1").run(["uname", "-n"]).stdout == "host1\n"
    assert wire.passes("host1", "host0", 0) and wire.passes("host1", "host0", 1)


def test_a_switch_outage_takes_the_whole_rail(testbed: HostTestbed, wire: Wire) -> None:
    with broken(testbed, "switch_outage", {}) as breakage:
        assert [(target.host, target.nic) for target in breakage.targets] == [(f"host{h}", "eth1") for h in range(3)]
        assert wire.silent("host0", "host2", 1) and wire.silent("host1", "host0", 1)
        assert wire.passes("host0", "host2", 0)
        links = testbed.host("host1").run(["ip", "-o", "link", "show", "dev", "eth1"]).stdout
        assert "NO-CARRIER" in links and ",UP" in links, "the host itself did nothing"
    assert wire.passes("host0", "host2", 1)


@pytest.mark.parametrize("direction", ["tx", "rx", "both"])
def test_lost_packets_are_as_many_as_asked_for(testbed: HostTestbed, wire: Wire, direction: str) -> None:
    with broken(testbed, "loss", {"percent": 25, "direction": direction}):
        for way, source, target in (("tx", "host1", "host0"), ("rx", "host0", "host1")):
            share = len(wire.arrived(source, target, 1, count=2000)) / 2000
            wanted = 0.75 if direction in (way, "both") else 1.0
            assert share == pytest.approx(wanted, abs=0.05), "five standard deviations of 2000 draws"


@pytest.mark.parametrize("direction", ["tx", "rx", "both"])
def test_a_limited_rate_is_the_rate_that_passes(testbed: HostTestbed, wire: Wire, direction: str) -> None:
    with broken(testbed, "rate_limit", {"share": 0.1, "direction": direction}):
        for way, source, target in (("tx", "host1", "host0"), ("rx", "host0", "host1")):
            rate = wire.rate_bit_s(source, target, 1)
            if direction in (way, "both"):
                assert 0.7 * 20e6 < rate < 1.15 * 20e6
            else:
                assert rate > 2 * 20e6


def test_a_nic_without_a_limit_gets_one_and_loses_it_again(testbed: HostTestbed, wire: Wire) -> None:
    host, usual = testbed.host("host1"), testbed.host("host1").run(["tc", "qdisc", "show", "dev", "eth1"]).stdout
    assert "tbf 2:" in usual
    host.run(["tc", "qdisc", "del", "dev", "eth1", "root"])
    try:
        with broken(testbed, "rate_limit", {"rate": "10 Mbit/s"}):
            assert 0.6 * 10e6 < wire.rate_bit_s("host1", "host0", 1) < 1.2 * 10e6
        assert "tbf" not in host.run(["tc", "qdisc", "show", "dev", "eth1"]).stdout
        strange = ["root", "handle", "7:", "htb"]
        host.run(["tc", "qdisc", "add", "dev", "eth1", *strange])
        with pytest.raises(FaultError, match="has a htb qdisc that is not ours"):
            Breakage(testbed, Injection("rate_limit", "host1", "eth1"), "refused").arm({}, 60)
        recipe = create("rate_limit").recipe(Target("host1", "eth1", rate_bit_s=RATE_BIT_S))
        host.run([recipe.heal[0].argv[0].lstrip("-"), *recipe.heal[0].argv[1:]], check=False)
        assert "htb 7:" in host.run(["tc", "qdisc", "show", "dev", "eth1"]).stdout, "healed somebody else's qdisc"
        host.run(["tc", "qdisc", "del", "dev", "eth1", "root"])
    finally:
        limit = create("rate_limit", {"rate": RATE_BIT_S}).recipe(Target("host1", "eth1")).inject[0].argv
        host.run([word.replace("52cc:", "2:") for word in limit])
    assert host.run(["tc", "qdisc", "show", "dev", "eth1"]).stdout == usual


def test_a_hook_of_somebody_else_is_refused_and_never_taken_away(testbed: HostTestbed) -> None:
    host, heal = testbed.host("host1"), create("loss").recipe(Target("host1", "eth1")).heal[0].argv
    host.run(["tc", "qdisc", "add", "dev", "eth1", "clsact"])
    try:
        with pytest.raises(FaultError, match="has a clsact qdisc already"):
            Breakage(testbed, Injection("loss", "host1", "eth1"), "refused").arm({}, 60)
        theirs = ["pref", "9", "bpf", "direct-action", "bytecode", "1,6 0 0 4294967295"]
        host.run(["tc", "filter", "add", "dev", "eth1", "ingress", "protocol", "all", *theirs])
        host.run([heal[0].lstrip("-"), *heal[1:]], check=False)
        assert "pref 9 bpf" in host.run(["tc", "filter", "show", "dev", "eth1", "ingress"]).stdout
    finally:
        host.run(["tc", "qdisc", "del", "dev", "eth1", "clsact"])


def test_routes_and_addresses_that_a_link_takes_with_it_come_back(testbed: HostTestbed) -> None:
    host = testbed.host("host2")
    host.run(["sh", "-c", "echo 0 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6"])
    configuration = [
        "ip addr add 2001:db8:5::3/64 dev eth1 nodad",
        "ip route add 10.77.0.0/16 via 10.101.0.1 dev eth1 metric 7",
        "ip route add default via 10.101.0.1 dev eth1 table 101",
        "ip route add 10.78.0.0/16 via 192.168.9.9 dev eth1 onlink",
        "ip route add 2001:db8:77::/48 via 2001:db8:5::1 dev eth1",
        "ip route add ::/0 via 2001:db8:5::1 dev eth1 table 101",
    ]
    for line in configuration:
        host.run(line.split())
    before = read_state(host, ["eth1"])
    assert all(text in before["eth1 routes"] for text in ("10.77.0.0/16", "10.78.0.0/16", "2001:db8:77::/48", "101"))
    try:
        for kind in ("nic_down", "flap"):
            breakage = Breakage(testbed, Injection(kind, "host2", "eth1"), f"routes-{kind}")
            breakage.arm({}, 60)
            breakage.fire()
            if kind == "nic_down":
                assert list(differences("host2", before, read_state(host, ["eth1"])))
            breakage.heal()
            until(lambda: list(differences("host2", before, read_state(host, ["eth1"]))) == [])
    finally:
        host.run(["ip", "route", "flush", "dev", "eth1", "proto", "boot"])
        host.run(["sh", "-c", "for v in 4 6; do ip -$v route flush dev eth1 table 101; done"])
        host.run(["sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth1/disable_ipv6"])


def test_a_flapping_link_comes_and_goes_and_ends_up(testbed: HostTestbed, wire: Wire) -> None:
    host = testbed.host("host1")
    with broken(testbed, "flap", {"period": "100 ms"}):
        host.sample_start(0.002)
        time.sleep(0.5)
        ups = [sample.up for sample in host.sample_stop() if sample.nic == "eth1"]
    assert 3 <= sum(a and not b for a, b in pairwise(ups)) <= 6
    assert wire.passes("host1", "host0", 1)


def test_a_competing_flow_takes_its_share_on_its_nic_only(testbed: HostTestbed) -> None:
    host = testbed.host("host1")

    def sent_bit_s(nic: str) -> float:
        host.sample_start(0.01)
        time.sleep(0.5)
        of_nic = [sample for sample in host.sample_stop() if sample.nic == nic]
        return (of_nic[-1].tx_bytes - of_nic[0].tx_bytes) * 8e9 / (of_nic[-1].t_ns - of_nic[0].t_ns)

    with broken(testbed, "nic_shared_congestion", {"share": 0.5}):
        assert 0.3 * RATE_BIT_S < sent_bit_s("eth1") < 0.6 * RATE_BIT_S
        assert sent_bit_s("eth0") < 0.01 * RATE_BIT_S
    assert sent_bit_s("eth1") < 0.01 * RATE_BIT_S


@pytest.fixture
def ticking(testbed: HostTestbed) -> Iterator[tuple[RemoteProcess, list[float]]]:
    """A rank on host1 that says something every 10 ms, from a child of its own, too.

    A shell will not do: one that is stopped while its child has not begun its program yet (vfork) waits for that in
    state D, not T.
    """
    said: list[float] = []
    loop = "import os, time\nos.fork()\nwhile True:\n    print('x', flush=True)\n    time.sleep(0.01)"
    process = testbed.host("host1").start(
        ["python3", "-c", loop], env={}, on_line=lambda *_: said.append(time.monotonic())
    )
    until(lambda: len(said) > 5)
    yield process, said
    process.signal(9)  # type: ignore[arg-type]
    process.wait(LIMIT_S)


def test_a_paused_rank_stands_still_and_goes_on(
    testbed: HostTestbed, ticking: tuple[RemoteProcess, list[float]]
) -> None:
    process, said = ticking
    with broken(testbed, "process_pause", {}, pids={"host1": process.pid}):
        time.sleep(0.05)
        count = len(said)
        time.sleep(0.2)
        assert len(said) == count and process.poll() is None
    until(lambda: len(said) > count + 5)


def test_a_killed_rank_is_gone_with_its_children(
    testbed: HostTestbed, ticking: tuple[RemoteProcess, list[float]]
) -> None:
    process, _ = ticking
    breakage = Breakage(testbed, Injection("process_kill", "host1", "eth0"), "kill")
    breakage.arm({"host1": process.pid}, 60)
    breakage.fire()
    assert process.wait(LIMIT_S) == -9
    breakage.heal()


def test_no_fault_changes_nothing(testbed: HostTestbed, wire: Wire) -> None:
    with broken(testbed, "noop", {}):
        assert wire.passes("host0", "host1", 1)


def has_netem(testbed: HostTestbed) -> bool:
    script = "tc qdisc add dev lo root netem delay 1ms"
    return testbed.host("host0").run(["unshare", "--net", "sh", "-c", script], check=False).returncode == 0


def table(kind: str, more: str = "") -> str:
    return f'{{kind="{kind}", host="host1", nic="eth1", at_progress=0.5{more}}}'


@pytest.mark.parametrize("kind", ["delay", "corrupt", "reorder"])
def test_what_the_kernel_cannot_make_is_refused_in_one_line(testbed: HostTestbed, kind: str) -> None:
    if has_netem(testbed):
        pytest.skip("this kernel has netem")
    with pytest.raises(InvalidExperimentError) as refused:
        rehearse(HostTestbed(experiment_with(table(kind)), testbed.hosts, testbed.switches))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"smoke: fault[0].kind: {kind}: the kernel of host0 (and 2 more) cannot make it (")
    assert line.endswith("; load the module, or leave this fault out")


@pytest.mark.parametrize("kind", ["delay", "corrupt", "reorder"])
def test_what_the_emulator_does_to_datagrams(testbed: HostTestbed, wire: Wire, kind: str) -> None:
    if not has_netem(testbed):
        pytest.skip("this kernel has no netem")
    parameters = {"delay": {"delay": "100 ms"}, "corrupt": {"percent": 100}, "reorder": {"percent": 50}}[kind]
    with broken(testbed, kind, parameters):
        began = time.monotonic()
        came = wire.arrived("host1", "host0", 1, count=200)
        took_s = time.monotonic() - began
    assert {"delay": took_s > 0.1, "corrupt": len(came) < 20, "reorder": came != sorted(came)}[kind]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("nic_unbind", "host1 eth1 is not a PCI device that has a driver of its own"),
        ("ib_port_down", "host1 eth1 has no RDMA device"),
        ("roce_drop", "host1 eth1 has no Soft-RoCE device"),
        ("gid_removed", "host1 eth1 has no RoCE device, or no IPv4 address for a GID"),
        ("ovs_drop", "h1r1 is not known to be a port of an Open vSwitch bridge on switch"),
    ],
)
def test_what_the_target_lacks_is_refused_in_one_line(testbed: HostTestbed, kind: str, why: str) -> None:
    with pytest.raises(InvalidExperimentError) as refused:
        rehearse(HostTestbed(experiment_with(table(kind)), testbed.hosts, testbed.switches))
    (line,) = str(refused.value).splitlines()
    assert line.startswith(f"smoke: fault[0].kind: {kind}: {kind}: {why}; ")


def test_what_can_be_made_is_not_refused(testbed: HostTestbed) -> None:
    emulated = {"delay", "corrupt", "reorder", "duplicate"}
    of_machines = {"nic_unplug", "cable_pull", "host_pause", "host_reset", "host_power_off"}
    possible = (
        set(FAULTS) - emulated - of_machines - {"nic_unbind", "ib_port_down", "gid_removed", "ovs_drop", "roce_drop"}
    )
    tables = [table(kind, ', lasts="100 ms"') for kind in sorted(possible)]
    before = states(testbed)
    rehearse(HostTestbed(experiment_with(*tables), testbed.hosts, testbed.switches))
    assert changes(testbed, before) == []
