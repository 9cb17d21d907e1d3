"""Reads an experiment file: TOML, then ``--set key=value``, then the models; every mistake is one line.

file: key: value: remedy
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from harness.cluster import inventory_file
from harness.cluster.inventory import Inventory
from harness.cluster.spec import InventorySpec
from harness.errors import MAX_WORD, ExperimentError, InvalidExperimentError
from harness.experiment.examples import hint
from harness.experiment.fault_places import placed
from harness.experiment.keys import KeyPathError, put, steps
from harness.experiment.mistakes import TOO_DEEP, once, read_toml, translated
from harness.experiment.model import Experiment, mistakes
from harness.experiment.sweep import AxisModel
from harness.experiment.tables import Mistake, nearest
from harness.experiment.trace import Trace, read_trace
from harness.systems.catalogue import CATALOGUE
from r2ccl_core.errors import UnitError
from r2ccl_core.text_file import TOO_LONG, absolute, toml_of
from r2ccl_core.units import parse_size


def load(
    path: Path,
    changes: Sequence[str] = (),
    inventory: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> Experiment:
    """The experiment in `path`, on the hosts of `inventory` if given, with `changes` (``key=value``) applied.

    `tell` is called with a line for each of them that changes more than it names. Raises `InvalidExperimentError` and
    `InventoryError`, one line per mistake, of which each that a change makes names this change; nothing is changed.
    """
    try:
        return _load(path, changes, inventory, tell)
    except ExperimentError as error:
        raise _with_causes([error], path, changes, inventory)[0] from None
    except InvalidExperimentError as error:
        raise InvalidExperimentError(_with_causes(error.errors, path, changes, inventory)) from None


def _with_causes(
    errors: Sequence[ExperimentError], path: Path, changes: Sequence[str], inventory: Path | None
) -> list[ExperimentError]:
    """The mistakes, each that is new since one of the changes told as one of this change."""
    told = {str(error): error for error in errors}
    unexplained = {text for text, error in told.items() if error.file == str(path)}
    for count, change in reversed(list(enumerate(changes))):
        if not unexplained:
            break
        before = _complaints(path, changes[:count], inventory)
        for text in unexplained - before:
            told[text] = _of_change(change, told[text])
        unexplained &= before
    return list(told.values())


def _complaints(path: Path, changes: Sequence[str], inventory: Path | None) -> set[str]:
    """Every mistake of the file after these changes."""
    try:
        _load(path, changes, inventory)
    except (ExperimentError, InvalidExperimentError) as error:
        return set(str(error).split("\n"))
    return set()


def _of_change(change: str, error: ExperimentError) -> ExperimentError:
    """The mistake as one of the change; of a long one only the key is told."""
    key = change.partition("=")[0].strip()
    which = "" if error.key == key else f" {key}=..." if len(change) > MAX_WORD else f" {change}"
    return ExperimentError(f"--set{which}", error.key, error.value, error.remedy)


def _load(
    path: Path, changes: Sequence[str], inventory: Path | None, tell: Callable[[str], None] = lambda line: None
) -> Experiment:
    file = str(path)
    document = read_toml(path, hint(path))
    if inventory is not None:
        document["cluster"] = {"kind": "inventory", "inventory": str(absolute(inventory))}
    wider = []
    for change in changes:
        changed = apply(document, change)
        if changed:
            table, _, rest = change.partition("=")[0].strip().partition(".")
            one = f"{table}[{changed[0].strip('[]')}]" + (f".{rest}" if rest else "")
            wider.append(
                f"--set {change} changes {len(changed)} entries: {', '.join(changed)}; one alone: --set {one}=..."
            )
    _refuse_keys_of_axes(document, changes)
    if any(change.partition("=")[0].strip() == "workload.sizes" for change in changes):
        _leave_out_other_sizes(document)
    traces = _read_traces(document, path)
    _place_requests(document, path)
    _leave_out_optional(document, tell)
    try:
        experiment = read(document, file)
    except InvalidExperimentError as invalid:
        raise InvalidExperimentError([_at_its_line(error, traces) for error in invalid.errors]) from None
    for line in wider:
        tell(line)
    return experiment


def _leave_out_optional(document: dict[str, Any], tell: Callable[[str], None]) -> None:
    """Leaves out optional systems that need nccl-tests, of which the experiment names no build."""
    workload, systems = document.get("workload"), document.get("system")
    if not isinstance(workload, dict) or not isinstance(systems, list) or workload.get("nccl_tests") is not None:
        return
    kept = []
    for system in systems:
        if isinstance(system, dict) and system.get("optional") is True and _needs_nccl_tests(system, workload):
            name = system.get("name", system.get("use"))
            tell(f"system {name} is left out: workload.nccl_tests names no build of nccl-tests")
        else:
            kept.append(system)
    document["system"] = kept


def _needs_nccl_tests(system: Mapping[str, Any], workload: Mapping[str, Any]) -> bool:
    entry = CATALOGUE.get(str(system.get("use")))
    fits = entry.backends if entry is not None else ()
    usual = workload.get("backend") if not fits or workload.get("backend") in fits else fits[0]
    return bool(system.get("backend", usual) == "nccl_tests")


def read(document: Mapping[str, Any], file: str) -> Experiment:
    """The experiment that `document`, a parsed TOML file, describes; raises `InvalidExperimentError`.

    The inventory that it names, relative to `file`, is read as well: raises `InventoryError`.
    """
    try:
        experiment = _read(_with_inventory(document, file), file)
        if experiment.axes:
            variants(experiment, file)
    except RecursionError:  # a document that could just be read may be too deep to be copied
        raise ExperimentError(file, "", None, TOO_DEEP) from None
    return experiment


class Variant(NamedTuple):
    """One point of an experiment's axes: its label by axis, the keys it sets, and the resulting experiment."""

    axes: Mapping[str, str]
    settings: Mapping[str, Any]
    experiment: Experiment
    """The experiment at this point, without axes and bounds."""


