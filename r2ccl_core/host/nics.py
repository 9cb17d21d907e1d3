"""Selects a rank's NICs: R2CC_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, else every data NIC with an IPv4 address.

Without a variable, these interfaces are omitted: loopback, the bridges of containers and virtual machines, and, if
others remain, those of the management network. They are the NIC of the default route and every NIC that is marked by
its alias (``ip link set eno1 alias management``), as the harness marks those of its clusters.

The variables are read as NCCL reads its own: a comma-separated list of prefixes; a leading ``=`` makes them exact
names, and a leading ``^`` excludes them. A list of ``name@address`` names addresses instead, so that several addresses
of one interface stand for as many NICs: ``lo@127.0.1.1,lo@127.0.1.2`` is useful for trials on one machine.
"""

import logging
import os
from collections.abc import Mapping, Sequence

from r2ccl_core import native
from r2ccl_core.errors import UsageError

Nic = tuple[str, str]
"""Interface name and IPv4 address."""

LOOPBACK: Nic = ("lo", "127.0.0.1")
_log = logging.getLogger(__name__)

VARIABLES = ("R2CC_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def find_nics(environ: Mapping[str, str] = os.environ) -> list[Nic]:
    """The NICs to use, ordered by name, or as listed. A host with nothing but loopback uses that.

    Raises `UsageError` if the variable selects nothing.
    """
    variable = next((name for name in VARIABLES if environ.get(name)), None)
    chosen = environ[variable] if variable else ""
    if "@" in chosen:
        return [_named(entry, f"{variable}={chosen}") for entry in chosen.split(",")]
    found: list[Nic]
    left_out: list[tuple[str, str]]
    try:
        found, left_out = native.load().discover_nics(chosen)
    except UsageError as error:
        if variable:
            raise UsageError(f"{variable}={chosen}: {error}") from error
        return [LOOPBACK]
    for name, why in left_out:
        _log.info("no data NIC: %s %s; R2CC_SOCKET_IFNAME can name it", name, why)
    if chosen and (unused := unmatched(chosen, [name for name, _ in found])):
        _log.warning("%s=%s: no NIC that is up and has an IPv4 address matches %s", variable, chosen, ", ".join(unused))
    return found


def unmatched(chosen: str, names: Sequence[str]) -> list[str]:
    """The entries of `chosen`, in the variable's form, that select none of `names`."""
    if chosen.startswith("^"):
        return []
    exact = chosen.startswith("=")
    entries = [entry.strip() for entry in chosen.removeprefix("=").split(",")]
    return [e for e in entries if e and not any(name == e if exact else name.startswith(e) for name in names)]


def checked_nics(nics: Sequence[Nic]) -> Sequence[Nic]:
    """`nics` themselves if they are pairs of texts; else raises `UsageError`."""
    for nic in nics:
        if not (isinstance(nic, tuple | list) and len(nic) == 2 and all(isinstance(part, str) for part in nic)):
            raise UsageError(f"nics: {nic!r} is not a pair of a name and an IPv4 address, as in ('eth1', '10.0.0.1')")
    return nics


def _named(entry: str, where: str) -> Nic:
    name, at, address = entry.strip().partition("@")
    if not (name and at and address):
        raise UsageError(f"{where}: {entry!r} is not name@address; write all entries so, such as eth0@10.0.0.1")
    return name, address
