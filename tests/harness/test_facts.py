"""What hosts say of an interface, and its state before and after, from what a real kernel said (kernel_says/)."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.errors import CommandError
from harness.hosts.base import Completed
from harness.hosts.facts import (
    Hardware,
    addresses_from,
    device_from,
    hardware_from,
    read_device,
    read_link,
    read_routes,
    routes_from,
)
from harness.hosts.state import State, differences, read_state
from r2ccl_core.model.token_bucket import TokenBucket

FOLDER = Path(__file__).parent / "kernel_says"
RATE_BIT_S = 500e6
PCI, DRIVER = "/sys/devices/pci0000:", "/sys/bus/pci/drivers/"
NOWHERE = {"type": "blackhole", "dst": "10.0.0.0/8"}


def said(name: str) -> list[dict[str, Any]]:
    values: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.json").read_text())
    return values


@pytest.mark.parametrize(
    ("name", "shaping", "occupied", "hooked"),
    [
        ("qdisc_default", None, None, False),
        ("qdisc_ours", TokenBucket.for_rate(RATE_BIT_S), None, False),
        ("qdisc_htb", None, "htb", False),
        ("qdisc_mq", None, "mq", False),
        ("qdisc_clsact", None, None, True),
        ("qdisc_ingress", None, None, True),
    ],
)
def test_what_hangs_on_a_device(name: str, shaping: TokenBucket | None, occupied: str | None, hooked: bool) -> None:
    device = device_from("node1", "va", said(name), RATE_BIT_S)
    assert (device.shaping, device.occupied, device.hooked) == (shaping, occupied, hooked)


@pytest.mark.parametrize("rate_bit_s", [None, 400e6])
def test_a_limit_that_is_not_what_the_rate_asks_for_is_somebody_elses(rate_bit_s: float | None) -> None:
    assert device_from("node1", "va", said("qdisc_ours"), rate_bit_s).occupied == "tbf"


def test_addresses_are_those_that_somebody_set() -> None:
    assert addresses_from(said("addr")) == ("10.9.0.1/24", "2001:db8:1::1/64"), "neither leased nor link-local"


def test_routes_are_those_that_do_not_come_back_by_themselves() -> None:
    assert [" ".join(words) for words in routes_from("va", said("routes"))] == [
        "default via 10.9.0.9 table 101 dev va",
        "10.77.0.0/16 via 10.9.0.9 dev va",
        "10.78.0.0/16 via 192.168.5.5 metric 77 dev va onlink",
        "10.79.0.0/16 src 10.9.0.1 dev va",
        "10.80.0.0/16 via inet6 fe80::2 dev va",
        "2001:db8:77::/48 via 2001:db8:1::9 metric 1024 dev va",
        "::/0 via fe80::1 proto static metric 1024 dev va",
    ]


@pytest.mark.parametrize(
    ("told", "hardware"),
    [
        (("", "", "", ""), Hardware()),
        (
            (f"{PCI}80/0000:80:01.1/0000:81:00.0\n", f"{DRIVER}mlx5_core\n", "mlx5_0\n", "0x0\n"),
            Hardware("0000:81:00.0", "mlx5_core", ("mlx5_0", 1)),
        ),
        ((f"{PCI}00/0000:00:03.0\n", f"{DRIVER}e1000\n", "", "0\n"), Hardware("0000:00:03.0", "e1000")),
        (("/sys/devices/vmbus/f8615163\n", "/sys/bus/vmbus/drivers/hv_netvsc\n", "", "0\n"), Hardware()),
        (("/sys/devices/virtio0\n", "", "", ""), Hardware()),
        (
            (f"{PCI}00/0000:41:00.1\n", f"{DRIVER}mlx4_core\n", "mlx4_0\n", "1\n"),
            Hardware("0000:41:00.1", "mlx4_core", ("mlx4_0", 2)),
        ),
    ],
)
def test_hardware_below_an_interface(told: tuple[str, str, str, str], hardware: Hardware) -> None:
    assert hardware_from(*told) == hardware


class Recorded:
    """A host that says what was recorded."""

    name = "node1"

    def __init__(self, answers: Mapping[str, Any], lacks: tuple[str, ...] = ()) -> None:
        self.answers, self.lacks = answers, lacks

    def run(self, argv: tuple[str, ...], *, timeout_s: float = 60.0, check: bool = True) -> Completed:
        if argv[0] in self.lacks:
            raise CommandError(self.name, argv, 127, f"{argv[0]}: No such file or directory")
        command = " ".join(argv)
        answer = next((value for key, value in self.answers.items() if key in command), [])
        return Completed(tuple(argv), 0, answer if isinstance(answer, str) else json.dumps(answer), "")


def host(lacks: tuple[str, ...] = (), **changed: Any) -> Any:
    answers = {"addr": said("addr"), "route": named(said("routes")), "qdisc": named(said("qdisc_clsact")), "rule": []}
    answers |= {"filter show dev va egress": said("filter")} | changed
    return Recorded(answers, lacks)


def named(values: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As where no device was asked for."""
    return [value | {"dev": "va"} for value in values]


