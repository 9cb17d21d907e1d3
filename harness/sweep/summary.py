"""What a sweep came to: which trials are still to run, the exit code, and a short table. Pure.

Its input are records, the values of trial.json; several attempts of one trial count as the last of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from harness.errors import ExitCode
from harness.sweep.plan import Trial

Record = Mapping[str, Any]


class Line(NamedTuple):
    """One row of the table: a size and a system over all repeats; bandwidths are medians in GB/s."""

    size_bytes: int
    system: str
    statuses: str
    before_gbs: float | None
    hit_gbs: float | None
    after_gbs: float | None
    slowdown: float | None
    """Duration after the fault over duration before it."""


def last_attempts(records: Iterable[Record]) -> dict[str, Record]:
    """The last attempt of every trial, by the trial's own id."""
    last: dict[str, Record] = {}
    for record in sorted(records, key=lambda r: r["attempt"]):
        last[trial_of(record)] = record
    return last


def trial_of(record: Record) -> str:
    """The id of the trial that this is an attempt at."""
    return str(record["trial_id"]).removesuffix(f"-a{record['attempt']}")


def next_attempt(trial: Trial, records: Mapping[str, Record], retries: int) -> int | None:
    """The number of the attempt that `trial` needs next; None if it is through. `records`: last attempts."""
    record = records.get(trial.trial_id)
    if record is None:
        return 1
    attempt = int(record["attempt"])
    return attempt + 1 if record["status"] == "inconclusive" and attempt <= retries else None


def exit_code(records: Iterable[Record]) -> ExitCode:
    """The worst that the last attempts say: wrong or unexpected, then inconclusive, then all as expected."""
    last = last_attempts(records).values()
    if any(r["status"] != "inconclusive" and not r["expected"] for r in last):
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if any(r["status"] == "inconclusive" for r in last) else ExitCode.OK


def table(records: Iterable[Record]) -> list[Line]:
    """One line a size and system, by size, then in the order of their first record."""
    groups: dict[tuple[int, str], list[Record]] = {}
    for record in last_attempts(records).values():
        groups.setdefault((record["size_bytes"], record["system"]), []).append(record)
    return [_line(size, system, groups[size, system]) for size, system in sorted(groups)]


def bandwidth_gbs(records: Sequence[Record], phase: str) -> float | None:
    """Median over trials of their median bus bandwidth in `phase`."""
    return _median_of([_median(r, phase, "busbw_gbs") for r in records])


def _line(size_bytes: int, system: str, records: Sequence[Record]) -> Line:
    statuses = [f"{r['status']}{'' if r['expected'] else '!'}" for r in records]
    counted = ", ".join(f"{statuses.count(s)} {s}" for s in sorted(set(statuses)))
    before = [_median(r, "before", "duration_ns") for r in records]
    after = [_median(r, "after", "duration_ns") for r in records]
    ratios = [a / b if a and b else None for a, b in zip(after, before, strict=True)]
    before_gbs, hit_gbs, after_gbs = (bandwidth_gbs(records, p) for p in ("before", "hit", "after"))
    return Line(size_bytes, system, counted, before_gbs, hit_gbs, after_gbs, _median_of(ratios))


def _median(record: Record, phase: str, column: str) -> float | None:
    return _median_of([i[column] for i in record["iterations"] if i["phase"] == phase])


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None
