"""Inventories: what they may say, what is refused in which words, and what an experiment makes of them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudlab import inventory as cloudlab
from cloudlab import manifest
from harness.cluster import inventory_file
from harness.cluster.inventory import Inventory
from harness.cluster.spec import InventorySpec
from harness.commands.cloudlab import Wanted, of_cloudlab
from harness.errors import ExperimentError, InvalidExperimentError, InventoryError
from harness.experiment.file import load, read, variants

ROOT = Path(__file__).parents[2]
ALLREDUCE = ROOT / "experiments" / "allreduce.toml"
MANIFESTS = ROOT / "tests" / "cloudlab" / "manifests"
MISTAKES = json.loads((Path(__file__).parent / "inventory_cases" / "mistakes.json").read_text())

ON_NIC = 'fault=[{{kind="nic_down", host="{host}", nic="{nic}", at_iteration=2}}]'

UNEQUAL = """\
schema = 1
[[host]]
name = "alpha"
address = "alpha.example"
nics = [
    { rail = 1, name = "ens2", ipv4 = "10.0.1.1/24", rate = "10 Gbit/s" },
    { rail = 0, name = "ens1", ipv4 = "10.0.0.1/24", rate = "25 Gbit/s" },
]
[[host]]
name = "beta"
address = "192.0.2.7"
nics = [{ rail = 0, mac = "0C-42-A1-DD-00-2A", rate = "25 Gbit/s" }]
[[host]]
name = "gamma"
address = "2001:db8::7"
nics = [{ rail = 0, name = "eth9" }, { rail = 1, name = "eth8" }, { rail = 2, name = "eth7" }]
"""


def document(**changes: Any) -> dict[str, Any]:
    first = {"name": "a", "address": "10.0.0.1"} | changes.get("host", {})
    second = {"name": "b", "address": "10.0.0.2", "nics": [{"rail": 0, "ipv4": "10.1.0.2/24"}]}
    return {"schema": 1, "rails": ["one", "two"], "host": [first, second]} | changes.get("top", {})


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.toml"
    path.write_text(UNEQUAL)
    return path


@pytest.mark.parametrize("case", MISTAKES, ids=lambda case: str(case.get("host") or case.get("top")))
def test_every_mistake_is_one_line(case: dict[str, Any]) -> None:
    with pytest.raises(InventoryError) as refused:
        inventory_file.parse(document(**case), "hosts.toml")
    assert str(refused.value).splitlines() == [f"hosts.toml: {line}" for line in case["lines"]]


@pytest.mark.parametrize("name", ["r7525_three_lans.xml", "c240g5_protogeni2_storage.xml"])
def test_what_cloudlab_writes_reads_back(name: str, tmp_path: Path) -> None:
    made = cloudlab.make(manifest.parse((MANIFESTS / name).read_bytes(), name), name, "ada")
    path = tmp_path / "hosts.toml"
    inventory_file.save(of_cloudlab(made, Wanted(key=Path("~/.ssh/lab"), rate="10 Gbit/s"), path), path)
    read_back = inventory_file.load(path)
    assert read_back.rails == made.rails
    for ours, theirs in zip(read_back.hosts, made.hosts, strict=True):
        assert (ours.name, ours.address, ours.port, ours.user) == (theirs.name, theirs.address, theirs.port, "ada")
        assert ours.key == "~/.ssh/lab", "the home of whoever runs it"
        assert ours.sudo is True and ours.python == "/opt/r2ccl/bin/python", "what set-up makes"
        assert {nic.rate_bit_s for nic in ours.nics} == {10e9}
        assert [(n.rail, n.mac, n.ipv4) for n in ours.nics] == [(n.rail, n.mac, n.ipv4) for n in theirs.nics]


def test_paths_are_taken_from_the_inventory(tmp_path: Path) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text('schema = 1\n[[host]]\nname = "a"\naddress = "a"\nkey = "keys/lab"\nknown_hosts = "/etc/known"\n')
    (host,) = inventory_file.load(path).hosts
    assert (host.key, host.known_hosts) == (str(tmp_path / "keys/lab"), "/etc/known")


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.floats(1e6, 1e12))
def test_whatever_is_written_reads_back(text: str, rate_bit_s: float) -> None:
    rate = f"{rate_bit_s!r} bit/s"
    nics = [{"rail": 1, "name": "eth0", "ipv6": "fd00::1/64", "rate": rate, "rdma": "mlx5_0"}]
    host = {"hardware": text, "key": text, "sudo": ["doas", "-n"], "gpus": 8, "nics": nics}
    top = {"provenance": {text: [text, True, 3]}, "switch": [{"name": "tor", "address": "tor", "sudo": True}]}
    made = inventory_file.parse(document(host=host, top=top), "x")
    assert inventory_file.parse(tomllib.loads(inventory_file.to_toml(made)), "x") == made


def test_an_experiment_runs_on_an_inventory(hosts: Path) -> None:
    experiment = load(ALLREDUCE, ["fault[0].rail=0"], hosts)
    assert experiment.cluster.host_names() == ["alpha", "beta", "gamma"]
    assert [nic.name for nic in experiment.cluster.data_nics()["alpha"]] == ["ens1", "ens2"]
    assert experiment.faults[0].host == "beta", "host1 is the second one"
    also = 'fault[0].also=[{kind="nic_down", host="host2", rail=2}]'
    assert load(ALLREDUCE, ["fault[0].rail=0", also], hosts).faults[0].also[0].host == "gamma"
    assert experiment.cluster.summary() == "3 hosts with 1 to 3 NICs each"


def test_the_host_with_the_least_sets_the_pace(hosts: Path) -> None:
    experiment = load(ALLREDUCE, ["fault[0].rail=0"], hosts)
    assert experiment.cluster.bandwidth_bit_s() == 25e9, "gamma has no rates: three NICs of 10 Gbit/s are assumed"
    seconds = experiment.expected_duration_s(2**30)
    assert seconds == pytest.approx(2**30 * 4 / 3 / (25e9 / 8 * 0.956))


def test_a_subset_is_taken_in_the_order_that_is_named(hosts: Path) -> None:
    chosen = load(ALLREDUCE, ['cluster.hosts=["gamma", "alpha"]'], hosts).cluster
    assert chosen.host_names() == ["gamma", "alpha"]
    assert load(ALLREDUCE, ["cluster.hosts=2", "fault[0].rail=0"], hosts).cluster.host_names() == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["cluster.hosts=9"], "cluster.hosts: 9: the inventory has 3 hosts"),
        (['cluster.hosts=["beta", "gama"]'], "cluster.hosts: gama: no such host; did you mean 'gamma'?"),
        (['cluster.hosts=["beta", "beta"]'], "cluster.hosts: beta: is there twice"),
        (["cluster.nics=3"], "cluster.nics: unknown key; known: python, kind, inventory, hosts, content"),
        (["cluster.hosts=1", "fault=[]"], "cluster.hosts: 1: a collective needs at least 2"),
        (["fault[0].host=bet"], "fault[0].host: bet: no such host; did you mean 'beta'?"),
        ([ON_NIC.format(host="gamma", nic="eth6")], "fault[0].nic: eth6: no such NIC; did you mean 'eth9'?"),
        (
            [ON_NIC.format(host="beta", nic="ens1")],
            "fault[0].nic: ens1: no such NIC; the host alone knows its NICs' names; give rail = 0",
        ),
        (["fault[0].rail=1"], "fault[0].rail: 1: no such rail; there are 0"),
    ],
)
def test_what_the_inventory_has_not_is_refused(hosts: Path, settings: list[str], line: str) -> None:
    with pytest.raises((InvalidExperimentError, ExperimentError)) as refused:
        load(ALLREDUCE, settings, hosts)
    of, _, told = str(refused.value).partition(": ")
    assert told == line
    assert of == str(ALLREDUCE) if settings == ["fault[0].rail=1"] else of.startswith("--set")  # the file has rail 1


def test_the_file_lies_beside_the_experiment(hosts: Path) -> None:
    table = '[cluster]\nkind = "inventory"\ninventory = "hosts.toml"\n'
    text = ALLREDUCE.read_text()
    begin, end = text.index("[cluster]"), text.index("[workload]")
    path = hosts.with_name("mine.toml")
    path.write_text(text[:begin] + table + text[end:])
    spec = load(path, ["fault[0].rail=0"]).cluster
    assert isinstance(spec, InventorySpec)
    assert spec.inventory == "hosts.toml"
    hosts.write_text(UNEQUAL.replace('name = "alpha"', 'nam = "alpha"'))
    with pytest.raises(InventoryError, match=r"hosts\.toml: host\[0\]\.nam: unknown key; did you mean 'name'\?"):
        load(path)


def test_a_stored_experiment_says_everything_but_how_to_log_in(hosts: Path) -> None:
    hosts.write_text(UNEQUAL.replace('name = "alpha"', 'name = "alpha"\nuser = "ada"\nkey = "secret_place"'))
    stored = load(ALLREDUCE, ["fault[0].rail=0"], hosts).resolved()
    hosts.write_text(hosts.read_text() + '[provenance]\ncommand = "harness"\n')
    assert load(ALLREDUCE, ["fault[0].rail=0"], hosts).resolved() == stored, "written anew, it is the same run"
    assert "ada" not in json.dumps(stored) and "secret_place" not in json.dumps(stored)
    again = read(json.loads(json.dumps(stored)), "run.json").cluster
    assert isinstance(again, InventorySpec) and isinstance(again.content, Inventory)
    assert again.host_names() == ["alpha", "beta", "gamma"]
    assert again.data_nics() == load(ALLREDUCE, ["fault[0].rail=0"], hosts).cluster.data_nics()


def test_every_point_of_an_axis_can_log_in(hosts: Path) -> None:
    hosts.write_text(UNEQUAL.replace('name = "alpha"', 'name = "alpha"\nuser = "ada"\nkey = "place"'))
    axis = 'axis=[{key="cluster.hosts", values=[2, 3]}]'
    points = variants(load(ALLREDUCE, ["fault[0].rail=0", axis], hosts))
    assert [point.experiment.cluster.host_names() for point in points] == [
        ["alpha", "beta"],
        ["alpha", "beta", "gamma"],
    ]
    for point in points:
        assert isinstance(point.experiment.cluster, InventorySpec)
        assert point.experiment.cluster.content.hosts[0].user == "ada"
