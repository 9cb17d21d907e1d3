"""Which interfaces become data NICs, and which of them a rail."""

import pytest
from link_facts import links

from harness.cluster.gather import Endpoint, Probe, Reached
from harness.cluster.rails import DataNic, connected, data_nics, group, pairs


def nics(*places: str) -> list[DataNic]:
    """``host/nic/address`` each."""
    found = []
    for place in places:
        host, nic, address = place.split(" ")
        found += data_nics(host, links({nic: {"addresses": [address], "mtu": 9000}}))
    return found


def names(rails: list[list[DataNic]]) -> list[list[str]]:
    return [[f"{nic.endpoint.host}/{nic.endpoint.nic}" for nic in rail] for rail in rails]


def test_only_physical_interfaces_that_are_up_free_and_addressed_are_data_nics() -> None:
    known = links(
        {
            "lo": {"loopback": True, "physical": False, "addresses": ["127.0.0.1/8"]},
            "eno1": {"addresses": ["192.0.2.1/24"]},
            "ens1": {"addresses": ["10.0.0.1/24"]},
            "ens2": {"addresses": ["fe80::1/64"]},
            "ens3": {"addresses": ["10.0.3.1/24"], "carrier": False},
            "ens4": {"addresses": ["10.0.4.1/24"], "master": "bond0"},
            "bond0": {"addresses": ["10.0.5.1/24"], "physical": False, "kind": "bond"},
            "docker0": {"addresses": ["172.17.0.1/16"], "physical": False, "kind": "bridge"},
            "wg0": {"addresses": ["10.9.0.1/24"], "physical": False, "kind": "wireguard"},
            "veth7": {"addresses": ["10.0.6.1/24"], "physical": False, "kind": "veth"},
            "ib0": {"addresses": ["10.0.7.1/24"], "kind": "ipoib"},
            "ens9": {"addresses": ["fd00::1/64"]},
        },
        default_routes=["eno1"],
    )
    found = [(nic.endpoint.nic, nic.endpoint.address) for nic in data_nics("a", known)]
    assert found == [("ens1", "10.0.0.1"), ("veth7", "10.0.6.1"), ("ib0", "10.0.7.1"), ("ens9", "fd00::1")]


@pytest.mark.parametrize(
    ("known", "rails"),
    [
        (
            nics("a x 10.0.1.1/24", "a y 10.0.0.1/24", "b q 10.0.0.2/24", "b p 10.0.1.2/24"),
            [["a/y", "b/q"], ["a/x", "b/p"]],
        ),
        (
            nics("a x 10.0.0.1/16", "a y 10.0.0.2/16", "b x 10.0.0.3/16", "b y 10.0.0.4/16"),
            [["a/x", "b/x"], ["a/y", "b/y"]],
        ),
        (
            nics("a x 10.0.0.0/31", "a y 10.0.0.2/31", "b x 10.0.0.4/31", "b y 10.0.0.6/31"),
            [["a/x", "b/x"], ["a/y", "b/y"]],
        ),
        (nics("a x 10.0.0.1/24", "b x 10.0.0.2/24", "a z 10.9.0.1/24"), [["a/x", "b/x"]]),
    ],
    ids=["a subnet a rail", "one subnet for all", "routed, a subnet a NIC", "one that is alone"],
)
def test_nics_are_grouped_by_address(known: list[DataNic], rails: list[list[str]]) -> None:
    assert names(group(known)) == rails


def test_a_rail_is_what_really_answers_on_its_own_nics() -> None:
    rail = nics("a x 10.0.0.1/24", "b x 10.0.0.2/24", "c x 10.0.0.3/24", "d x 10.0.0.4/24", "e x 10.0.0.5/24")
    probes = pairs([[nic.endpoint for nic in rail]])
    assert len(probes) == 20
    good = {frozenset("ab"), frozenset("cd"), frozenset("ce"), frozenset("de")}

    def answer(probe: Probe) -> Reached:
        ends = frozenset((probe.source.host, probe.target.host))
        if ends == frozenset("ad"):
            return Reached("mgmt0", 90)
        return Reached("x", 90) if ends in good else Reached(None, None, "no answer")

    assert names(connected(rail, {probe: answer(probe) for probe in probes})) == [["c/x", "d/x", "e/x"], ["a/x", "b/x"]]
    one_way = {p: Reached("x" if p.source.host == "a" else None) for p in probes}
    assert connected(rail, one_way) == []
    assert Endpoint("a", "x", "10.0.0.1", 9000) == rail[0].endpoint
