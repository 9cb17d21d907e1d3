"""`harness cloudlab inventory`: a manifest in, an inventory file out."""

import os
import sys
import tempfile
from pathlib import Path

from cloudlab import inventory, manifest
from harness.errors import ExitCode
from harness.sweep.provenance import collect
from r2ccl_core.errors import UsageError


def write_inventory(source: Path, out: Path, user: str | None, key: Path | None) -> ExitCode:
    """Writes the inventory of the manifest `source` to `out` and prints its hosts; a mistake leaves `out` as it was."""
    made = inventory.make(manifest.load(source), str(source), user, None if key is None else str(key))
    _replace(out, inventory.to_toml(made, _provenance(source)))
    for host in made.hosts:
        login = host.address if host.user is None else f"{host.user}@{host.address}"
        print(f"{host.name}  {login}:{host.port}  {', '.join(str(nic.ipv4.ip) for nic in host.nics)}")
    print(f"{out}: {len(made.hosts)} hosts, {len(made.rails)} rails")
    return ExitCode.OK


def _provenance(source: Path) -> dict[str, str | bool]:
    facts = collect(["harness", *sys.argv[1:]])
    known = {name: facts[name] for name in ("commit", "dirty", "command") if facts[name] is not None}
    return {"manifest": str(source), **known}


def _replace(path: Path, text: str) -> None:
    """Writes the whole file or nothing; only its owner may read it, because it says how to log in."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}; choose another place with -o") from None
