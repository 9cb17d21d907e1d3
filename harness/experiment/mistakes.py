"""Mistakes in a TOML file that people write, one line each: file, key, value, remedy.

Pydantic finds the mistakes in single keys; this module reports them in the terms of the file. Experiments and
inventories share it. Everything except reading the file is pure.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harness.errors import MistakeError
from harness.experiment.tables import Mistake, nearest
from r2ccl_core.text_file import TOO_LONG, text_of, toml_of
from r2ccl_core.validation import in_our_words

_EXAMPLES = {"sizes": '["8MiB", "64MiB"]', "values": '["float32", "float16"]', "hosts": '["node0", "node1"]'}
"""Examples of lists, by key."""

_ONE_VALUE = frozenset({"literal_error", "int_type", "float_type", "string_type", "bool_type"})
"""Pydantic's complaints about a list where one plain value is meant."""

_NO_TEXT = (
    "must be a whole number", "must be a number", "must be the number", "must be true or false", "must be a table",
    "must be a list",
)  # fmt: skip
"""Remedies for text where a key wants none; the text is then shown in its quotes, which are the mistake."""

TOO_DEEP = "is nested too deeply; no key needs that"


def read_toml(path: Path, absent: str) -> dict[str, Any]:
    """The file as a document. Raises `MistakeError`; `absent` is the remedy if there is no such file."""
    try:
        return toml_of(text_of(path, "utf-8-sig"))  # some editors begin a file with a BOM
    except FileNotFoundError:
        raise MistakeError(str(path), "", None, f"there is no such file; {absent}") from None
    except IsADirectoryError:
        raise MistakeError(str(path), "", None, "is a folder; name a file") from None
    except OSError as error:
        raise MistakeError(str(path), "", None, f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise MistakeError(str(path), "", None, f"is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise MistakeError(str(path), "", None, f"is not valid TOML: {error}") from None
    except ValueError:
        raise MistakeError(str(path), "", None, TOO_LONG) from None
    except RecursionError:
        raise MistakeError(str(path), "", None, TOO_DEEP) from None


def translated(error: ValidationError, model: type[BaseModel], document: Mapping[str, Any]) -> list[Mistake]:
    """Every mistake that pydantic found while it read `document` as `model`, in the terms of the file."""
    return [_translated(detail, model, document) for detail in _roots(error.errors(include_url=False))]


def once(found: Iterable[Mistake], document: Mapping[str, Any]) -> list[Mistake]:
    """The mistakes, those that several entries of a table have alike as one: ``system[hot_repair, balance].mode``."""
    alike: dict[tuple[str, ...], list[Mistake]] = {}
    for mistake in found:
        table, _, rest = _parts(mistake.key)
        alike.setdefault((table, rest, repr(mistake.value), mistake.remedy), []).append(mistake)
    return [own[0]._replace(key=_of_all(own, document)) for own in alike.values()]


def _of_all(alike: Sequence[Mistake], document: Mapping[str, Any]) -> str:
    """The key of a mistake that all these entries have, by their names where each has its own."""
    table, _, rest = _parts(alike[0].key)
    indices = list(dict.fromkeys(_parts(mistake.key)[1] for mistake in alike))
    if len(indices) == 1:
        return alike[0].key
    names = [_name(document[table][int(index)]) for index in indices]
    have_own = all(names) and len(set(names)) == len(names)
    return f"{table}[{', '.join(names if have_own else indices)}]{rest}"


def _name(entry: object) -> str:
    """What an entry of a table is called; empty if it has no name."""
    return str(entry.get("name", entry.get("use", entry.get("kind", "")))) if isinstance(entry, dict) else ""


def _parts(key: str) -> tuple[str, str, str]:
    """``system[1].env.X`` as table, index and the rest; the last two are empty of another key."""
    found = re.fullmatch(r"(\w+)\[(\d+)\](.*)", key)
    return (found[1], found[2], found[3]) if found else (key, "", "")


def _roots(details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """The mistakes without their consequences: a list with wrong entries also counts as too short."""
    places = [detail["loc"] for detail in details]
    return [d for d in details if not any(p[: len(d["loc"])] == d["loc"] and p != d["loc"] for p in places)]


def _translated(detail: ErrorDetails, model: type[BaseModel], document: Mapping[str, Any]) -> Mistake:
    location, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    steps = _walk(model, location)
    key = _key(step for step, _ in steps)
    if kind == "extra_forbidden":
        table = steps[-2][1] if len(steps) > 1 else model
        return Mistake(key, None, f"unknown key; {nearest(str(location[-1]), _keys(table))}")
    if kind == "union_tag_invalid":
        expected = str(context["expected_tags"])
        name = str(context["discriminator"]).strip("'").removesuffix("()").lstrip("_")  # a key, or a function of ours
        return Mistake(f"{key}.{name}", context["tag"], f"must be {_either(expected.split(', '))}")
    value = None if kind == "missing" else detail["input"]
    if kind == "tuple_type":
        example = _EXAMPLES.get(str(location[-1]))
        return Mistake(key, _short(value), "must be a list" + (f", such as {example}" if example else " in brackets"))
    remedy = in_our_words(detail).removeprefix(f"{str(value)!r} ")
    if isinstance(value, list) and kind in _ONE_VALUE and "axis" in _keys(model):
        remedy += "; for several values write an [[axis]]"
    if isinstance(value, str) and "," in value and isinstance(location[-1], int):
        remedy += f"; several stand in quotes of their own: {json.dumps(value.split(','))}"
    no_text = remedy.startswith(_NO_TEXT) and "in quotes like" not in remedy
    no_text |= kind == "literal_error" and not remedy.startswith("must be '")
    if isinstance(value, str) and no_text:
        value = json.dumps(value, ensure_ascii=False)
    value = _as_written(value, [step for step, _ in steps], document)
    whole = kind == "value_error" and isinstance(value, dict)  # the remedy says which of the table's keys
    return Mistake(key, None if whole else _short(value), remedy)


def _as_written(value: object, steps: Sequence[str | int], document: Mapping[str, Any]) -> object:
    """A value as the file has it: ``0 ms``, of which pydantic only saw the number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    found: Any = document
    for step in steps:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            return value
    return found if isinstance(found, str | int | float) else value


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]


def _key(location: Iterable[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _short(value: object) -> object:
    """A short form of a value: a table or a list would fill the line, and the key says where it is."""
    return None if isinstance(value, Mapping | list | tuple) and len(str(value)) > 60 else value


def _keys(model: Any) -> list[str]:
    """The keys that a table of that model may have, as written in the file."""
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _walk(model: Any, location: Sequence[str | int]) -> list[tuple[str | int, Any]]:
    """The steps of `location` as the file has them, each with the model of its value (None: a plain value).

    Pydantic also names the member of a union that it took; that is no step in the file.
    """
    steps: list[tuple[str | int, Any]] = []
    choices: list[Any] = []
    for part in location:
        if isinstance(part, int):
            steps.append((part, model))
        elif chosen := next((choice for choice in choices if part == _tag(choice)), None):
            model, choices = chosen, []
            steps[-1] = (steps[-1][0], model)
        elif part not in _PLAIN_MEMBERS:
            choices = _models_under(model, part)
            model = choices[0] if choices else None
            steps.append((part, model))
    return steps


_PLAIN_MEMBERS = frozenset({"int", "bool", "str", "float", "tuple[str, ...]"})
"""Pydantic's names of the members of a union of plain values."""


def _tag(model: Any) -> object:
    field = model.model_fields.get("kind")
    return get_args(field.annotation)[0] if field is not None and get_args(field.annotation) else None


def _models_under(model: Any, key: str) -> list[Any]:
    """The models that values under `key` may have, through lists and unions of them."""
    for name, field in model.model_fields.items() if model else ():
        if key == (field.alias or name):
            return _models(field.annotation)
    return []


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    inner = get_args(annotation)[:1] if get_origin(annotation) is Annotated else get_args(annotation)
    return [model for part in inner for model in _models(part)]
