"""The inventory as values: the hosts, how SSH reaches them, and the rail of each NIC.

`harness.cluster.inventory_file` reads and writes it. A NIC is identified by its interface name, its MAC address or its
IP address, by at least one of them; the others are found on the host.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Interface, IPv6Address, IPv6Interface
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, field_serializer

from harness.experiment.tables import Mistake, Model, Rate

MAX_RAILS = 64

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_ADDRESS = re.compile(r"[A-Za-z0-9:][A-Za-z0-9_.:%-]{0,252}\Z")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\Z")
_INTERFACE = re.compile(r"(?!-)[A-Za-z0-9_.:-]{1,15}\Z")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z")


def _matching(pattern: re.Pattern[str], remedy: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.match(text):
            raise ValueError(remedy)
        return text

    return AfterValidator(check)


def _address(text: str) -> str:
    """An address without a colon unless it is IPv6: the SSH library would take the part after a colon as a port."""
    if not _ADDRESS.match(text) or (":" in text and not _is_ipv6(text)):
        raise ValueError("is not an address: write a DNS name or an IP address, the port apart")
    return text


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _lower(value: object) -> object:
    return value.lower().replace("-", ":") if isinstance(value, str) else value


Name = Annotated[str, _matching(_NAME, "use letters, digits, '-', '_' and '.'")]
Address = Annotated[str, AfterValidator(_address)]
User = Annotated[str, _matching(_USER, "is not a login")]
Interface = Annotated[str, _matching(_INTERFACE, "is not an interface name; name a NIC such as 'ens5f0'")]
Mac = Annotated[
    str, BeforeValidator(_lower), _matching(_MAC, "is not a MAC address; write it like '0c:42:a1:dd:00:2a'")
]


def _root_words(value: object) -> object:
    words = isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value)
    if not words and not isinstance(value, bool):
        raise ValueError("must be true, false, or the words of a command in a list")
    return value


def _as_ipv4(value: object) -> object:
    return _network_address(IPv4Interface, value, "10.10.1.1/24")


def _as_ipv6(value: object) -> object:
    return _network_address(IPv6Interface, value, "fd00::1/64")


def _network_address(kind: Any, value: object, example: str) -> object:
    if isinstance(value, str):
        try:
            return kind(value)
        except ValueError:
            raise ValueError(f"is not an address with its prefix length; write it like {example!r}") from None
    return value


Ipv4 = Annotated[IPv4Interface, BeforeValidator(_as_ipv4), PlainSerializer(str)]
Ipv6 = Annotated[IPv6Interface, BeforeValidator(_as_ipv6), PlainSerializer(str)]


class InventoryNic(Model):
    """One data NIC. `rate` is per direction; `switch_port` is the port of the switch it is plugged into."""

    rail: int = Field(ge=0, lt=MAX_RAILS)
    name: Interface | None = None
    mac: Mac | None = None
    ipv4: Ipv4 | None = None
    ipv6: Ipv6 | None = None
    rate_bit_s: Rate | None = Field(default=None, alias="rate", gt=0)
    rdma: Name | None = None
    """Its RDMA device, such as ``mlx5_0``."""
    switch: Name | None = None
    switch_port: Interface | None = None

    @property
    def address(self) -> str | None:
        """Its IP address without the prefix length; the IPv4 one if it has both."""
        address = self.ipv4 or self.ipv6
        return None if address is None else str(address.ip)

    @property
    def known_by(self) -> str:
        """The value that identifies it on the host, for people."""
        return self.name or self.mac or self.address or "nothing"


class Login(Model):
    """How SSH reaches a host or a switch. Missing values come from the user's own SSH configuration."""

    name: Name
    address: Address
    user: User | None = None
    port: int | None = Field(default=None, ge=1, le=65535)
    key: str | None = Field(default=None, min_length=1)
    """The private key file; relative to the inventory's folder, ``~`` is the user's home."""
    known_hosts: str | None = Field(default=None, min_length=1)
    """The file of known host keys, by default the user's own."""
    sudo: Annotated[bool | tuple[str, ...], BeforeValidator(_root_words)] = False
    """True: root by ``sudo -n``; or the words of another command that gives root without a password."""
    python: str = Field(default="python3", min_length=1)
    """The Python (3.8 or later) there; it also runs the ranks, for which it needs this package."""

    @property
    def become_root(self) -> tuple[str, ...]:
        """The words to put before a command; none if nothing is needed."""
        if isinstance(self.sudo, tuple):
            return self.sudo
        return ("sudo", "-n", "--") if self.sudo else ()


