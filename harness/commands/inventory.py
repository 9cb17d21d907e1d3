"""`harness cluster inventory` and `harness cluster discover`: write inventory files for hosts that are listed
elsewhere."""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.cluster import export, hostfile, inventory_file, slurm, state
from harness.cluster.clean import living
from harness.cluster.discover import discover
from harness.cluster.gather import looking_at
from harness.cluster.inventory import Inventory
from harness.errors import ExitCode, InventoryError, MistakeError
from harness.experiment.tables import nearest
from harness.sweep.provenance import collect
from harness.terminal import complain
from r2ccl_core.errors import UsageError
from r2ccl_core.text_file import is_file, is_there, text_of
from r2ccl_core.units import format_rate


@dataclass(frozen=True)
class LoginOptions:
    """How SSH reaches hosts of which only the address is known."""

    user: str | None = None
    port: int | None = None
    key: Path | None = None
    known_hosts: Path | None = None
    sudo: bool = False
    python: str | None = None

    def __post_init__(self) -> None:
        """Raises `UsageError` for a file that does not exist."""
        for name, path in (("--key", self.key), ("--known-hosts", self.known_hosts)):
            if path is not None and not is_file(path.expanduser()):
                what = "is no regular file" if is_there(path.expanduser()) else "there is no such file"
                raise UsageError(f"{name} {path}: {what}")

    def refuse(self, why: str) -> None:
        """Raises `UsageError` if anything is given, for hosts whose log-ins are known otherwise."""
        if given := self.fields():
            raise UsageError(f"--{next(iter(given)).replace('_', '-')}: {why}; leave it out")

    def fields(self) -> dict[str, Any]:
        """The given options, as keys of the inventory; paths become absolute, so the file can be moved."""
        paths = {name: getattr(self, name) for name in ("key", "known_hosts")}
        given = {"user": self.user, "port": self.port, "sudo": self.sudo or None, "python": self.python}
        given |= {name: None if path is None else str(path.expanduser().absolute()) for name, path in paths.items()}
        return {name: value for name, value in given.items() if value is not None}


def of_slurm(login: LoginOptions, environ: Mapping[str, str] = os.environ) -> Inventory:
    """The hosts of the Slurm allocation in which this process runs."""
    return _of_hosts([hostfile.Entry(host) for host in slurm.hosts(environ)], login, "SLURM_JOB_NODELIST")


def of_hostfile(path: Path, login: LoginOptions) -> Inventory:
    """The hosts of an Open MPI or MPICH host file."""
    try:
        text = text_of(path)
    except OSError as error:
        raise MistakeError(str(path), "", None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise MistakeError(str(path), "", None, "is not text; give a host file of Open MPI or MPICH") from None
    return _of_hosts(hostfile.parse(text, str(path)), login, str(path))


def of_addresses(hosts: Sequence[str], login: LoginOptions) -> Inventory:
    """The hosts named on the command line, ``user@address`` or ``address``."""
    nameless = next((host for host in hosts if host.startswith("@")), None)
    if nameless is not None:
        raise MistakeError("HOST", "", nameless, "names nobody before the @; write user@address, or the address alone")
    entries = [hostfile.Entry(host.rpartition("@")[2], host.rpartition("@")[0] or None) for host in hosts]
    return _of_hosts(entries, login, "HOST")


def of_local(tag: str) -> Inventory:
    """A running local cluster, by its tag or its name."""
    records = [record for record in map(state.read, living()) if record is not None]
    chosen = [record for record in records if tag in (record.tag, record.name)]
    if len(chosen) != 1:
        known = [record.tag for record in records]
        if not known:
            raise UsageError(f"--local: {tag}: no local cluster is up; bring one up with `harness cluster up FILE`")
        raise UsageError(f"--local: {tag}: no such cluster, or several; {nearest(tag, known)}")
    return export.of_local(chosen[0], chosen[0].python or sys.executable)


def write(inventory: Inventory, out: Path, look: bool = True) -> ExitCode:
    """Completes the inventory by examining its hosts, writes it, and prints its contents.

    Status 1 if a host could not be examined; each such host has a line. If none could be, no file is written.
    """
    errors: Sequence[str] = ()
    made: Inventory | None = inventory
    if look:
        with looking_at(inventory) as place:
            found = discover(place)
        made, errors = found.inventory, [str(error) for error in found.errors.values()]
        print("".join(f"{note}\n" for note in found.notes), end="")
    for error in errors:
        complain(error)
    if made is None:
        return ExitCode.WRONG
    made = made.model_copy(update={"provenance": _provenance()})
    save_beside_old(made, out)
    for host in made.hosts:
        nics = ", ".join(_nic_line(nic) for nic in host.nics) or "no NICs"
        print(f"{host.name}  {host.address}  {nics}" + (f"  {host.gpus} GPUs" if host.gpus else ""))
    print(f"{out}: {len(made.hosts)} hosts, {len({nic.rail for host in made.hosts for nic in host.nics})} rails")
    return ExitCode.WRONG if errors else ExitCode.OK


def save_beside_old(made: Inventory, out: Path) -> None:
    """Writes an inventory; an existing one, which may have been edited, is kept beside it."""
    if is_file(out):
        kept = out.with_name(f"{out.name}.bak")
        out.replace(kept)
        print(f"{out}: existed already; kept as {kept}")
    inventory_file.save(made, out)


def _nic_line(nic: Any) -> str:
    rate = f" {format_rate(nic.rate_bit_s)}" if nic.rate_bit_s else ""
    return f"{nic.rail}: {nic.known_by}{rate}"


def _of_hosts(entries: Sequence[hostfile.Entry], login: LoginOptions, source: str) -> Inventory:
    common = login.fields()
    names = _names([entry.address for entry in entries])
    hosts = [
        {"name": name, "address": entry.address} | common | ({"user": entry.user} if entry.user else {})
        for name, entry in zip(names, entries, strict=True)
    ]
    try:
        return inventory_file.parse({"schema": 1, "host": hosts}, source)
    except InventoryError as error:
        raise _as_given(error.errors[0], common, source) from None


def _as_given(mistake: MistakeError, options: Mapping[str, Any], source: str) -> UsageError:
    """The mistake by the option or the list it comes from: nobody wrote the key, such as ``host[0].port``."""
    key = mistake.key.rpartition(".")[2]
    if key in options and mistake.value == options[key]:
        return UsageError(f"--{key.replace('_', '-')} {mistake.value}: {mistake.remedy}")
    return MistakeError(source, "", mistake.value, mistake.remedy)


def _names(addresses: Sequence[str]) -> list[str]:
    """The first label of each DNS name, or the whole name if the label is not unique; an IP address is unchanged."""
    labels = [a if a.replace(".", "").isdigit() or ":" in a else a.partition(".")[0] for a in addresses]
    counts = Counter(labels)
    chosen = [label if counts[label] == 1 else address for label, address in zip(labels, addresses, strict=True)]
    return [name.replace(":", "-").strip("-") for name in chosen]


def _provenance() -> dict[str, Any]:
    facts = collect(["harness", *sys.argv[1:]])
    return {name: facts[name] for name in ("commit", "dirty", "command") if facts[name] is not None}
