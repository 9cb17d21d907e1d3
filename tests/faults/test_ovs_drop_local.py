"""The rule that drops, for real: Open vSwitch in user space between a host and its rail, as it runs on a SmartNIC."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from conditions import until
from wire import Wire

from faults.errors import FaultError
from harness.cluster import rights
from harness.cluster.local import LocalCluster
from harness.experiment.file import load
from harness.hosts.facts import read_ovs_port
from harness.hosts.leftovers import find_leftovers, remove_leftovers
from harness.sweep.breakage import Breakage
from harness.sweep.scenario import Injection
from harness.sweep.testbed import HostTestbed

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"
SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
SO_NO_CHECK = 11

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
    pytest.mark.skipif(
        shutil.which("ovs-vswitchd", path="/usr/sbin:/usr/bin") is None or not SCHEMA.exists(),
        reason="Open vSwitch is missing: apt-get install openvswitch-switch",
    ),
]


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostTestbed]:
    """Two hosts; the first one's second NIC goes through a bridge of Open vSwitch, the "card", on the switch."""
    experiment = load(SMOKE, ["cluster.hosts=2", "cluster.nics=2", "cluster.rate=200 Mbit/s", "fault=[]"])
    folder = tmp_path_factory.mktemp("ovs")
    with LocalCluster(experiment.cluster) as cluster:
        testbed = HostTestbed(experiment, cluster.hosts, cluster.switches)
        testbed.layout = cluster.layout  # type: ignore[attr-defined]
        run_card(testbed, folder)
        yield testbed


def run_card(testbed: HostTestbed, folder: Path) -> None:
    card, state, said = testbed.place("switch"), "/run/openvswitch", []

    def told(_: str, line: str) -> None:
        said.append(line)

    card.run(["mkdir", "-p", state])
    card.run(["ovsdb-tool", "create", f"{folder}/conf.db", str(SCHEMA)])
    card.start(["ovsdb-server", f"{folder}/conf.db", f"--remote=punix:{state}/db.sock"], env={}, on_line=told)
    until(lambda: card.run(["test", "-S", f"{state}/db.sock"], check=False).returncode == 0)
    card.start(["ovs-vswitchd", f"unix:{state}/db.sock"], env={}, on_line=told)
    card.run(["ip", "link", "set", "h0r1", "nomaster"])
    card.run(["ip", "link", "add", "p0", "type", "veth", "peer", "name", "cable"])
    for words in (["cable", "master", "rail1", "up"], ["p0", "up"]):
        card.run(["ip", "link", "set", *words])
    words = "add-br ovsbr1 -- set bridge ovsbr1 datapath_type=netdev -- add-port ovsbr1 h0r1 -- add-port ovsbr1 p0"
    card.run(["ovs-vsctl", "--timeout=20", *words.split()])
    until(lambda: (port := read_ovs_port(card, "h0r1")) is not None and port.number is not None)


@pytest.fixture(scope="module")
def wire(testbed: HostTestbed) -> Iterator[Wire]:
    made = Wire(testbed.layout)  # type: ignore[attr-defined]
    for endpoint in made.sockets.values():  # nothing computes the sums that veth leaves out before user space
        endpoint.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    yield made
    made.close()


def struck(testbed: HostTestbed, **parameters: str) -> Breakage:
    return Breakage(testbed, Injection("ovs_drop", "host0", "eth1", parameters=parameters), "test")


@pytest.mark.parametrize(
    ("direction", "out", "back"), [("both", False, False), ("tx", False, True), ("rx", True, False)]
)
def test_a_rule_drops_its_direction_silently_and_goes_by_its_cookie(
    testbed: HostTestbed, wire: Wire, direction: str, out: bool, back: bool
) -> None:
    card = testbed.place("switch")
    assert wire.passes("host0", "host1", 1) and wire.passes("host1", "host0", 1)
    card.run(["ovs-ofctl", "add-flow", "ovsbr1", "cookie=0x7,priority=7,actions=NORMAL"])
    breakage = struck(testbed, direction=direction)
    breakage.arm({}, 60)
    try:
        breakage.fire()
        assert breakage.unseen == []
        for source, target, passes in (("host0", "host1", out), ("host1", "host0", back)):
            assert (wire.passes if passes else wire.silent)(source, target, 1)
        assert wire.passes("host0", "host1", 0), "the other rail"
        link = testbed.host("host0").run(["ip", "-o", "link", "show", "dev", "eth1"]).stdout
        assert "LOWER_UP" in link, "no link goes down"
    finally:
        breakage.heal()
    assert breakage.left == []
    assert wire.passes("host0", "host1", 1) and wire.passes("host1", "host0", 1)
    flows = card.run(["ovs-ofctl", "dump-flows", "ovsbr1"]).stdout
    assert "0x52cc" not in flows and "cookie=0x7," in flows, "only what is ours"


def test_what_a_crash_left_is_found_by_its_cookie(testbed: HostTestbed) -> None:
    card = testbed.place("switch")
    card.run(["ovs-ofctl", "add-flow", "ovsbr1", "cookie=0x52cc,priority=65535,in_port=1,actions=drop"])
    assert find_leftovers(card) == [("ovs-ofctl", "del-flows", "ovsbr1", "cookie=0x52cc/-1")]
    remove_leftovers(card)
    assert find_leftovers(card) == []


def test_a_card_whose_ports_are_not_there_is_refused_with_the_remedy(testbed: HostTestbed) -> None:
    """As in NIC mode: the bridge still names the port, and Open vSwitch cannot open it."""
    card = testbed.place("switch")
    ports = {nic.name: nic.switch_port for nic in testbed.host("host0").nics}
    assert ports["eth1"] == "h0r1"
    card.run(["ovs-vsctl", "del-port", "ovsbr1", "h0r1"])
    with pytest.raises(FaultError, match="h0r1 is not known to be a port of an Open vSwitch bridge on switch"):
        struck(testbed).arm({}, 60)
    card.run(["ip", "link", "set", "h0r1", "name", "hidden"])
    assert "could not open" in card.run(["ovs-vsctl", "--timeout=20", "add-port", "ovsbr1", "h0r1"]).stderr
    with pytest.raises(FaultError, match=r"the card is in NIC mode .* mlxconfig .* power-cycle"):
        struck(testbed).arm({}, 60)
