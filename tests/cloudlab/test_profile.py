"""The profile, run with geni-lib: every combination of parameters gives a request that keeps the rules, or reasons."""

import ast
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cloudlab import inventory, manifest, profile
from cloudlab.manifest import Manifest

ROOT = Path(__file__).parents[2]
PORTAL = Path(__file__).parent / "portal.py"
DEFAULTS: dict[str, Any] = {
    "node_type": "r7525",
    "other_type": "",
    "nodes": 3,
    "nics": 3,
    "speed_gbit": 0,
    "image": profile.IMAGE,
    "dataset": "",
    "site": "any",
}
IMDATASET = "urn:publicid:IDN+clemson.cloudlab.us:r2ccl-pg0+imdataset+models"

needs_geni = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("geni", "six")),
    reason="geni-lib is not installed: pip install geni-lib six",
)

MISTAKES = [
    ({"nodes": 1}, ["nodes"], "A collective needs 2 nodes or more"),
    ({"node_type": "xl170", "nics": 1, "nodes": 65}, ["nodes"], "up to 64"),
    ({"nodes": 16}, ["nodes", "node_type"], "There are 15 nodes of type r7525."),
    ({"nics": 0}, ["nics"], "A node needs 1 NIC or more"),
    (
        {"nics": 4},
        ["nics", "node_type"],
        "Nodes of type r7525 have 3 ports for experiments, and each NIC needs its own.",
    ),
    ({"node_type": "xl170", "nics": 2}, ["nics", "node_type"], "Nodes of type xl170 have 1 port for experiments"),
    ({"speed_gbit": 40}, ["speed_gbit", "nics"], "Nodes of type r7525 have 2 ports of 40 Gbit/s or more, not 3."),
    ({"site": "utah"}, ["site", "node_type"], "Nodes of type r7525 are at clemson."),
    ({"node_type": "c4130", "nics": 1, "site": "utah"}, ["site", "node_type"], "are at wisconsin and clemson."),
    ({"node_type": "other"}, ["other_type"], "Name the node type"),
    ({"node_type": "other", "other_type": "a b"}, ["other_type"], "This is not the name of a node type"),
    ({"node_type": "other", "other_type": "xl170\n"}, ["other_type"], "This is not the name of a node type"),
    ({"node_type": "other", "other_type": "xl170"}, ["node_type", "other_type"], "xl170 is in the list"),
    ({"other_type": "r650"}, ["other_type"], "Leave this empty"),
    ({"image": "UBUNTU22-64-STD"}, ["image"], "The image is not a URN of a disk image"),
    ({"image": profile.IMAGE + "<script>"}, ["image"], "The image is not a URN of a disk image"),
    ({"dataset": "models"}, ["dataset"], "This is not the URN of a data set"),
    ({"dataset": IMDATASET.replace("imdataset", "ltdataset")}, ["dataset"], "would share a rail's port"),
]


def form(**changes: Any) -> dict[str, Any]:
    return DEFAULTS | changes


def run(forms: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The portal's answers; the profile lies by itself in `folder`, as it does at CloudLab."""
    shutil.copy(ROOT / "profile.py", folder)
    command = [sys.executable, "-W", "ignore", str(PORTAL), str(folder / "profile.py")]
    done = subprocess.run(command, input=json.dumps(forms), cwd=folder, capture_output=True, text=True, timeout=270)
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(answers) == len(forms)
    return answers


def read(answer: dict[str, Any]) -> Manifest:
    return manifest.parse(answer["rspec"].encode(), "request")


def possible(asked: dict[str, Any]) -> bool:
    """The rules again, the other way round: could somebody hand out these ports?"""
    if asked["node_type"] == "other":
        return asked["nodes"] >= 2 and asked["nics"] >= 1
    kind = profile.NODE_TYPES[asked["node_type"]]
    ports = Counter(port >= asked["speed_gbit"] for port in kind.ports_gbit)[True]
    return (
        2 <= asked["nodes"] <= kind.nodes
        and 1 <= asked["nics"] <= ports
        and (asked["site"] == "any" or asked["site"] in kind.sites)
    )


def check(asked: dict[str, Any], answer: dict[str, Any]) -> None:
    """One request against the rules."""
    request = read(answer)
    assert request.kind == "request"
    assert [node.name for node in request.nodes] == [f"node{host}" for host in range(asked["nodes"])]
    assert {link.name for link in request.links} == {f"rail{rail}" for rail in range(asked["nics"])}
    assert {node.hardware_type for node in request.nodes} == {asked["other_type"] or asked["node_type"]}
    used = Counter(name for link in request.links for name in link.interfaces)
    assert used == Counter(port.name for node in request.nodes for port in node.interfaces), "each port on one LAN"
    subnets = set()
    for link in request.links:
        assert not link.tagged and not link.multiplexed
        ports = [port for node in request.nodes for port in node.interfaces if port.name in link.interfaces]
        assert len(ports) == asked["nodes"] == len({port.address for port in ports})
        here = {port.address.rpartition(".")[0] for port in ports}
        assert len(here) == 1 and {port.netmask for port in ports} == {"255.255.255.0"}
        subnets |= here
    assert len(subnets) == asked["nics"], "a subnet for each rail"
    text = answer["rspec"]
    assert "link_multiplexing" not in text and "best_effort" not in text and "<script" not in text
    assert text.count(f'capacity="{asked["speed_gbit"]}000000"') == (asked["speed_gbit"] > 0) * sum(used.values())
    assert text.count("force_nobwshaping") == (asked["speed_gbit"] > 0) * asked["nics"]
    urn = profile.SITES.get(asked["site"])
    assert text.count("component_manager_id=") == (asked["nodes"] if urn else 0)
    assert urn is None or text.count(f'component_manager_id="{urn}"') == asked["nodes"]


def test_the_copy_at_the_top_is_the_source() -> None:
    assert (ROOT / "profile.py").read_bytes() == (ROOT / "cloudlab" / "profile.py").read_bytes(), (
        "run: cp cloudlab/profile.py profile.py"
    )


def test_it_stands_alone_and_runs_on_an_older_python() -> None:
    tree = ast.parse((ROOT / "profile.py").read_text(), feature_version=(3, 7))
    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} - sys.stdlib_module_names - {"geni"} == set()


