"""Reads and writes inventory files (TOML); every mistake in one is a line."""

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.cluster.inventory import Inventory, mistakes
from harness.errors import InventoryError, MistakeError
from harness.experiment.mistakes import read_toml, translated
from r2ccl_core.errors import UsageError

_ABSENT = "make it with `harness cluster discover` or `harness cluster inventory`"


def load(path: Path) -> Inventory:
    """The inventory in `path`; paths in it are relative to its folder. Raises `InventoryError`, `MistakeError`."""
    return parse(read_toml(path, _ABSENT), str(path)).relative_to(path.absolute().parent)


def parse(document: Mapping[str, Any], file: str) -> Inventory:
    """The inventory that a parsed TOML file describes; raises `InventoryError`, one line per mistake."""
    try:
        inventory = Inventory.model_validate(document)
    except ValidationError as error:
        raise InventoryError(
            [MistakeError(file, *mistake) for mistake in translated(error, Inventory, document)]
        ) from None
    found = [MistakeError(file, *mistake) for mistake in mistakes(inventory)]
    if found:
        raise InventoryError(found)
    return inventory


def to_toml(inventory: Inventory) -> str:
    """The inventory as a TOML document that `parse` reads back; one line per NIC."""
    lines = [f"schema = {inventory.schema_version}"]
    if inventory.rails:
        lines.append(f"rails = {_value(list(inventory.rails))}")
    if inventory.provenance:
        lines += ["", "[provenance]", *_pairs(inventory.provenance)]
    for table, places in (("host", inventory.hosts), ("switch", inventory.switches)):
        for place in places:
            lines += ["", f"[[{table}]]", *_place_lines(place.model_dump(by_alias=True, exclude_defaults=True))]
    return "\n".join(lines) + "\n"


def save(inventory: Inventory, path: Path) -> None:
    """Writes the whole file or nothing; only its owner may read it, because it contains the log-ins."""
    replace_file(path, to_toml(inventory))


def replace_file(path: Path, text: str) -> None:
    """Replaces `path` by `text` atomically, readable by its owner alone. Raises `UsageError`."""
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


def _place_lines(values: dict[str, Any]) -> Iterator[str]:
    nics = values.pop("nics", ())
    yield from _pairs(values)
    if nics:
        yield "nics = ["
        for nic in nics:
            yield f"    {{ {', '.join(_pairs(nic))} }},"
        yield "]"


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(name)} = {_value(value)}" for name, value in table.items() if value is not None)


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else _value(name)


def _value(value: object) -> str:
    """A TOML value. Its basic strings escape as JSON's do, except that TOML forbids a bare DEL."""
    if isinstance(value, dict):
        return f"{{ {', '.join(_pairs(value))} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
