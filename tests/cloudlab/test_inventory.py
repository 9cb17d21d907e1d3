"""Manifests become inventories, or are refused with every reason on a line of its own."""

import json
import re
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudlab import granted, inventory, manifest
from cloudlab.errors import ManifestError

MANIFESTS = Path(__file__).parent / "manifests"
REFUSED = json.loads((Path(__file__).parent / "refused.json").read_text())
GOOD = sorted(path.name for path in MANIFESTS.glob("*.xml") if path.name not in REFUSED)
R7525 = (MANIFESTS / "r7525_three_lans.xml").read_bytes()


def made(name: str, user: str | None = "ada") -> inventory.Inventory:
    return inventory.make(manifest.parse((MANIFESTS / name).read_bytes(), name), name, user)


def refusal(data: bytes) -> str:
    with pytest.raises(ManifestError) as error:
        inventory.make(manifest.parse(data, "m.xml"), "m.xml", "ada")
    return str(error.value)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_cannot_be_used_is_refused_with_the_reasons(name: str) -> None:
    with pytest.raises(ManifestError) as error:
        made(name)
    assert str(error.value).splitlines() == REFUSED[name]
    assert all(character.isprintable() or character == "\n" for character in str(error.value))


def test_r7525_with_three_lans() -> None:
    hosts = made("r7525_three_lans.xml").hosts
    assert [host.name for host in hosts] == ["node0", "node1", "node2"]
    assert [(host.address, host.port, host.user) for host in hosts][1] == ("192.0.2.21", 22, "ada")
    assert [(nic.rail, nic.mac, str(nic.ipv4)) for nic in hosts[2].nics] == [
        (0, "0c:42:a1:dd:02:2a", "10.10.1.3/24"),
        (1, "0c:42:a1:dd:12:4a", "10.10.2.3/24"),
        (2, "0c:42:a1:dd:22:5a", "10.10.3.3/24"),
    ]


def test_another_version_under_a_prefix_with_storage_and_a_virtual_machine() -> None:
    made_of_it = made("c240g5_protogeni2_storage.xml", user=None)
    assert made_of_it.rails == ("lan9", "lan10"), "numbers count as numbers, and storage is no rail"
    assert [(host.address, host.port) for host in made_of_it.hosts] == [
        ("gpu-0.two.r2ccl-PG0.wisc.cloudlab.example", 22),
        ("pc607.emulab.example", 25011),
    ]
    assert str(made_of_it.hosts[1].nics[1].ipv4) == "10.1.10.2/24", "not the IPv6 address before it"
    assert made_of_it.hosts[0].user == "ada", "the only login there is"


def test_a_manifest_without_namespaces_in_another_order() -> None:
    made_of_it = made("d6515_without_namespaces.xml", user=None)
    assert made_of_it.rails == ("rail0", "rail1"), "by their names, wherever they stand"
    assert [host.address for host in made_of_it.hosts] == [
        "b.small.r2ccl-PG0.utah.cloudlab.example",
        "a.small.r2ccl-PG0.utah.cloudlab.example",
    ]
    assert [nic.mac for nic in made_of_it.hosts[0].nics] == ["9c:dc:71:00:00:20", "9c:dc:71:00:00:21"]
    assert [str(nic.ipv4) for nic in made_of_it.hosts[0].nics] == ["10.10.1.2/24", "10.10.2.2/24"]


def test_logins_of_other_people_stay_behind() -> None:
    text = str(made("r7525_three_lans.xml"))
    assert "ada" in text and "grace" not in text
    with pytest.raises(ManifestError, match="lists the logins of 2 people; say which is yours with --user NAME"):
        made("r7525_three_lans.xml", user=None)


@pytest.mark.parametrize("user", ["-oProxyCommand=reboot", "a b", "x" * 33, "a\nb"])
def test_a_login_that_ssh_could_misread_is_refused(user: str) -> None:
    with pytest.raises(ManifestError, match="is not a login"):
        made("r7525_three_lans.xml", user=user)


