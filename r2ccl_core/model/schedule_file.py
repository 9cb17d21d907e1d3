"""A schedule as bytes and as text. Both are stable, so that ranks can compare digests and people can read diffs.

Binary: the magic ``R2S2``, the length of a JSON header, the header, then the zlib-compressed steps of all lanes, rank
by rank. Steps are stored as differences between neighbours, which are mostly zeros and ones: a ring of 1024 ranks, 42
MB of steps, takes well under one MB.

Text: one header line, then per lane a line ``rank R lane L`` and one line per step, such as ``recv 1 reduce send 2
chunks 5-6`` (`chunks` is begin and end, excluding the end).
"""

import hashlib
import json
import zlib

import numpy as np

from r2ccl_core.errors import ScheduleError
from r2ccl_core.model.schedule import NOBODY, STEP, Lane, Program, Schedule, lane

MAGIC = b"R2S2"
WIDTH = STEP.itemsize // 4
Row = tuple[int, int, int, int, int]
FIELDS = ("name", "collective", "nranks", "nchunks", "root")


def to_bytes(schedule: Schedule) -> bytes:
    """The binary form; the same schedule always gives the same bytes."""
    lanes = [steps for program in schedule.programs for steps in program]
    header = {field: getattr(schedule, field) for field in FIELDS}
    header |= {"abreast": schedule.abreast, "nlanes": schedule.nlanes, "lengths": [len(steps) for steps in lanes]}
    text = json.dumps(header, separators=(",", ":")).encode()
    table = np.concatenate([*lanes, np.zeros(0, dtype=STEP)]).view(np.int32).reshape(-1, WIDTH)
    steps = np.diff(table, axis=0, prepend=0).astype("<i4")
    return MAGIC + len(text).to_bytes(8, "little") + text + zlib.compress(steps.T.tobytes(), 6)


def from_bytes(data: bytes) -> Schedule:
    """The schedule that `to_bytes` wrote; `ScheduleError` for anything else."""
    if data[:4] != MAGIC:
        raise ScheduleError(f"not a schedule of this version: it begins with {data[:4]!r}, not {MAGIC!r}")
    end = 12 + int.from_bytes(data[4:12], "little")
    try:
        header = json.loads(data[12:end])
        deltas = np.frombuffer(zlib.decompress(data[end:]), dtype="<i4").reshape(WIDTH, -1).T
        table = np.ascontiguousarray(np.cumsum(deltas, axis=0, dtype=np.int32))
        steps = table.view(STEP).reshape(-1)
        pieces = np.split(steps, np.cumsum(header["lengths"])[:-1]) if header["lengths"] else []
        programs = _programs(pieces, header["nranks"], header["nlanes"])
        known = {field: header[field] for field in FIELDS}
        return Schedule(**known, programs=programs, abreast=tuple(header["abreast"]))
    except (ValueError, KeyError, TypeError, OverflowError, zlib.error) as error:
        raise ScheduleError(f"a schedule's bytes are damaged: {error}") from error


def digest(schedule: Schedule) -> str:
    """SHA-256 of the schedule's meaning, equal on every rank that built the same schedule."""
    return hashlib.sha256(to_bytes(schedule)).hexdigest()


def to_text(schedule: Schedule) -> str:
    """The text form."""
    header = [f"{field}={getattr(schedule, field)}" for field in FIELDS]
    header += ["abreast=" + ",".join(map(str, schedule.abreast))] if schedule.abreast else []
    lines = [" ".join(header)]
    for rank, program in enumerate(schedule.programs):
        for index, steps in enumerate(program):
            lines.append(f"rank {rank} lane {index}")
            lines.extend("  " + _step_text(*step) for step in steps.tolist())
    return "\n".join(lines) + "\n"


def from_text(text: str) -> Schedule:
    """The schedule that `to_text` wrote; `ScheduleError` names the line that cannot be read."""
    number = 1
    found: list[Row] = []
    programs: list[list[list[Row]]] = []
    try:
        head, *rest = text.splitlines()
        header = dict(item.split("=", 1) for item in head.split())
        for line in rest:
            number += 1
            words = line.split()
            if words[0] == "rank":
                if words[3] == "0":
                    programs.append([])
                found = []
                programs[-1].append(found)
            else:
                found.append(_step_read(words))
        nranks, nchunks, root = (int(header[field]) for field in ("nranks", "nchunks", "root"))
        made = tuple(tuple(lane(steps) for steps in program) for program in programs)
        groups = header.get("abreast")
        abreast = tuple(int(group) for group in groups.split(",")) if groups is not None else ()
        return Schedule(header["name"], header["collective"], nranks, nchunks, made, root, abreast)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise ScheduleError(f"line {number} of a schedule's text cannot be read ({error})") from error


def _programs(pieces: list[Lane], nranks: int, nlanes: int) -> tuple[Program, ...]:
    return tuple(tuple(pieces[rank * nlanes : (rank + 1) * nlanes]) for rank in range(nranks))


def _step_text(recv: int, send: int, begin: int, end: int, reduce: int) -> str:
    words = [f"recv {recv}"] if recv != NOBODY else []
    words += ["reduce"] if reduce else []
    words += [f"send {send}"] if send != NOBODY else []
    return " ".join([*(words or ["copy"]), f"chunks {begin}-{end}"])


def _step_read(words: list[str]) -> Row:
    def after(word: str) -> int:
        return int(words[words.index(word) + 1]) if word in words else NOBODY

    begin, end = words[words.index("chunks") + 1].split("-")
    return after("recv"), after("send"), int(begin), int(end), int("reduce" in words)
