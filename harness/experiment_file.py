"""Reads an experiment file: TOML, then ``--set key=value``, then the models; every mistake is one line.

file: key: value: remedy
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.cluster import inventory_file
from harness.cluster.inventory import Inventory
from harness.errors import ExperimentError, InvalidExperimentError
from harness.experiment import Experiment, mistakes
from harness.fault_places import placed
from harness.mistakes import read_toml, translated
from harness.tables import nearest
from harness.trace import read_trace

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_KEY = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*\Z")


_ABSENT = "see experiments/ for examples"


def load(path: Path, settings: Sequence[str] = (), inventory: Path | None = None) -> Experiment:
    """The experiment in `path`, on the hosts of `inventory` if that is given, with `settings` (``key=value``) applied.

    Raises `InvalidExperimentError` and `InventoryError`, one line a mistake; nothing is touched.
    """
    file = str(path)
    document = read_toml(path, _ABSENT)
    if inventory is not None:
        document["cluster"] = {"kind": "inventory", "inventory": str(inventory.absolute())}
    for setting in settings:
        apply(document, setting)
    _read_traces(document, path)
    return read(document, file)


def read(document: Mapping[str, Any], file: str) -> Experiment:
    """The experiment that `document`, a parsed TOML file, describes; raises `InvalidExperimentError`.

    An inventory that it names is read, too, from beside `file`: raises `InventoryError`.
    """
    document = _with_inventory(document, file)
    try:
        experiment = placed(Experiment.model_validate(document))
    except ValidationError as error:
        found = [ExperimentError(file, *mistake) for mistake in translated(error, Experiment)]
        raise InvalidExperimentError(found) from None
    found = [ExperimentError(file, *mistake) for mistake in mistakes(experiment)]
    if found:
        raise InvalidExperimentError(found)
    return experiment


def apply(document: dict[str, Any], setting: str) -> None:
    """Set one key of `document` in place: ``sweep.repeats=2``, ``fault[0].nic=eth1``, ``system[0].mode=2``.

    The value is TOML (``["1MiB"]``, ``3``, ``true``); what is no TOML is text.
    """
    key, separator, text = setting.partition("=")
    if not separator or not key.strip():
        raise ExperimentError("--set", setting, None, "write key=value, for example sweep.repeats=2")
    *path, last = _steps(key.strip(), setting)
    place: Any = document
    for step in path:
        place = _descend(place, step, setting)
    _put(place, last, _value(text.strip()), setting)


def _read_traces(document: dict[str, Any], path: Path) -> None:
    """Puts the events of trace files, named relative to the experiment, where the files are named."""
    faults = document.get("fault")
    for index, fault in enumerate(faults if isinstance(faults, list) else ()):
        trace = fault.pop("trace", None) if isinstance(fault, dict) else None
        if trace is not None:
            key = f"fault[{index}].trace"
            if not isinstance(trace, str):
                raise ExperimentError(str(path), key, trace, "name a file of failures in quotes")
            fault["events"] = read_trace(path.parent / trace, str(path), key)


def _steps(key: str, setting: str) -> list[str | int]:
    """``fault[0].nic`` as ``['fault', 0, 'nic']``."""
    if not _KEY.match(key):
        raise ExperimentError("--set", setting, None, "write keys like workload.iterations or fault[0].nic")
    return [int(index) if index else name for name, index in _STEP.findall(key)]


def _descend(place: Any, step: str | int, setting: str) -> Any:
    if isinstance(place, dict) and isinstance(step, str):
        return place.setdefault(step, {})
    if isinstance(place, list) and isinstance(step, int) and step < len(place):
        return place[step]
    raise ExperimentError("--set", setting, None, f"there is nothing at {step!r}")


def _put(place: Any, name: str | int, value: object, setting: str) -> None:
    fits_table = isinstance(place, dict) and isinstance(name, str)
    fits_list = isinstance(place, list) and isinstance(name, int) and name < len(place)
    if not (fits_table or fits_list):
        raise ExperimentError("--set", setting, None, f"there is nothing at {name!r} to set")
    place[name] = value


def _with_inventory(document: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """`document` with the content of the inventory that its cluster names; a stored document has it already."""
    table = document.get("cluster")
    if not isinstance(table, Mapping) or table.get("kind") != "inventory" or "content" in table:
        return document
    name = table.get("inventory")
    if not isinstance(name, str):
        raise ExperimentError(file, "cluster.inventory", name, 'name the file: inventory = "hosts.toml"')
    content = inventory_file.load(Path(file).parent / Path(name).expanduser())
    names = _chosen(content, table.get("hosts"), file)
    return {**document, "cluster": {**table, "content": content.subset(names)}}


def _chosen(content: Inventory, hosts: object, file: str) -> list[str]:
    """The names of the hosts that `cluster.hosts` keeps; the model refuses what is neither a number nor names."""
    known = [host.name for host in content.hosts]
    if isinstance(hosts, int) and not isinstance(hosts, bool):
        if not 1 <= hosts <= len(known):
            raise ExperimentError(file, "cluster.hosts", hosts, f"the inventory has {len(known)} hosts")
        return known[:hosts]
    if not isinstance(hosts, list | tuple):
        return known
    for name in hosts:
        if name not in known or hosts.count(name) > 1:
            remedy = "is there twice" if name in known else f"no such host; {nearest(str(name), known)}"
            raise ExperimentError(file, "cluster.hosts", name, remedy)
    return list(hosts)


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