@pytest.mark.parametrize("address", ["-oProxyCommand=reboot", "a b", "192.0.2.20\n", "$(reboot)", "a" * 300])
def test_an_address_that_ssh_could_misread_is_refused(address: str) -> None:
    read = manifest.parse(R7525, "m.xml")
    first = replace(read.nodes[0], host_ipv4=address)
    with pytest.raises(ManifestError, match="which is not valid"):
        inventory.make(replace(read, nodes=(first, *read.nodes[1:])), "m.xml", "ada")


@pytest.mark.parametrize("port", ["0", "65536", "-1", "22x", "²²", "9" * 5000])
def test_an_ssh_port_that_is_none_is_refused(port: str) -> None:
    data = R7525.decode().replace('port="22"', f'port="{port}"')
    assert "which is not valid" in refusal(data.encode())


def test_a_request_is_read_although_it_is_no_inventory() -> None:
    request = manifest.load(MANIFESTS / "request.xml")
    assert request.kind == "request"
    assert request.nodes[0].interfaces[0].address == "10.10.1.1"
    assert request.links[0].interfaces == ("node0:nic0",)


@pytest.mark.parametrize("length", range(0, len(R7525) - 10, 97))
def test_a_truncated_manifest_is_refused_in_one_line(length: int) -> None:
    message = refusal(R7525[:length])
    assert "is cut off or no XML" in message and "\n" not in message


def test_depth_and_size_have_limits() -> None:
    assert "is nested deeper than 64" in refusal(b'<rspec type="manifest">' + b"<a>" * 100_000)
    assert "has more than 50000 elements" in refusal(b'<rspec type="manifest">' + b"<a/>" * 100_000)
    assert "is larger than 8 MiB" in refusal(b" " * (manifest.MAX_BYTES + 1))


def test_many_findings_are_cut_short() -> None:
    nodes = "".join(f'<node client_id="?{number}"/>' for number in range(10_000))
    links = "".join(f'<link client_id="rail{number}"/>' for number in range(10_000))
    message = refusal(f'<rspec type="manifest">{nodes}{links}</rspec>'.encode())
    assert message.count("\n") == 19
    assert "has 10000 LANs" in refusal(f'<rspec type="manifest">{links}</rspec>'.encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "iso-8859-1"])
def test_no_encoding_hides_a_document_type(encoding: str) -> None:
    declared = encoding.removesuffix("-sig")
    text = f'<?xml version="1.0" encoding="{declared}"?><!DOCTYPE rspec [<!ENTITY a "b">]><rspec type="manifest"/>'
    assert "has a document type" in refusal(text.encode(encoding))


def test_an_internal_subset_without_entities_is_refused_as_well() -> None:
    assert "has a document type" in refusal(b'<!DOCTYPE rspec SYSTEM "http://127.0.0.1/x"><rspec type="manifest"/>')


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file"):
        manifest.load(tmp_path / "absent.xml")
    with pytest.raises(ManifestError, match="cannot be read: Is a directory"):
        manifest.load(tmp_path)


@given(st.binary(max_size=200), st.integers(0, len(R7525)), st.integers(0, 100))
def test_whatever_the_bytes_are_the_answer_is_an_inventory_or_lines(noise: bytes, place: int, dropped: int) -> None:
    data = R7525[:place] + noise + R7525[place + dropped :]
    try:
        inventory.make(manifest.parse(data, "m.xml"), "m.xml", "ada")
    except ManifestError as error:
        assert all(line.startswith("m.xml: ") for line in str(error).splitlines())


@pytest.mark.parametrize("name", GOOD)
def test_a_manifest_of_hosts_elsewhere_says_what_the_inventory_said(name: str) -> None:
    """What is not CloudLab's can go the same way: a rehearsal."""
    values = made(name)
    text = granted.to_manifest(values)
    assert inventory.make(manifest.parse(text.encode(), "m.xml"), "m.xml") == values


def test_the_manifests_lead_to_nobody() -> None:
    """Who tries one reaches no machine of others: addresses of documentation or of private networks, names of none."""
    for path in MANIFESTS.glob("*.xml"):
        text = path.read_text()
        for address in re.findall(r'\b(?:ipv4|address)="(\d+(?:\.\d+){3})"', text):
            assert ip_address(address).is_private, (path.name, address)  # documentation networks count as private
        assert all(name.endswith(".example") for name in re.findall(r'hostname="([^"]+)"', text)), path.name
