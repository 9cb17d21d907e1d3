"""Parses the text that ib_write_bw prints, of any version: its table, and what it says where it fails. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.backends.said import telling
from harness.errors import LogError

BYTES_S = {"Gb/sec": 1e9 / 8, "MB/sec": 2**20, "MiB/sec": 2**20}
"""Bytes per second of the units in which it gives bandwidths: its MB are 2^20 bytes."""

_HEADER = re.compile(r"#bytes\s+#iterations\s+BW peak\[(?P<peak>[^\]]+)\]\s+BW average\[(?P<average>[^\]]+)\]")
_ROW = re.compile(r"\s*(?P<size>\d+)\s+(?P<count>\d+)\s+(?P<peak>\d+\.\d+|inf)\s+(?P<average>\d+\.\d+)\s")


@dataclass(frozen=True)
class Result:
    """The one row of a run."""

    message_bytes: int
    messages: int
    bytes_s: float
    """The average over all messages."""


def parse(text: str) -> Result:
    """The row of a run of one size. Raises `LogError`, one line, where there is none, or more than one."""
    lines = text.splitlines()
    heads = [(at, found) for at, line in enumerate(lines) if (found := _HEADER.search(line))]
    if not heads:
        raise LogError(f"ib_write_bw printed no table: {telling(lines) or 'nothing'}")
    at, head = heads[0]
    unit = head["average"]
    if unit not in BYTES_S:
        raise LogError(f"ib_write_bw gives bandwidths in {unit}; known are {', '.join(BYTES_S)}")
    rows = [found for line in lines[at + 1 :] if (found := _ROW.match(line + " "))]
    if len(rows) != 1:
        raise LogError(f"ib_write_bw printed {len(rows)} rows where one was due: {_said(lines, at)}")
    row = rows[0]
    bytes_s = float(row["average"]) * BYTES_S[unit]
    if not bytes_s:
        raise LogError("ib_write_bw gives a bandwidth of 0: more messages, or larger ones, would last long enough")
    return Result(int(row["size"]), int(row["count"]), bytes_s)


def _said(lines: Sequence[str], head: int) -> str:
    return telling(lines[head + 1 :]) or "nothing follows its header"