def variants(experiment: Experiment, file: str = "") -> tuple[Variant, ...]:
    """Every point of the axes, the last axis fastest; without axes the experiment itself.

    Raises `InvalidExperimentError` if a point is no valid experiment.
    """
    if not experiment.axes:
        return (Variant({}, {}, experiment),)
    known: tuple[Variant, ...] | None = experiment._variants
    if known is not None:
        return known
    whole = experiment.model_copy(update={"axes": (), "bounds": ()})
    tables = without_none(whole.resolved())
    if isinstance(experiment.cluster, InventorySpec):
        tables["cluster"]["content"] = experiment.cluster.content  # the stored form lacks the log-in
    point_of = _Points(whole, tables, file)
    experiment._variants = made = tuple(point_of(dict(point)) for point in product(*map(_points, experiment.axes)))
    return made


def _points(axis: AxisModel) -> list[tuple[str, tuple[str, dict[str, Any]]]]:
    return [(axis.label, point) for point in axis.points()]


class _Points:
    """Makes the points of an experiment's axes. Each point reads and checks again the tables that it changes, and
    shares the others, because there may be thousands of points."""

    def __init__(self, whole: Experiment, tables: Mapping[str, Any], file: str) -> None:
        self._whole, self._tables, self._file = whole, tables, file
        fields = Experiment.model_fields.items()
        self._parts = {field.alias or name: getattr(whole, name) for name, field in fields}

    def __call__(self, point: Mapping[str, tuple[str, dict[str, Any]]]) -> Variant:
        """One point. By axis: its text, and the keys that it sets."""
        texts = {label: text for label, (text, _) in point.items()}
        settings = {key: value for _, keys in point.values() for key, value in keys.items()}
        changed = {str(steps(key)[0]) for key in settings}
        document = self._parts | {name: deepcopy(self._tables[name]) for name in changed if name in self._tables}
        for label, (_, keys) in point.items():
            for key, value in keys.items():
                try:
                    put(document, key, value)
                except KeyPathError as error:
                    told = ExperimentError(self._file, f"axis {label}", key, str(error))
                    raise InvalidExperimentError([told]) from None
        if "cluster.hosts" in settings:
            document = _with_fewer_hosts(document, self._file)
        try:
            return Variant(texts, settings, _read(document, self._file, self._whole))
        except InvalidExperimentError as invalid:
            keys = {label: list(keys) for label, (_, keys) in point.items()}
            raise InvalidExperimentError([_on_its_axis(error, keys, texts) for error in invalid.errors]) from None


def _on_its_axis(
    error: ExperimentError, keys: Mapping[str, Sequence[str]], texts: Mapping[str, str]
) -> ExperimentError:
    """The mistake, with the value of the axis that sets its key; with those of all axes if none does."""
    at = _plain_key(error.key)
    paths = {label: [_plain_key(key) for key in own] for label, own in keys.items()}
    mine = [label for label, own in paths.items() if any(f"{at}.".startswith(f"{path}.") for path in own)]
    where = ", ".join(f"axis {label} {texts[label]}" for label in mine or texts)
    return ExperimentError(error.file, ": ".join(filter(None, (where, error.key))), error.value, error.remedy)


def _plain_key(key: str) -> str:
    """A key without the numbers and names of entries."""
    return re.sub(r"\[[^\]]*\]", "", key)


def _read(document: Mapping[str, Any], file: str, right: Experiment | None = None) -> Experiment:
    """The experiment; parts shared with the valid experiment `right` are not checked again."""
    try:
        experiment = placed(Experiment.model_validate(document))
    except ValidationError as error:
        raise _invalid(file, translated(error, Experiment, document), document) from None
    found = mistakes(experiment, right)
    if found:
        raise _invalid(file, found, document)
    return experiment


def _invalid(file: str, found: Iterable[Mistake], document: Mapping[str, Any]) -> InvalidExperimentError:
    return InvalidExperimentError([ExperimentError(file, *mistake) for mistake in once(found, document)])


def without_none(value: Any) -> Any:
    """A resolved experiment as a file would have it: keys without a value are absent."""
    if isinstance(value, dict):
        return {k: without_none(v) for k, v in value.items() if v is not None}
    return [without_none(v) for v in value] if isinstance(value, list) else value