def test_its_name_does_not_break_the_profiler_of_the_standard_library() -> None:
    command = [sys.executable, "-c", "import cProfile; cProfile.run('print(1 + 1)')"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "function calls" in done.stdout


@pytest.mark.parametrize(("changes", "names", "reason"), MISTAKES)
def test_impossible_forms_are_refused_with_the_reason(changes: dict[str, Any], names: list[str], reason: str) -> None:
    [(message, about)] = profile.mistakes(Namespace(**form(**changes)))
    assert about == names
    assert reason in message


@needs_geni
def test_the_portal_shows_the_reasons_beside_the_parameters(tmp_path: Path) -> None:
    answers = run([form(**changes) for changes, _, _ in MISTAKES], tmp_path)
    for (_, names, reason), answer in zip(MISTAKES, answers, strict=True):
        [error] = answer["errors"]
        assert error["errorType"] == "ParameterError" and error["params"] == names
        assert reason in error["message"]


@pytest.mark.slow
@needs_geni
def test_every_combination_keeps_the_rules_or_is_refused(tmp_path: Path) -> None:
    types = [*profile.NODE_TYPES, profile.OTHER]
    sites = ["any", *profile.SITES]
    forms = [
        form(
            node_type=kind,
            nodes=nodes,
            nics=nics,
            speed_gbit=speed,
            site=site,
            other_type="r650" * (kind == "other"),
        )
        for kind, nodes, nics, speed, site in itertools.product(
            types, (1, 2, 5), (0, 1, 2, 3, 4, 5), profile.SPEEDS_GBIT, sites
        )
    ]
    for asked, answer in zip(forms, run(forms, tmp_path), strict=True):
        assert ("rspec" in answer) == possible(asked), asked
        if "rspec" in answer:
            check(asked, answer)


@needs_geni
def test_the_defaults_are_the_testbed_of_the_paper(tmp_path: Path) -> None:
    [answer] = run([{}], tmp_path)
    check(form(), answer)
    for step in ("harness cloudlab inventory", "harness cloudlab setup", "harness cluster check", "harness sweep"):
        assert step in answer["rspec"], "the instructions"
    assert "rspec_tour" in answer["rspec"] and profile.IMAGE in answer["rspec"]


@needs_geni
def test_a_manifest_of_what_was_asked_becomes_an_inventory(tmp_path: Path) -> None:
    [answer] = run([form()], tmp_path)
    macs = itertools.count()
    granted = answer["rspec"].replace('type="request"', 'type="manifest"')
    granted = re.sub("<interface client", lambda _: f'<interface mac_address="{next(macs):012x}" client', granted)
    granted = granted.replace("</node>", '<host name="granted.clemson.cloudlab.example"/></node>')
    made = inventory.make(manifest.parse(granted.encode(), "m.xml"), "m.xml", "ada")
    assert made.rails == ("rail0", "rail1", "rail2")
    assert [str(nic.ipv4) for nic in made.hosts[2].nics] == ["10.10.1.3/24", "10.10.2.3/24", "10.10.3.3/24"]
    assert [nic.mac for nic in made.hosts[1].nics] == [f"00:00:00:00:00:{number:02x}" for number in (3, 4, 5)]


@needs_geni
def test_a_data_set_needs_no_port(tmp_path: Path) -> None:
    [answer] = run([form(dataset=IMDATASET)], tmp_path)
    check(form(), answer)
    assert answer["rspec"].count(f'dataset="{IMDATASET}"') == 3
    assert answer["rspec"].count('class="local"') == 3


@needs_geni
def test_what_is_no_choice_of_the_form_is_refused(tmp_path: Path) -> None:
    choices = [{"node_type": "abacus"}, {"speed_gbit": 17}, {"site": "moon"}, {"nodes": "three"}]
    for answer in run([form(**choice) for choice in choices], tmp_path):
        assert len(answer["errors"]) == 1
