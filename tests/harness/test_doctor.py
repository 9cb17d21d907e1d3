"""`harness doctor`: yes, no or unknown, for made-up hosts."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from ipaddress import IPv4Interface
from typing import Any

import pytest
from link_facts import links

from harness.cluster.gather import Endpoint, Surveyed
from harness.cluster.rails import DataNic
from harness.commands.survival import Seen, answers, document, findings
from harness.errors import HostError
from harness.hosts.links import Links

PLUGIN = "/opt/r2ccl/libnccl-net-r2ccl.so"
FACTS: dict[str, Any] = {
    "rights": {"memlock_bytes": None, "open_files": 65536},
    "sysctls": {"all": {"arp_ignore": 1, "arp_announce": 2, "rp_filter": 0}},
    "congestion_control": "cubic",
    "rdma": {"ports": []},
    "nccl": [{"path": "/usr/lib/libnccl.so.2", "version": "2.21.5"}],
    "package": {"version": "0.1.0", "plugin": PLUGIN, "refused": None},
}
SET = {"NCCL_NET_PLUGIN": PLUGIN}

Host = tuple[Surveyed, list[DataNic]]


def links_of(nics: int) -> Links:
    return links({f"eth{number}": {"addresses": [f"198.51.{100 + number}.1/24"]} for number in range(nics)})


def host(name: str, nics: int = 2, **changes: Any) -> Host:
    facts = deepcopy(FACTS)
    for key, value in changes.items():
        facts[key] = {**facts[key], **value} if isinstance(value, dict) else value
    networks = [IPv4Interface(f"198.51.{100 + number}.1/24") for number in range(nics)]
    found = [DataNic(Endpoint(name, f"eth{n}", str(network.ip)), network) for n, network in enumerate(networks)]
    return Surveyed(facts, links_of(nics), "192.0.2.1", 0.0, 0.0), found


def seen(environ: Mapping[str, str] = SET, **hosts: Host) -> Seen:
    rails = [[nics[number] for _, nics in hosts.values() if len(nics) > number] for number in range(4)]
    surveys, nics = ({name: pair[place] for name, pair in hosts.items()} for place in (0, 1))
    return Seen(surveys, nics, [rail for rail in rails if len(rail) > 1], {}, environ)  # type: ignore[arg-type]


def told(what: Seen) -> list[tuple[bool | None, str]]:
    return [(answer.survives, answer.because) for answer in answers(what, findings(what))]


def test_two_nics_and_the_plugin_survive() -> None:
    assert [survives for survives, _ in told(seen(a=host("a"), b=host("b")))] == [True, True]


@pytest.mark.parametrize(
    ("what", "because"),
    [
        (seen(a=host("a", nics=1)), "a has one data NIC, eth0 198.51.100.1: nothing is left"),
        (seen(a=host("a", nics=0)), "a has no NIC with an IPv4 address: data uses loopback"),
        (seen(a=host("a", package={"version": None, "why": "no module"})), "its Python has no r2ccl: no module"),
        (seen({**SET, "R2CC_MODE": "0"}, a=host("a")), "R2CC_MODE=0 stops at the first loss"),
        (seen(a=host("a"), b=host("b", nics=1)), "b has one data NIC"),
    ],
)
def test_what_both_programs_lack(what: Seen, because: str) -> None:
    for survives, said in told(what):
        assert survives is False and because in said


@pytest.mark.parametrize(
    ("what", "because"),
    [
        (seen({}, a=host("a")), "NCCL_NET_PLUGIN is not set"),
        (seen(a=host("a", nccl=[{"path": "/x", "version": "2.18.3"}])), "NCCL 2.18.3 (/x) cannot load the plugin"),
        (seen(a=host("a", package={"plugin": None})), "has no plugin"),
        (seen(a=host("a", package={"refused": "GLIBC_2.38 not found"})), "cannot be loaded: GLIBC_2.38"),
    ],
)
def test_what_only_nccl_lacks(what: Seen, because: str) -> None:
    (ours, _), (nccl, said) = told(what)
    assert ours is True and nccl is False and because in said


ROUTED: dict[str, dict[str, Any]] = {
    "lo": {"loopback": True, "addresses": ["127.0.0.1/8"]},
    "docker0": {"addresses": ["172.17.0.1/16"]},
}


@pytest.mark.parametrize(
    ("known", "because"),
    [
        (
            {"eth0": {"addresses": ["fd00::2/64", "192.0.2.2/24"]}},
            "eth0 192.0.2.2, which also carries SSH or the default route: nothing is left",
        ),
        ({"bond0": {"addresses": ["192.0.2.2/24"], "physical": False}}, "bond0 192.0.2.2: nothing is left"),
        (
            {"eth0": {"addresses": ["192.0.2.2/24"]}, "eth1": {"addresses": ["192.0.3.2/24"]}},
            "a has no NIC for data alone: of eth0, eth1, one with the default route is used only if R2CC_SOCKET_IFNAME",
        ),
        (
            {
                "eth0": {"addresses": ["192.0.2.2/24"]},
                "r2m0123abcd": {"addresses": ["198.18.0.254/24"], "kind": "veth"},
            },
            "a has one NIC that data can use, eth0 192.0.2.2, which also carries SSH or the default route",
        ),
        ({"eth0": {"addresses": ["fd00::2/64"]}}, "a has no NIC with an IPv4 address: data uses loopback"),
    ],
)
def test_without_a_data_nic_the_doctor_says_what_is_used(known: dict[str, Any], because: str) -> None:
    survey, _ = host("a", nics=0)
    routes = [name for name in known if name.startswith("eth")]
    what = seen(a=(replace(survey, links=links(ROUTED | known, default_routes=routes)), []))
    for survives, said in told(what):
        assert survives is False and because in said


def test_hosts_that_share_one_rail_do_not_survive() -> None:
    both = seen(a=host("a"), b=host("b"))
    (ours, said), _ = told(Seen(both.surveys, both.nics, both.rails[:1], {}, SET))
    assert ours is False and "a and b reach each other by one rail only" in said


def test_of_a_host_that_is_not_reached_nobody_can_tell() -> None:
    one = seen(a=host("a"))
    what = Seen(one.surveys, one.nics, one.rails, {"b": HostError("b", "no route; try again")}, SET)
    assert told(what)[0] == (None, "b could not be examined")


def test_rails_that_were_not_tried_say_why() -> None:
    def rails(what: Seen) -> list[str]:
        return [finding.what for finding in findings(what) if finding.topic == "rails"]

    one, lost = seen(a=host("a")), {name: HostError(name, "no route") for name in "bc"}
    assert rails(one) == ["other hosts were not asked"]
    for surveys in (one.surveys, {}):
        (told,) = rails(Seen(surveys, one.nics, [], lost, SET))
        assert told.startswith("fewer than two hosts could be examined")


def test_warnings_decide_nothing_and_the_document_has_all() -> None:
    rdma = {"ports": [{"device": "mlx5_0", "port": 1, "netdev": "ib0"}]}
    what = seen(a=host("a", congestion_control="bbr", rdma=rdma, rights={"open_files": 256}))
    assert told(what)[0][0] is True
    shown = document(what)
    warned = {finding["topic"] for finding in shown["findings"] if finding["severity"] == "warning"}
    assert warned == {"tcp", "rdma", "limits"}
    assert shown["nics"] == {"a": ["eth0", "eth1"]} and json.dumps(shown)


def test_this_machine_is_looked_at() -> None:
    """Whatever it is like: an answer with its reason, and the exit status that goes with it."""
    code = "from harness.commands.start import main; main()"
    run = subprocess.run(
        [sys.executable, "-c", code, "doctor", "--json"],
        capture_output=True, text=True, timeout=270, check=False, env={**os.environ, "R2CC_MODE": "0"},
    )  # fmt: skip
    shown = json.loads(run.stdout)
    assert run.returncode == 1 and shown["answers"][0]["survives"] is False
    assert {"nics", "limits", "package", "tcp", "environment"} <= {finding["topic"] for finding in shown["findings"]}