def apply(document: dict[str, Any], change: str) -> list[str]:
    """Sets one key of `document` in place: ``sweep.repeats=2``, ``fault[0].nic=eth1``, ``system[balance].mode=2``.

    The value is TOML (``["1MiB"]``, ``3``, ``true``); anything else is text. If a list is named without brackets and
    has several entries, returns their names.
    """
    key, separator, text = change.partition("=")
    if not separator or not key.strip():
        raise ExperimentError("--set", change, None, "write key=value, for example sweep.repeats=2")
    try:
        return put(document, key.strip(), _value(text.strip()))
    except KeyPathError as error:
        raise ExperimentError("--set", change, None, str(error)) from None
    except RecursionError:
        raise ExperimentError("--set", key, None, TOO_DEEP) from None
    except ValueError:
        raise ExperimentError("--set", key, None, TOO_LONG) from None


def _refuse_keys_of_axes(document: Mapping[str, Any], changes: Sequence[str]) -> None:
    """Refuses the change of a key that an axis sets for every trial, since nothing would be left of it."""
    axes = document.get("axis")
    for index, axis in enumerate(axes if isinstance(axes, list) else ()):
        table = axis if isinstance(axis, dict) else {}
        several = table.get("keys")
        keys = [table.get("key"), *(several if isinstance(several, list) else ())]
        for change in changes:
            if change.partition("=")[0].strip() in keys:
                remedy = (
                    f"axis[{index}] sets this key; choose among its values with --only, or change axis[{index}].values"
                )
                raise ExperimentError("--set", change, None, remedy)


def _leave_out_other_sizes(document: dict[str, Any]) -> None:
    """Removes the keys of sizes that the user replaced; a text that is no size stays, to be refused."""
    workload, bounds = document.get("workload"), document.get("bound")
    sizes = workload.get("sizes") if isinstance(workload, dict) else None
    if not isinstance(workload, dict) or not isinstance(sizes, list):
        return
    chosen = {_size(text) for text in sizes}

    def is_other(text: object) -> bool:
        return _size(text) is not None and _size(text) not in chosen

    if isinstance(counts := workload.get("iterations_by_size"), dict):
        workload["iterations_by_size"] = {key: count for key, count in counts.items() if not is_other(key)}
    if isinstance(bounds, list):
        document["bound"] = [b for b in bounds if not (isinstance(b, dict) and is_other(b.get("size")))]


def _size(text: object) -> int | None:
    try:
        return parse_size(str(text))
    except UnitError:
        return None


def _read_traces(document: dict[str, Any], path: Path) -> dict[int, Trace]:
    """Replaces the names of trace files, which are relative to the experiment, by their events. Returns the traces by
    the number of their fault table."""
    faults, traces = document.get("fault"), {}
    for index, fault in enumerate(faults if isinstance(faults, list) else ()):
        trace = fault.pop("trace", None) if isinstance(fault, dict) else None
        if trace is not None:
            key = f"fault[{index}].trace"
            if not isinstance(trace, str):
                raise ExperimentError(str(path), key, trace, "name a file of failures in quotes")
            traces[index] = read_trace(path.parent / trace, str(path), key)
            fault["events"] = traces[index].events
    return traces


def _at_its_line(error: ExperimentError, traces: Mapping[int, Trace]) -> ExperimentError:
    """The mistake; one in an event is told with the event's file and line."""
    found = _EVENT.fullmatch(error.key)
    if found is None or (trace := traces.get(int(found["fault"]))) is None:
        return error
    line, name = trace.lines[int(found["event"])], found["name"]
    column = "" if name in (None, "parameters") else f": {name}"  # parameters are columns, which the remedy names
    return ExperimentError(
        error.file, f"fault[{found['fault']}].trace: {trace.path}: line {line}{column}", error.value, error.remedy
    )


_EVENT = re.compile(r"fault\[(?P<fault>\d+)\]\.(events|trace)\[(?P<event>\d+)\](\.(?P<name>.*))?")
"""The key of a failure that a trace holds, of the model and of the checks of several keys."""


def _place_requests(document: dict[str, Any], path: Path) -> None:
    """Makes the path of a served model's request trace, given relative to the experiment, independent of the folder in
    which a sweep is resumed."""
    workload = document.get("workload")
    if isinstance(workload, dict) and isinstance(trace := workload.get("trace"), str):
        workload["trace"] = str((path.parent / Path(trace).expanduser()).absolute())


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


def _with_fewer_hosts(document: dict[str, Any], file: str) -> dict[str, Any]:
    """`document` with only the hosts that an axis chooses from the inventory."""
    table = document["cluster"]
    if table.get("kind") != "inventory":
        return document
    content = Inventory.model_validate(table["content"])
    return {**document, "cluster": {**table, "content": content.subset(_chosen(content, table.get("hosts"), file))}}


def _chosen(content: Inventory, hosts: object, file: str) -> list[str]:
    """The names of the hosts that `cluster.hosts` keeps; the model refuses any other value than a number or names."""
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
        return toml_of(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
