"""A rehearsal: the local cluster as a foreign one, reached through an inventory file and sshd only."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.base import ROUTE_PROTOCOL
from harness.cluster import export, inventory_file, rights, state
from harness.cluster.checks.evidence import gather
from harness.cluster.checks.finding import Severity
from harness.cluster.discover import discover
from harness.cluster.existing import ExistingCluster
from harness.cluster.gather import looking_at
from harness.cluster.inventory import Inventory, InventoryHost
from harness.cluster.local import LocalCluster
from harness.cluster.spec import InventorySpec, LocalSpec
from harness.commands.cluster_check import judge
from harness.errors import ClusterError, ExitCode
from harness.experiment.file import load
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.summary import last_attempts
from harness.sweep.sweep import Request, open_folder, run_sweep

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="module")
def exported() -> Iterator[Inventory]:
    """The inventory of a local cluster that stands."""
    with LocalCluster(LocalSpec(name="foreign", hosts=3, nics=2, rate="500 Mbit/s")) as cluster:
        record = state.read(cluster.tag)
        assert record is not None
        yield export.of_local(record, sys.executable)


def saved(inventory: Inventory, folder: Path) -> Path:
    path = folder / "hosts.toml"
    inventory_file.save(inventory, path)
    return path


def changed(inventory: Inventory, index: int, **fields: object) -> Inventory:
    hosts = list(inventory.hosts)
    hosts[index] = hosts[index].model_copy(update=fields)
    return inventory.model_copy(update={"hosts": tuple(hosts)})


def cluster_of(inventory: Inventory) -> ExistingCluster:
    return ExistingCluster(InventorySpec(inventory="hosts.toml", content=inventory))


def test_an_exported_inventory_reads_back(exported: Inventory, tmp_path: Path) -> None:
    assert inventory_file.load(saved(exported, tmp_path)) == exported


FAULTS = """fault=[{kind="nic_down", host="host1", rail=1, at_iteration=4},
{kind="switch_port_down", host="host1", rail=0, at_iteration=4}]"""


@pytest.mark.slow
def test_a_sweep_runs_through_an_inventory_and_sshd_only(exported: Inventory, tmp_path: Path) -> None:
    settings = [
        "workload.backend=noop",
        "sweep.retries=9",
        'system=[{name="balance", mode=2}]',
        'cluster.hosts=["host2", "host0"]',
        FAULTS,
    ]
    bare = exported.model_copy(update={"hosts": tuple(_without_names(host) for host in exported.hosts)})
    experiment = load(SMOKE, settings, saved(bare, tmp_path))
    assert [fault.host for fault in experiment.faults] == ["host0", "host0"], "the second host"
    assert isinstance(experiment.cluster, InventorySpec)
    cluster = ExistingCluster(experiment.cluster)
    request = Request(experiment, "", plan(experiment), tmp_path / "runs")
    folder, _ = open_folder(request, SilentProgress())
    assert run_sweep(request, folder, lambda _: cluster, lambda _: None, SilentProgress()) is ExitCode.OK
    records = last_attempts(folder.records()).values()
    assert {record.fault.kind: (record.fault.nic, record.status) for record in records if record.fault} == {
        "nic_down": ("eth1", "ok"),
        "switch_port_down": ("eth0", "ok"),
    }
    assert all(record.evidence.in_flight and record.evidence.healed for record in records)
    described = folder.run().provenance["cluster"]
    assert [host["name"] for host in described["hosts"]] == ["host2", "host0"]
    assert "login" not in str(folder.run().experiment), "how to log in stays at home"


def _without_names(host: InventoryHost) -> InventoryHost:
    return host.model_copy(update={"nics": tuple(nic.model_copy(update={"name": None}) for nic in host.nics)})


def test_nics_are_found_by_mac_or_address_alone(exported: Inventory) -> None:
    with cluster_of(exported) as cluster:
        macs = {host.name: host.run(["cat", "/sys/class/net/eth1/address"]).stdout.strip() for host in cluster.hosts}
        assert cluster.hosts[0].address == exported.hosts[0].address
        assert cluster.hosts[0].reserved() == {"lo", "mgmt0"}
    hosts = []
    for host in exported.hosts:
        first, second = host.nics
        by_address = first.model_copy(update={"name": None})
        by_mac = second.model_copy(update={"name": None, "ipv4": None, "mac": macs[host.name]})
        hosts.append(host.model_copy(update={"nics": (by_mac, by_address)}))
    with cluster_of(exported.model_copy(update={"hosts": tuple(hosts)})) as cluster:
        assert [(nic.name, nic.rail, nic.address) for nic in cluster.hosts[1].nics] == [
            ("eth0", 0, "10.100.0.2"),
            ("eth1", 1, "10.101.0.2"),
        ]


def test_a_nic_that_is_not_there_or_carries_ssh_is_refused_by_name(exported: Inventory) -> None:
    nic = exported.hosts[0].nics[0]
    managing = nic.model_copy(update={"name": "mgmt0", "ipv4": None})
    absent = nic.model_copy(update={"name": "eth7"})
    unplugged = nic.model_copy(update={"switch_port": "h9r0"})
    uplinked = nic.model_copy(update={"switch_port": "up"})
    moved = nic.model_copy(update={"ipv4": exported.hosts[1].nics[1].ipv4})
    for wrong, words in (
        (managing, "host0: rail 0: mgmt0 carries SSH or the default route"),
        (absent, "host0: rail 0: no interface 'eth7'; did you mean 'eth1'?"),
        (moved, "host0: rail 0: eth0 has no address 10.101.0.2"),
        (unplugged, "host0: eth0: switch has no port h9r0; did you mean 'h2r0'?"),
        (uplinked, "host0: eth0: port up carries SSH or the default route of switch"),
    ):
        with pytest.raises(ClusterError, match=f"^{words}".replace("?", r"\?")):
            cluster_of(changed(exported, 0, nics=(wrong,))).up()


def test_every_host_that_cannot_be_used_is_named(exported: Inventory, tmp_path: Path) -> None:
    known = Path(str(exported.hosts[0].known_hosts)).read_text().splitlines()
    other_key = tmp_path / "known_hosts"
    other_key.write_text(f"{exported.hosts[0].address} {' '.join(known[1].split()[1:])}\n")
    wrong = changed(exported, 0, known_hosts=str(other_key))
    wrong = changed(wrong, 1, port=9)
    wrong = changed(wrong, 2, user="nobody-there")
    with pytest.raises(ClusterError) as caught:
        cluster_of(wrong).up()
    lines = str(caught.value).splitlines()
    assert lines[0] == "3 hosts cannot be used:"
    for line, (name, words) in zip(
        lines[1:],
        (("host0", "not the known one"), ("host1", "cannot connect"), ("host2", "log-in refused")),
        strict=True,
    ):
        assert line.startswith(f"{name}: ") and words in line


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'sudo: a password is required' >&2; exit 1", "asks for a password; let .* run it without"),
        ("exec nowhere", "not found"),
    ],
)
def test_a_way_to_become_root_that_fails_is_one_line(
    exported: Inventory, tmp_path: Path, script: str, words: str
) -> None:
    way = tmp_path / "way"
    way.write_text(f"#!/bin/sh\n{script}\n")
    way.chmod(0o755)
    with pytest.raises(ClusterError, match=f"^host0: .*{words}"):
        cluster_of(changed(exported.subset(["host0"]), 0, sudo=(str(way),))).up()


def test_a_way_to_become_root_runs_everything(exported: Inventory, tmp_path: Path) -> None:
    way = tmp_path / "way"
    way.write_text('#!/bin/sh\nexport BY_THE_WAY=1\nexec env -u SSH_CONNECTION "$@"\n')
    way.chmod(0o755)
    with cluster_of(changed(exported.subset(["host0"]), 0, sudo=(str(way),))) as cluster:
        assert cluster.hosts[0].run(["sh", "-c", "echo $BY_THE_WAY"]).stdout == "1\n"
        assert "mgmt0" in cluster.hosts[0].reserved(), "the session is found although its variable was dropped"


@pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is missing")
def test_sudo_itself_runs_everything_as_root(exported: Inventory) -> None:
    with cluster_of(changed(exported.subset(["host0"]), 0, sudo=True)) as cluster:
        assert cluster.hosts[0].run(["sh", "-c", 'echo "$(id -u) $SUDO_COMMAND"']).stdout.startswith("0 /")
        assert cluster.hosts[0].reserved() == {"lo", "mgmt0"}


def test_discovery_finds_rails_and_names_who_cannot_be_looked_at(exported: Inventory) -> None:
    bare = exported.model_copy(
        update={"rails": (), "hosts": tuple(host.model_copy(update={"nics": ()}) for host in exported.hosts)}
    )
    with looking_at(changed(bare, 2, port=9)) as place:
        found = discover(place)
    assert list(found.errors) == ["host2"]
    assert found.inventory is not None
    for host, known in zip(found.inventory.hosts, exported.hosts, strict=False):
        assert [(n.rail, n.name, n.ipv4) for n in host.nics] == [(n.rail, n.name, n.ipv4) for n in known.nics]
        assert all(nic.mac for nic in host.nics)
    assert [host.name for host in found.inventory.hosts] == ["host0", "host1"]


def test_discovery_drops_a_nic_that_nobody_reaches(exported: Inventory) -> None:
    two = exported.subset(["host0", "host1"])
    bare = two.model_copy(update={"hosts": tuple(host.model_copy(update={"nics": ()}) for host in two.hosts)})
    with looking_at(bare) as place:
        mute = ["tc", "qdisc", "add", "dev", "eth1", "clsact"], ["tc", "filter", "add", "dev", "eth1", "ingress"]
        place.hosts[0].run(mute[0])
        try:
            place.hosts[0].run([*mute[1], "bpf", "da", "bytecode", "1,6 0 0 2"])
            found = discover(place)
        finally:
            place.hosts[0].run(["tc", "qdisc", "del", "dev", "eth1", "clsact"])
    assert found.inventory is not None
    assert [[nic.name for nic in host.nics] for host in found.inventory.hosts] == [["eth0"], ["eth0"]]
    assert "host0: eth1 (10.101.0.1/24) is on no rail: no other host's NIC answers it there" in found.notes


def test_a_check_finds_nothing_wrong_and_then_what_we_break(exported: Inventory) -> None:
    """For real: a link down, a smaller MTU, ARP as Linux has it by default, a host that is not there."""
    before = gather(exported)
    assert [f for f in judge(before) if f.severity is Severity.ERROR] == []
    assert "all 3 NICs reach each other" in str(judge(before))
    assert before.surveys["host0"].facts["features"]["rate_limit"] is None, "it made token buckets just now"
    break_it = {
        "host0": ["ip", "link", "set", "dev", "eth1", "mtu", "1400"],
        "host1": ["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=0"],
        "switch": ["ip", "route", "add", "192.0.2.0/24", "dev", "mgmt", "proto", ROUTE_PROTOCOL],
    }
    mend_it = {
        "host0": ["ip", "link", "set", "dev", "eth1", "mtu", "1500"],
        "host1": ["sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1"],
        "switch": ["ip", "route", "del", "192.0.2.0/24", "dev", "mgmt", "proto", ROUTE_PROTOCOL],
    }
    with cluster_of(exported) as cluster:
        hosts = {host.name: host for host in (*cluster.hosts, *cluster.switches)}
        try:
            for name, argv in break_it.items():
                hosts[name].run(argv)
            found = judge(gather(changed(exported, 2, port=9)))
        finally:
            for name, argv in mend_it.items():
                hosts[name].run(argv)
    told = [f"{f.severity} {f.topic} {f.host}: {f.what}" for f in found if f.remedy]
    for line in (
        f"error reached host2: {exported.hosts[2].address}: cannot connect: Connection refused",
        "warning mtu : rail1: its NICs have different MTUs: host0 1400, host1 1500",
        "error mtu host1: rail1: packets of 1500 bytes from eth1 do not reach host0",
        "warning arp host1: eth0, eth1 answer ARP for the addresses of other NICs",
        "warning arp host1: takes packets for ",
        "error faults switch: 1 things that faults have made are still there",
    ):
        assert any(text.startswith(line) for text in told), (line, told)


def test_the_command_speaks_json_and_ends_with_1_where_something_is_wrong(exported: Inventory, tmp_path: Path) -> None:
    path = saved(changed(exported, 1, port=9), tmp_path)
    command = [sys.executable, "-c", "from harness.commands.cli import main; main()", "cluster", "check", "--json"]
    done = subprocess.run([*command, "--inventory", str(path)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["counts"]["error"] == 1
    assert {"severity": "error", "topic": "reached", "host": "host1"}.items() <= told["findings"][0].items()
    assert {tuple(way["from"]) for way in told["reach"]} >= {("host0", "eth0"), ("host2", "eth1")}
    without = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert (without.returncode, without.stderr.count("\n")) == (2, 1)
