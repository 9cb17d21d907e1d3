"""Reads an experiment file: TOML, then ``--set key=value``, then the models; every mistake is one line.

file: key: value: remedy
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import ExperimentError, InvalidExperimentError
from harness.experiment import Experiment, mistakes
from harness.tables import nearest
from harness.trace import read_trace

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_KEY = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*\Z")

_REMEDIES = {
    "missing": "is missing; add it",
    "string_pattern_mismatch": "use lower-case letters, digits and '_' only",
    "string_type": "must be text in quotes",
    "int_type": "must be a whole number without quotes",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number without quotes",
    "bool_type": "must be true or false",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "tuple_type": "must be a list",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "too_short": "needs at least {min_length} entry",
    "string_too_long": "must have at most {max_length} characters",
}


def load(path: Path, settings: Sequence[str] = ()) -> Experiment:
    """The experiment in `path` with `settings` (``key=value``) applied.

    Raises `InvalidExperimentError`, one line a mistake; nothing but the file is touched.
    """
    file = str(path)
    document = _document(path, file)
    for setting in settings:
        apply(document, setting)
    _read_traces(document, path)
    return read(document, file)


def read(document: Mapping[str, Any], file: str) -> Experiment:
    """The experiment that `document`, a parsed TOML file, describes; raises `InvalidExperimentError`."""
    try:
        experiment = Experiment.model_validate(document)
    except ValidationError as error:
        found = [_translated(detail, file) for detail in _roots(error.errors(include_url=False))]
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


def _document(path: Path, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ExperimentError(file, "", None, "there is no such file; see experiments/ for examples") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ExperimentError(file, "", None, f"cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(file, "", None, f"is no TOML: {error}") from None


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


def _value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _roots(details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Without what only follows: a list whose entries are wrong also counts as too short."""
    places = [detail["loc"] for detail in details]
    return [d for d in details if not any(p[: len(d["loc"])] == d["loc"] and p != d["loc"] for p in places)]


def _translated(detail: ErrorDetails, file: str) -> ExperimentError:
    """One mistake that pydantic found, in the words of the file."""
    location, kind = detail["loc"], detail["type"]
    key = _key(location)
    if kind == "extra_forbidden":
        return ExperimentError(file, key, None, f"unknown key; {nearest(str(location[-1]), _keys(location[:-1]))}")
    value = None if kind == "missing" else detail["input"]
    remedy = _REMEDIES.get(kind, "").format(**detail.get("ctx", {}))
    remedy = remedy or detail["msg"].removeprefix("Value error, ").removeprefix(f"{str(value)!r} ")
    return ExperimentError(
        file, key, None if kind == "value_error" and isinstance(value, dict) else _short(value), remedy
    )


def _key(location: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _short(value: object) -> object:
    """A table or a list would drown the line; the key says where it is."""
    return None if isinstance(value, dict | list | tuple) and len(str(value)) > 60 else value


def _keys(location: Iterable[str | int]) -> list[str]:
    """The keys that the table at `location` may have, as they are written in the file."""
    model: Any = Experiment
    for part in location:
        if isinstance(part, str):
            model = _model_of(model, part)
    if model is None:
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _model_of(model: Any, key: str) -> type[BaseModel] | None:
    """The model of the values under `key`, through tuples of them; None for plain values."""
    for name, field in model.model_fields.items() if model else ():
        if key == (field.alias or name):
            inner = [field.annotation, *get_args(field.annotation)]
            return next((t for t in inner if isinstance(t, type) and issubclass(t, BaseModel)), None)
    return None
