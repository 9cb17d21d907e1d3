"""`harness cloudlab inventory`: a manifest in, an inventory file out."""

import sys
from pathlib import Path

from cloudlab import inventory, manifest
from harness.cluster.inventory_file import replace_file
from harness.errors import ExitCode
from harness.sweep.provenance import collect


def write_inventory(source: Path, out: Path, user: str | None, key: Path | None) -> ExitCode:
    """Writes the inventory of the manifest `source` to `out` and prints its hosts; a mistake leaves `out` as it was."""
    made = inventory.make(manifest.load(source), str(source), user, None if key is None else str(key))
    replace_file(out, inventory.to_toml(made, _provenance(source)))
    for host in made.hosts:
        login = host.address if host.user is None else f"{host.user}@{host.address}"
        print(f"{host.name}  {login}:{host.port}  {', '.join(str(nic.ipv4.ip) for nic in host.nics)}")
    print(f"{out}: {len(made.hosts)} hosts, {len(made.rails)} rails")
    return ExitCode.OK


def _provenance(source: Path) -> dict[str, str | bool]:
    facts = collect(["harness", *sys.argv[1:]])
    known = {name: facts[name] for name in ("commit", "dirty", "command") if facts[name] is not None}
    return {"manifest": str(source), **known}
