"""The requests of a served model: arrival time, length of the prompt, number of tokens wanted. Pure, except for
reading.

They come from a seeded Poisson process, or from a file with the columns of Azure's traces of language models
(TIMESTAMP, ContextTokens, GeneratedTokens; https://github.com/Azure/AzurePublicDataset).
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
    """One request: its time since the start, and its tokens."""

    at_s: float
    prompt: int
    generated: int


def poisson(count: int, a_second: float, prompt: int, generated: int, seed: int) -> tuple[Arrival, ...]:
    """`count` requests of one size, `a_second` per second on average."""
    draw, at_s, found = random.Random(f"arrivals/{seed}"), 0.0, []
    for _ in range(count):
        found.append(Arrival(at_s, prompt, generated))
        at_s += draw.expovariate(a_second)
    return tuple(found)


def read_trace(path: Path, count: int, context: int, speed: float = 1.0) -> tuple[Arrival, ...]:
    """The first `count` requests of a trace, replayed `speed` times as fast. Prompt and answer are cut so that together
    they fit into `context` tokens. Raises `ValueError`, one line, and `OSError`."""
    rows = csv.DictReader(text_of(path, "utf-8-sig").splitlines())
    missing = [name for name in COLUMNS if name not in (rows.fieldnames or ())]
    if missing:
        raise ValueError(f"has no column {missing[0]!r}; the first line names the columns: {', '.join(COLUMNS)}")
    found: list[Arrival] = []
    first: datetime | None = None
    for row in rows:
        try:
            # Azure's times have seven digits after the second.
            when = datetime.fromisoformat(str(row["TIMESTAMP"])[:26])
            prompt, generated = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (TypeError, ValueError):
            raise ValueError(f"line {rows.line_num}: not a time and two numbers of tokens") from None
        if prompt < 1 or generated < 1:
            raise ValueError(f"line {rows.line_num}: a request has at least one token in its prompt and in its answer")
        first = first or when
        at_s = (when - first).total_seconds() / speed
        if found and at_s < found[-1].at_s:
            raise ValueError(f"line {rows.line_num}: earlier than the line above it; sort the file by TIMESTAMP")
        wanted = min(generated, context // 2)
        found.append(Arrival(at_s, max(2, min(prompt, context - wanted)), wanted))
        if len(found) == count:
            return tuple(found)
    raise ValueError(f"holds {len(found)} requests; lower workload.requests, which are {count}")


def write_arrivals(arrivals: Sequence[Arrival]) -> str:
    """The requests as one word of a command line."""
    return ",".join(f"{one.at_s:.3f}/{one.prompt}/{one.generated}" for one in arrivals)


def read_arrivals(text: str) -> tuple[Arrival, ...]:
    """Reads the output of `write_arrivals`."""
    parts = (one.split("/") for one in text.split(","))
    return tuple(Arrival(float(at_s), int(prompt), int(generated)) for at_s, prompt, generated in parts)
