"""A cluster of existing hosts: connected by an inventory, used, and left as they were. Nothing is made on them.

`up` opens all sessions at once and finds every NIC of the inventory among the host's interfaces. A single unusable host
keeps the cluster down, and the error has a line for each such host.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Self

from harness.cluster.find_nics import find_nics
from harness.cluster.inventory import InventoryHost, Login
from harness.cluster.spec import InventorySpec
from harness.errors import ClusterError, HostError
from harness.hosts.base import Host
from harness.hosts.each import for_each
from harness.hosts.links import Links
from harness.hosts.ssh import SshHost, SshLogin


class ExistingCluster:
    """See the module."""

    def __init__(self, spec: InventorySpec) -> None:
        self.spec = spec
        self._entries = {host.name: host for host in spec.content.hosts}
        self._hosts = [ssh_host(host) for host in spec.content.hosts]
        self._switches = [ssh_host(switch) for switch in spec.content.switches]

    @property
    def hosts(self) -> list[Host]:
        """Its hosts in the order of their ranks; without NICs while it is down."""
        return list(self._hosts)

    @property
    def switches(self) -> list[Host]:
        """The Linux switches that SSH reaches."""
        return list(self._switches)

    def up(self) -> None:
        """Connects every host and finds its NICs. Raises `ClusterError` with a line for every unusable host."""
        try:
            switches = for_each(self._switches, _connected)
            ports = {name: links for name, links in switches.items() if isinstance(links, Links)}
            hosts = for_each(self._hosts, lambda host: self._connect(host, ports))
            results = [*hosts.values(), *switches.values()]
            raise_all([result for result in results if isinstance(result, HostError)])
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Ends the sessions; harmless twice."""
        for_each([*self._hosts, *self._switches], lambda host: host.close())

    def describe(self) -> dict[str, Any]:
        """The description of the cluster, as JSON values, without its log-ins."""
        hosts = [{"name": h.name, "address": h.address, "nics": [asdict(n) for n in h.nics]} for h in self._hosts]
        switches = [{"name": switch.name, "address": switch.address} for switch in self._switches]
        return {"kind": "inventory", "inventory": self.spec.inventory, "hosts": hosts, "switches": switches}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.down()

    def _connect(self, host: Host, ports: Mapping[str, Links]) -> None:
        assert isinstance(host, SshHost)
        links, entry = _connected(host), self._entries[host.name]
        host.address = management_address(entry, links)
        host.management = management_nic(host.address, links)
        host.nics = find_nics(entry, links, ports)


def _connected(host: Host) -> Links:
    assert isinstance(host, SshHost)
    host.connect()
    return host.links()


def ssh_host(place: Login) -> SshHost:
    """A host of an inventory, not connected; its NICs are found later."""
    login = SshLogin(
        address=place.address,
        port=place.port,
        user=place.user,
        key_file=_path(place.key),
        known_hosts=_path(place.known_hosts),
        python=place.python,
        become_root=place.become_root,
    )
    return SshHost(place.name, login, ())


def management_address(entry: InventoryHost, links: Links) -> str:
    """The address at which the other hosts reach it: the inventory's, else the local address of its SSH session.

    A DNS name would not do: on the host itself it often means 127.0.1.1, where the others cannot reach rank 0.
    """
    if entry.management is not None:
        return entry.management
    if links.session is not None and not ip_address(links.session[0]).is_loopback:
        return links.session[0]
    return entry.address


def management_nic(address: str, links: Links) -> str | None:
    """The interface that has `address`; None if it is a name, or belongs to another machine that forwards."""
    try:
        return next((link.name for link in links.by_name.values() if link.has_address(address)), None)
    except ValueError:
        return None


def raise_all(errors: Sequence[HostError]) -> None:
    """Raises `ClusterError` with a line for each error, if there is any."""
    if len(errors) == 1:
        raise ClusterError(str(errors[0]))
    if errors:
        raise ClusterError("\n".join([f"{len(errors)} hosts cannot be used:", *map(str, errors)]))


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser()
