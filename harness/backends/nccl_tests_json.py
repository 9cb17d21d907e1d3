"""Reads the JSON document that nccl-tests 2.17 and later writes with ``-J`` as rows like those of its text. Pure.

The document holds the complete environment of the process, including secrets; this module passes on nothing of that.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.backends.nccl_tests_text import Place, Row
from harness.errors import LogError

NEWEST = 3
"""The newest version of the document that was seen."""


@dataclass(frozen=True)
class Document:
    """The contents of the document. `times_us` are single iterations by row and place (``out``, ``in``), if -I was
    given."""

    version: int
    nccl_version: int | None
    rows: tuple[Row, ...]
    times_us: Mapping[tuple[int, str], tuple[float, ...]]
    ranks: int
    out_of_bounds: int | None
    average_busbw_gbs: float | None
    errors: tuple[str, ...]

    def as_record(self) -> dict[str, Any]:
        """JSON values for a stored trial."""
        return {
            "version": self.version,
            "nccl_version": self.nccl_version,
            "ranks": self.ranks,
            "average_busbw_gbs": self.average_busbw_gbs,
            "rows": len(self.rows),
        }


def parse_document(text: str) -> Document:
    """The document in `text`. Raises `LogError`, one line, if it is cut short (its program was killed) or malformed."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(f"the JSON of nccl-tests is cut short or broken ({error})") from None
    if not isinstance(values, dict) or not isinstance(values.get("version"), int):
        raise LogError("this JSON has no version; nccl-tests did not write it")
    if values["version"] > NEWEST:
        raise LogError(f"the JSON of nccl-tests has version {values['version']}; this program knows up to {NEWEST}")
    try:
        return _document(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LogError(
            f"the JSON of nccl-tests has another form than known ({type(error).__name__}: {error})"
        ) from None


def _document(values: Mapping[str, Any]) -> Document:
    results = values.get("results") or []
    bounds, average = values.get("out_of_bounds") or {}, values.get("average_bus_bandwidth") or {}
    return Document(
        values["version"],
        values.get("nccl_version"),
        tuple(_row(result) for result in results),
        {
            (index, place): tuple(map(float, result[key]["times_us"]))
            for index, result in enumerate(results)
            for place, key in (("out", "out_of_place_per_iter"), ("in", "in_place_per_iter"))
            if key in result
        },
        len((values.get("config") or {}).get("devices") or []),
        bounds.get("count"),
        _number(average["bandwidth"]) if "bandwidth" in average else None,
        tuple(error for error in values.get("errors") or [] if error),
    )


def _row(result: Mapping[str, Any]) -> Row:
    return Row(
        int(result["size"]),
        int(result["count"]),
        str(result["type"]),
        str(result["redop"]),
        int(result["root"]),  # text, with blanks
        _place(result.get("out_of_place"), result.get("out_of_place_per_iter")),
        _place(result.get("in_place"), result.get("in_place_per_iter")),
    )


def _place(place: Mapping[str, Any] | None, single: Mapping[str, Any] | None) -> Place | None:
    if place is None:
        return None
    wrong = place.get("nwrong")
    return Place(
        _number(place["cpu_time"] if "cpu_time" in place else place["time"]),
        _number(place["alg_bw"]),
        _number(place["bus_bw"]),
        None if wrong is None else int(_number(wrong)),
        None,
        (_number(single["min_us"]), _number(single["max_us"]), _number(single["p99_us"])) if single else None,
    )


def _number(value: Any) -> float:
    """Numbers, and text that stands for a missing number."""
    return float(value)