def state(**changed: Any) -> State:
    return read_state(host(**changed), ["va"])


def test_a_host_without_a_program_or_with_an_old_one_has_no_such_part() -> None:
    for odd in (host(lacks=("tc", "ip")), Recorded({"": 'Option "-j" is unknown'})):
        device = read_device(odd, "va", RATE_BIT_S)
        assert (device.shaping, device.occupied, device.hooked) == (None, None, False)
        assert read_link(odd, "va") == ((), None) and read_routes(odd, "va") == ()
        assert read_state(odd, ["va"])["va link"] == "absent"


def test_what_changes_by_itself_is_no_difference() -> None:
    addresses, qdiscs = said("addr"), named(said("qdisc_clsact"))
    for info in addresses[0]["addr_info"]:
        info["valid_life_time"] = 3
        info.pop("tentative", None)
        info.pop("nodad", None)
    addresses[0]["addr_info"] = [info for info in addresses[0]["addr_info"] if not info.get("dynamic")]
    qdiscs[0]["refcnt"] = 17
    routes = [route for route in named(said("routes")) if route.get("protocol") != "ra"]
    local = [route for route in routes if route["dst"] != "10.9.0.7"]
    assert list(differences("node1", state(route=local), state(addr=addresses, qdisc=qdiscs, route=local))) == []
    ours = said("qdisc_ours")
    ours[0]["options"] |= {"burst": 133120, "lat": 13870}
    assert list(differences("node1", state(qdisc=named(said("qdisc_ours"))), state(qdisc=named(ours)))) == []


def without(values: list[dict[str, Any]], wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    kept = [value for value in values if not wanted(value)]
    assert len(kept) < len(values)
    return kept


def slower() -> list[dict[str, Any]]:
    ours = said("qdisc_ours")
    ours[0]["options"]["rate"] -= 1
    return ours


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ({}, {"addr": said("addr")[:0]}, "va link: was UP LOWER_UP mtu 1500 master none UP, is absent"),
        ({}, {"addr": [said("addr")[0] | {"mtu": 9000}]}, "va link: was UP LOWER_UP mtu 1500"),
        ({}, {"addr": [said("addr")[0] | {"flags": ["NO-CARRIER", "UP"]}]}, "is UP NO-CARRIER"),
        ({}, {"addr": [said("addr")[0] | {"addr_info": said("addr")[0]["addr_info"][:1]}]}, "va addresses: was"),
        ({}, {"route": without(named(said("routes")), lambda route: route.get("table") == "101")}, "va routes: was"),
        ({}, {"route": [*named(said("routes")), NOWHERE]}, "routes to nowhere: was nothing"),
        ({}, {"rule": [{"priority": 5, "src": "all", "table": "101"}]}, "rules: was nothing"),
        ({}, {"filter show dev va egress": said("filter") * 2}, "va egress filters: was"),
        ({"qdisc": named(said("qdisc_ours"))}, {"qdisc": named(slower())}, "va qdiscs: was"),
        ({"qdisc": named(said("qdisc_mq"))}, {"qdisc": named(said("qdisc_htb"))}, "va qdiscs: was"),
    ],
)
def test_what_was_changed_is_told(before: dict[str, Any], after: dict[str, Any], what: str) -> None:
    lines = list(differences("node1", state(**before), state(**(before | after))))
    assert any(line.startswith("node1: ") and what in line for line in lines), lines
