"""`harness cloudlab inventory` and `manifest`: turns a manifest into an inventory file, and back for rehearsals."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cloudlab import granted, inventory, manifest
from harness.cluster import inventory_file
from harness.cluster.discover import discover
from harness.cluster.existing import ssh_host
from harness.cluster.gather import looking_at
from harness.cluster.inventory import Inventory
from harness.commands.inventory import of_local, save_beside_old
from harness.errors import ExitCode, HostError, MistakeError
from harness.hosts import host_keys
from harness.hosts.each import for_each
from harness.hosts.ssh import SshHost
from harness.sweep.provenance import collect
from r2ccl_core.errors import UsageError
from r2ccl_core.units import parse_rate

PYTHON = "/opt/r2ccl/bin/python"
"""Where `harness cloudlab setup` installs this package, unless the inventory says otherwise."""


@dataclass(frozen=True)
class Wanted:
    """The values that a manifest does not contain."""

    user: str | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    accept_host_keys: bool = False
    sudo: bool | None = None
    """None: yes, unless the login is root."""
    python: str = PYTHON
    rate: str | None = None
    """The rate of every NIC; if its port is faster, the set-up limits it."""


def write_inventory(source: Path, out: Path, wanted: Wanted) -> ExitCode:
    """Writes the inventory of the manifest `source` to `out` and prints its hosts; after an error, `out` is
    unchanged."""
    if wanted.rate is not None and not parse_rate(wanted.rate):
        raise MistakeError("--rate", wanted.rate, None, "must be more than 0")
    granted_hosts = inventory.make(manifest.load(source), str(source), wanted.user)
    made = of_cloudlab(granted_hosts, wanted, out).model_copy(update={"provenance": _provenance(source)})
    if wanted.accept_host_keys:
        _write_host_keys(made, _known_hosts_of(out))
    save_beside_old(made, out)
    for host in made.hosts:
        login = host.address if host.user is None else f"{host.user}@{host.address}"
        print(f"{host.name}  {login}:{host.port}  {', '.join(str(nic.address) for nic in host.nics)}")
    print(f"{out}: {len(made.hosts)} hosts, {len(made.rails)} rails")
    return ExitCode.OK


def of_cloudlab(given: inventory.Inventory, wanted: Wanted, out: Path) -> Inventory:
    """Converts the hosts of a manifest to an inventory of the harness. Raises `InventoryError`."""
    hosts = [_host(host, wanted, out) for host in given.hosts]
    return inventory_file.parse({"schema": 1, "rails": list(given.rails), "host": hosts}, str(out))


def write_manifest(local: str, out: Path) -> ExitCode:
    """Writes the manifest of a running local cluster to `out`, and prints the command that continues from it."""
    with looking_at(of_local(local)) as place:
        found = discover(place)
    if found.errors or found.inventory is None:
        raise UsageError("\n".join(map(str, found.errors.values())) or f"--local: {local}: has no hosts with NICs")
    inventory_file.replace_file(out, granted.to_manifest(to_cloudlab(found.inventory)))
    first = found.inventory.hosts[0]
    print(f"{out}: {len(found.inventory.hosts)} hosts, as CloudLab would list them; next:")
    login = f"--user {first.user} --key {first.key} --known-hosts {first.known_hosts}"
    print(f"harness cloudlab inventory {out} {login} --python $HOME/r2ccl-rehearsal/bin/python")
    return ExitCode.OK


def to_cloudlab(made: Inventory) -> inventory.Inventory:
    """Converts an inventory whose NICs have MAC and IPv4 addresses to the values of a manifest."""
    hosts = []
    for host in made.hosts:
        nics = [
            inventory.InventoryNic(nic.rail, nic.mac, nic.ipv4)
            for nic in sorted(host.nics, key=lambda nic: nic.rail)
            if nic.mac is not None and nic.ipv4 is not None
        ]
        port = host.port or host_keys.SSH_PORT
        hosts.append(
            inventory.InventoryHost(host.name, host.address, port, host.user, host.hardware or "", tuple(nics))
        )
    return inventory.Inventory(tuple(hosts), made.rails)


def _host(host: inventory.InventoryHost, wanted: Wanted, out: Path) -> dict[str, Any]:
    known_hosts = _known_hosts_of(out).name if wanted.accept_host_keys else _kept(wanted.known_hosts)
    named = {"user": host.user, "key": _kept(wanted.key), "known_hosts": known_hosts, "hardware": host.hardware or None}
    sudo = host.user != "root" if wanted.sudo is None else wanted.sudo
    rate = {} if wanted.rate is None else {"rate": wanted.rate}
    nics = [{"rail": nic.rail, "mac": nic.mac, "ipv4": nic.ipv4.with_prefixlen} | rate for nic in host.nics]
    known = {key: value for key, value in named.items() if value is not None}
    login = {"name": host.name, "address": host.address, "port": host.port, "python": wanted.python, "sudo": sudo}
    return login | known | {"nics": nics}


def _kept(path: Path | None) -> str | None:
    """An absolute path, which stays valid wherever the inventory is moved."""
    return None if path is None else str(path) if str(path).startswith("~") else str(path.absolute())


def _known_hosts_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.known_hosts")


def _write_host_keys(made: Inventory, path: Path) -> None:
    """Raises `UsageError` with a line for every host that presents no key."""

    def fetched(host: Any) -> host_keys.HostKey:
        assert isinstance(host, SshHost)
        return host_keys.fetch(host.name, host.login.address, host.login.port or host_keys.SSH_PORT)

    keys: Mapping[str, host_keys.HostKey | HostError] = for_each([ssh_host(host) for host in made.hosts], fetched)
    errors = [str(key) for key in keys.values() if isinstance(key, HostError)]
    if errors:
        raise UsageError("\n".join(errors))
    found: Sequence[tuple[str, host_keys.HostKey]] = [
        (name, key) for name, key in keys.items() if isinstance(key, host_keys.HostKey)
    ]
    inventory_file.replace_file(path, "".join(f"{key.line}\n" for _, key in found))
    for name, key in found:
        print(f"{name}  {key.kind} {key.fingerprint}: trusted from now on")


def _provenance(source: Path) -> dict[str, str | bool]:
    facts = collect(["harness", *sys.argv[1:]])
    known = {name: facts[name] for name in ("commit", "dirty", "command") if facts[name] is not None}
    return {"manifest": str(source), **known}
