"""``harness clean --cluster``: a local cluster as a foreign one; what is ours goes, what is not stays."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import export, inventory_file, rights, state
from harness.cluster.existing import ssh_host
from harness.cluster.inventory import Inventory
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec
from harness.hosts.base import Host, Orders
from harness.hosts.leftovers import removals

LINK = ("ip", "link", "set", "dev", "eth0")
DOWN = Orders(((*LINK, "down"),), ((*LINK, "up"),))


def test_only_what_carries_the_tag_is_removed() -> None:
    qdiscs = [
        {"kind": "tbf", "handle": "2:", "dev": "eth0", "root": True},
        {"kind": "tbf", "handle": "52cc:", "dev": "eth1", "root": True},
    ]
    ours, theirs = {"pref": 21196, "kind": "bpf"}, {"pref": 1, "kind": "bpf"}
    filters = {"eth2": [ours, ours], "eth3": [ours, theirs], "eth4": [theirs], "eth5": []}
    routes = [
        {"dst": "10.0.0.1", "dev": "eth0", "protocol": "204"},
        {"dst": "10.0.0.2", "dev": "eth0", "protocol": "static"},
    ]
    assert [" ".join(argv) for argv in removals(qdiscs, filters, routes)] == [
        "tc qdisc del dev eth1 root",
        "tc qdisc del dev eth2 clsact",
        "-tc filter del dev eth3 ingress pref 21196",
        "-tc filter del dev eth3 egress pref 21196",
        "ip route del 10.0.0.1 dev eth0 proto 204",
    ]


@pytest.fixture
def inventory() -> Iterator[Inventory]:
    if not rights.have():
        pytest.skip("needs the right to make network namespaces")
    with LocalCluster(LocalSpec(name="foreign", hosts=2, nics=2)) as cluster:
        record = state.read(cluster.tag)
        assert record is not None
        yield export.of_local(record, sys.executable)


def clean(file: Path, *options: str) -> tuple[int, str, str]:
    argv = [
        sys.executable,
        "-c",
        "from harness.commands.cli import main; main()",
        "clean",
        "--cluster",
        str(file),
        *options,
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def shown(host: Host, *argv: str) -> str:
    return host.run(argv).stdout


@pytest.mark.netns
def test_ours_goes_unless_a_living_sweep_holds_it_and_theirs_stays(inventory: Inventory, tmp_path: Path) -> None:
    file = tmp_path / "hosts.toml"
    inventory_file.save(inventory, file)
    host = ssh_host(inventory.hosts[1])
    host.connect()
    host.prepare("held", DOWN, 60)
    host.fire("held")
    host.run(("tc", "qdisc", "add", "dev", "eth1", "clsact"))
    drop = ("protocol", "all", "bpf", "direct-action", "bytecode", "1,6 0 0 0")
    for pref in ("21196", "7"):
        host.run(("tc", "filter", "add", "dev", "eth1", "egress", "pref", pref, *drop))
    status, out, _ = clean(file)
    assert status == 0 and "running sweep" in out
    assert "NO-CARRIER" in shown(host, "ip", "link", "show", "eth0") or "DOWN" in shown(host, "ip", "link", "show")
    status, out, _ = clean(file, "--all")
    assert status == 0
    assert "healed" in out and "filter del dev eth1 egress" in out
    assert "LOWER_UP" in shown(host, "ip", "link", "show", "eth0")
    prefs = {f["pref"] for f in json.loads(shown(host, "tc", "-j", "filter", "show", "dev", "eth1", "egress"))}
    assert prefs == {7}
    assert clean(file)[:2] == (0, "nothing to remove\n")
    host.close()


@pytest.mark.netns
def test_a_host_that_does_not_answer_keeps_none_of_the_others_from_it(inventory: Inventory, tmp_path: Path) -> None:
    lost = inventory.hosts[0].model_copy(update={"port": 9})
    file = tmp_path / "hosts.toml"
    inventory_file.save(inventory.model_copy(update={"hosts": (lost, inventory.hosts[1])}), file)
    host = ssh_host(inventory.hosts[1])
    host.connect()
    host.run(("ip", "route", "add", "10.101.0.77", "dev", "eth1", "proto", "204"))
    status, out, errors = clean(file)
    assert status == 2
    assert errors.startswith("host0: ") and len(errors.splitlines()) == 1
    assert out.splitlines() == [
        "host1: removed: ip route del 10.101.0.77 dev eth1 proto 204",
        "host0: not examined",
    ]
    host.close()
