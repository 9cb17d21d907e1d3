"""The layout of a local cluster, its spec's limits, and the files of its SSH servers: pure functions."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from harness.cluster.layout import SUBNETS, lay_out, tag_of
from harness.cluster.rights import effective_capabilities
from harness.cluster.spec import LocalSpec
from harness.cluster.sshd import Account, configuration
from r2ccl_core.model.token_bucket import TokenBucket

BIGGEST = LocalSpec(hosts=250, nics=100)


def test_every_name_fits_and_carries_the_tag() -> None:
    layout = lay_out(BIGGEST, "0123abcd", SUBNETS[0])
    names = [layout.switch, layout.uplink, *(host.namespace for host in layout.hosts)]
    assert {tag_of(name) for name in names} == {"0123abcd"}
    interfaces = [layout.uplink, *(p for h in layout.hosts for p in (*h.ports, h.management_port))]
    assert max(map(len, interfaces)) <= 15
    assert len(set(interfaces)) == len(interfaces)


def test_every_address_is_its_own() -> None:
    layout = lay_out(BIGGEST, "0123abcd", SUBNETS[-1])
    addresses = [layout.uplink_address, *(h.address for h in layout.hosts)]
    addresses += [nic.address for h in layout.hosts for nic in h.nics]
    assert len(set(addresses)) == len(addresses)
    assert all(0 < int(part) < 255 for a in addresses for part in a.split(".")[3:])
    assert layout.hosts[2].nics[1].address == "10.101.0.3"


@pytest.mark.parametrize(
    "name", ["r2ccl-0123abcd", "r2ccl-0123abcg-host0", "r2ccl-0123abcd-host", "r2m", "r2m0123abcde", "eth0"]
)
def test_other_names_are_not_ours(name: str) -> None:
    assert tag_of(name) is None


@pytest.mark.parametrize("rate_bit_s", [1e6, 1e8, 5e8, 1e10, 3e10])
def test_a_gso_packet_passes_whole_and_waits_not_long(rate_bit_s: float) -> None:
    limit = TokenBucket.for_rate(rate_bit_s)
    assert limit.rate_bytes_s == rate_bit_s / 8
    assert limit.burst_bytes > 65536 + 100
    assert limit.limit_bytes > 2 * 65536
    if rate_bit_s >= 5e8:
        assert limit.limit_bytes / limit.rate_bytes_s <= 0.02


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hosts", 251, "less than or equal to 250"),
        ("nics", 101, "less than or equal to 100"),
        ("rate", "500 Mbyte", "unknown unit"),
        ("rate", "1 Tbit/s", "choose between"),
        ("delay", "1 min", "at most"),
        ("mtu", 100, "greater than or equal to 576"),
        ("name", "../etc", "match pattern"),
        ("host", 3, "Extra inputs"),
    ],
)
def test_an_impossible_spec_is_refused(key: str, value: object, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        LocalSpec.model_validate({key: value})
    assert caught.value.errors()[0]["loc"] == (key,)


def test_an_account_gets_a_plain_shell_and_others_stay() -> None:
    account = Account("nobody", 65534, 65534, "/home/x")
    text = account.passwd("root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/usr/sbin/nologin\n")
    assert text == "nobody:x:65534:65534::/home/x:/bin/sh\nroot:x:0:0:root:/root:/bin/bash\n"


def test_a_server_listens_on_its_management_address_only() -> None:
    host = lay_out(LocalSpec(), "0123abcd", "198.18.3").hosts[1]
    text = configuration(Path("/tmp/x"), host, Account("root", 0, 0, "/root"))
    assert "ListenAddress 198.18.3.2:22\n" in text
    assert "AuthenticationMethods publickey\n" in text
    assert "AllowUsers root\n" in text


def test_capabilities_are_read_from_status() -> None:
    assert effective_capabilities("Name:\tx\nCapPrm:\t0000\nCapEff:\t0000000000201000\n") == 0x201000
