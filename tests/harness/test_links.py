"""Which interfaces of a host must never be touched, for hosts with bonds, bridges and VLANs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import link_facts
import pytest

from harness.hosts import interfaces
from harness.hosts.links import Links, read_links
from harness.hosts.noop import NoopHost


def host(links: dict[str, dict[str, Any]], **told: Any) -> Links:
    """The links of a host that is reached over SSH."""
    return link_facts.links(links, **{"session": {"local": "192.0.2.1", "peer": "192.0.2.9"}} | told)


LO: dict[str, Any] = {"loopback": True, "addresses": ["127.0.0.1/8"]}
SSH: dict[str, Any] = {"addresses": ["192.0.2.1/24", "fe80::1/64"]}


@pytest.mark.parametrize(
    ("known", "reserved"),
    [
        (host({"lo": LO, "eno1": SSH, "ens1": {"addresses": ["10.0.0.1/24"]}}), {"lo", "eno1"}),
        (
            host({"eno1": {"master": "bond0"}, "eno2": {"master": "bond0"}, "bond0": SSH, "ens1": {}}),
            {"eno1", "eno2", "bond0"},
        ),
        (
            host({"e1": {"master": "bond0"}, "bond0": {}, "bond0.7": SSH | {"parent": "bond0"}, "ens1": {}}),
            {"e1", "bond0", "bond0.7"},
        ),
        (host({"br0": SSH, "eno1": {"master": "br0"}, "vnet0": {"master": "br0"}}), {"br0", "eno1", "vnet0"}),
        (host({"eno1": SSH | {"master": "br0"}, "br0": {}, "vnet0": {"master": "br0"}}), {"eno1", "br0"}),
        (host({"eno1": {}, "eno1.5": {"parent": "eno1"}}, default_routes=["eno1"], session=None), {"eno1"}),
        (host({"a": {}, "b": SSH, "c": {}}, reply_route="a"), {"a", "b"}),
        (host({"a": {}}, session=None), set()),
    ],
    ids=["plain", "bond", "vlan on a bond", "bridge", "port of a bridge", "default route", "reply route", "nothing"],
)
def test_what_carries_ssh_or_the_default_route_is_reserved(known: Links, reserved: set[str]) -> None:
    assert known.reserved() == reserved


def test_the_kernel_is_asked_without_any_program_or_package() -> None:
    script = Path(interfaces.__file__)
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(script)],
        env={"SSH_CONNECTION": "127.0.0.1 40000 127.0.0.1 22", "PATH": "/nowhere"},
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    loopback = read_links(told).by_name["lo"]
    assert loopback.loopback and loopback.has_address("127.0.0.1")
    assert told["session"] == {"local": "127.0.0.1", "peer": "127.0.0.1"}
    assert told["reply_route"] == "lo"


def test_this_machine_as_a_host_protects_itself() -> None:
    here = NoopHost()
    here.connect()
    try:
        assert "lo" in here.reserved()
    finally:
        here.close()