class InventoryHost(Login):
    """One host, and its data NICs by rail."""

    management: Address | None = None
    """Its address for the other hosts, on which rank 0 listens; by default the local address of its SSH session."""
    hardware: str | None = None
    gpus: int | None = Field(default=None, ge=0)
    nics: tuple[InventoryNic, ...] = ()


class InventorySwitch(Login):
    """A Linux switch, on which faults on switch ports run. It has no ranks."""


class Inventory(Model):
    """A whole inventory file."""

    schema_version: Literal[1] = Field(alias="schema")
    rails: tuple[str, ...] = ()
    """The names of the rails, by number."""
    provenance: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """The origin of the file; it does not affect runs."""
    hosts: tuple[InventoryHost, ...] = Field(alias="host", min_length=1)
    switches: tuple[InventorySwitch, ...] = Field(default=(), alias="switch")

    @field_serializer("hosts", "switches", when_used="json")
    def _without_logins(self, places: Sequence[Login]) -> list[dict[str, Any]]:
        """The log-ins are left out: JSON goes into run folders and reports, which are shared."""
        private = {"user", "key", "known_hosts"}
        return [place.model_dump(mode="json", by_alias=True, exclude=private, exclude_none=True) for place in places]

    def subset(self, names: Sequence[str]) -> Self:
        """Only these hosts, in this order."""
        by_name = {host.name: host for host in self.hosts}
        return self.model_copy(update={"hosts": tuple(by_name[name] for name in names)})

    def relative_to(self, folder: PurePath) -> Self:
        """The inventory with the paths of keys and known hosts taken relative to `folder`."""

        def placed(place: Any) -> Any:
            paths = {name: getattr(place, name) for name in ("key", "known_hosts")}
            found = {name: _placed(folder, path) for name, path in paths.items() if path is not None}
            return place.model_copy(update=found)

        return self.model_copy(
            update={"hosts": tuple(map(placed, self.hosts)), "switches": tuple(map(placed, self.switches))}
        )


def _placed(folder: PurePath, path: str) -> str:
    return path if path.startswith("~") else str(folder / path)


def mistakes(inventory: Inventory) -> Iterator[Mistake]:
    """The mistakes between keys that are each valid by themselves."""
    for table, places in (("host", inventory.hosts), ("switch", inventory.switches)):
        for index, place in enumerate(places):
            if any(place.name == other.name for other in places[:index]):
                yield Mistake(f"{table}[{index}].name", place.name, "is there already; give each its own name")
    for index, host in enumerate(inventory.hosts):
        for number, nic in enumerate(host.nics):
            yield from _nic_mistakes(inventory, host, nic, f"host[{index}].nics[{number}]")
        for key in ("rail", "name", "mac"):
            for value in _repeated([getattr(nic, key) for nic in host.nics]):
                yield Mistake(f"host[{index}].nics", value, f"two NICs have this {key}; each has its own")
    addresses = [str(ip.ip) for host in inventory.hosts for nic in host.nics for ip in (nic.ipv4, nic.ipv6) if ip]
    for address in _repeated(addresses):
        yield Mistake("host", address, "two NICs have this address; give each its own")


def _nic_mistakes(inventory: Inventory, host: InventoryHost, nic: InventoryNic, key: str) -> Iterator[Mistake]:
    if nic.name is None and nic.mac is None and nic.address is None:
        yield Mistake(key, None, "give its name, mac, ipv4 or ipv6, so that it can be found on the host")
    if inventory.rails and nic.rail >= len(inventory.rails):
        yield Mistake(f"{key}.rail", nic.rail, f"rails has {len(inventory.rails)} names; name this one, too")
    if (nic.switch is None) != (nic.switch_port is None):
        yield Mistake(key, nic.switch or nic.switch_port, "switch and switch_port belong together; give both")
    known = [switch.name for switch in inventory.switches]
    if nic.switch is not None and nic.switch not in known:
        yield Mistake(f"{key}.switch", nic.switch, "there is no [[switch]] of that name; add it, or leave this out")


def _repeated(values: Sequence[object]) -> list[object]:
    return [value for value, count in Counter(values).items() if value is not None and count > 1]
