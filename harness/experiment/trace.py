"""Traces of failures: a CSV or JSON-lines file of failures with their times, as the events of a fault table.

Columns or keys: at (a duration from the first timed iteration), kind, host, nic or rail, lasts; every other one is a
parameter of the kind. Empty cells are left out. A cluster's own log of failures can be replayed in this way.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from harness.errors import ExperimentError
from r2ccl_core.text_file import text_of

PLACES = ("at", "kind", "host", "nic", "rail", "lasts")


class Trace(NamedTuple):
    """The events of the file at `path`, and the line of each, counted from 1."""

    path: Path
    events: list[dict[str, Any]]
    lines: list[int]


def read_trace(path: Path, file: str, key: str) -> Trace:
    """The trace that `key` of the experiment `file` names. Raises `ExperimentError`."""
    try:
        text = text_of(path, "utf-8-sig")  # Excel exports tables with a BOM
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ExperimentError(file, key, str(path), f"cannot be read: {reason}") from None
    try:
        rows = list(_json_rows(text) if text.lstrip().startswith("{") else _csv_rows(text))
    except ValueError as error:
        raise ExperimentError(file, key, str(path), str(error)) from None
    if not rows:
        raise ExperimentError(file, key, str(path), "holds no failure; give at least one line")
    return Trace(path, [_event(row) for _, row in rows], [line for line, _ in rows])


def _csv_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(text.splitlines(), restkey="", strict=True)
    names = list(reader.fieldnames or ())
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"has the column {name!r} twice; give each column its own name")
    missing = [name for name in ("at", "kind") if name not in names]
    if missing:
        raise ValueError(f"has no column {missing[0]!r}; the first line names the columns: {', '.join(PLACES)}")
    try:
        for row in reader:
            if "" in row:
                raise ValueError(f"line {reader.line_num}: has more cells than columns")
            cells = {name: _value(cell.strip()) for name, cell in row.items() if cell is not None and cell.strip()}
            yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: {error}") from None


def _json_rows(text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ValueError(f"line {number}: is not JSON: {error}") from None
        except RecursionError:
            raise ValueError(f"line {number}: is nested too deeply") from None
        if not isinstance(row, dict):
            raise ValueError(f"line {number}: is not a JSON object")
        yield number, row


def _value(cell: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _event(row: Mapping[str, Any]) -> dict[str, Any]:
    """One event; durations and names are text, as in an experiment file."""
    event = {name: row[name] for name in PLACES if name in row}
    event |= {name: _seconds(event[name]) for name in ("at", "lasts") if name in event}
    parameters = {name: value for name, value in row.items() if name not in PLACES}
    return event | ({"parameters": parameters} if parameters else {})


def _seconds(value: object) -> object:
    """The value; a plain number is seconds."""
    return f"{value} s" if isinstance(value, int | float) and not isinstance(value, bool) else value
