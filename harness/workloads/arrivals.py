"""Requests of a served model: when each comes, how long its prompt is, how many tokens it wants. Pure but for reading.

By a Poisson process from a seed, or from a file in the columns of Azure's traces of language models (TIMESTAMP,
ContextTokens, GeneratedTokens; https://github.com/Azure/AzurePublicDataset).
"""

import csv
import random
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from r2ccl_core.text_file import text_of

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class Arrival(NamedTuple):
    """One request, so long after the first one could have come; its tokens."""

    at_s: float
    prompt: int
    generated: int


def poisson(count: int, a_second: float, prompt: int, generated: int, seed: int) -> tuple[Arrival, ...]:
    """`count` requests of one size, `a_second` on average."""
    draw, at_s, found = random.Random(f"arrivals/{seed}"), 0.0, []
    for _ in range(count):
        found.append(Arrival(at_s, prompt, generated))
        at_s += draw.expovariate(a_second)
    return tuple(found)


def read_trace(path: Path, count: int, context: int, speed: float = 1.0) -> tuple[Arrival, ...]:
    """The first `count` requests of a trace, `speed` times as fast. Prompt and answer are cut so that they fit into
    `context` tokens together. Raises `ValueError`, one line, and `OSError`."""
    rows = csv.DictReader(text_of(path, "utf-8-sig").splitlines())
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"has no column {missing[0]!r}; the first line names the columns: {', '.join(COLUMNS)}")
    found: list[Arrival] = []
    first: datetime | None = None
    for row in rows:
        try:
            # Azure gives seven digits of a second.
            when = datetime.fromisoformat(str(row["TIMESTAMP"])[:26])
            prompt, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (TypeError, ValueError):
            raise ValueError(f"line {rows.line_num}: is no time and two numbers of tokens") from None
        if prompt < 1 or generated < 1:
            raise ValueError(f"line {rows.line_num}: a request has at least one token each way")
        first = first or when
        at_s = (when - first).total_seconds() / speed
        if found and at_s < found[-1].at_s:
            raise ValueError(f"line {rows.line_num}: comes before the line above it; sort the file by TIMESTAMP")
        wanted = min(generated, context // 2)
        found.append(Arrival(at_s, max(2, min(prompt, context - wanted)), wanted))
        if len(found) == count:
            return tuple(found)
    raise ValueError(f"holds {len(found)} requests; lower workload.requests, which are {count}")


def write_arrivals(arrivals: Sequence[Arrival]) -> str:
    """As a word of a command line."""
    return ",".join(f"{one.at_s:.3f}/{one.prompt}/{one.generated}" for one in arrivals)


def read_arrivals(text: str) -> tuple[Arrival, ...]:
    """What `write_arrivals` wrote."""
    parts = (one.split("/") for one in text.split(","))
    return tuple(Arrival(float(at_s), int(prompt), int(generated)) for at_s, prompt, generated in parts)
