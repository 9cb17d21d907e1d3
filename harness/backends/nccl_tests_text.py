"""Parses the text that nccl-tests prints, of any version since 2.0, into rows and findings. Pure.

Columns differ between versions: redop and root may be absent, the last column of a place is an error (the largest
difference) or a count of wrong elements, ``-I`` adds four columns to a place and ``-S`` a timestamp. The form of a row
is inferred from the row itself. Launchers put labels in front of lines, and NCCL's own lines are interleaved, even in
the middle of a row, which nccl-tests prints in several parts.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_LABEL = re.compile(r"^(?:\[\d+,\d+\]<std(?:out|err)>:\s?|\s*\d+: (?=[#\s\w]))")
_NCCL = re.compile(
    r"(?:\[\d{4}-\d\d-\d\d [\d:]+\] )?[A-Za-z][\w.-]*:\d+:\d+ \[-?\d+\] (?:\S+ )?NCCL (?:INFO|WARN|TRACE|ERROR)\b.*"
)
_WARNING = re.compile(r"NCCL (?:WARN|ERROR)\s+(.*)")
_WORD = re.compile(r"[a-z][a-z0-9]*\Z")
_NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|nan|inf)\Z|N/A\Z", re.IGNORECASE)
_LAST = re.compile(r"(?:N/A|\d+|\d(?:\.\d+)?e[+-]?\d+|-?nan|inf)\Z", re.IGNORECASE)
_TIMESTAMP = re.compile(r"\s(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s*\Z")
_VERSION = re.compile(r"# nccl-tests version (\S+) nccl-headers=(\d+) nccl-library=(\d+)")
_RANK = re.compile(r"#\s+Rank\s+(\d+) .*\bon\s+(\S+) device")
_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d+)")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)")
_ERRORS = (
    re.compile(r"[A-Za-z][\w.-]*: Test (?:NCCL|CUDA|CURAND) failure .*"),
    re.compile(r"[A-Za-z][\w.-]*: Test timeout .*"),
    re.compile(r"(?<=^# error: )\S.*"),
    re.compile(r"^Invalid number of GPUs.*"),
    re.compile(r"^invalid (?:option|size).*"),
    re.compile(r"^Incompatible NCCL versions.*"),
)
"""Does not match "Test failure", which only says from where such an error was passed on."""
_PLACE, _PLACE_WITH_ITERATIONS = 4, 8
"""Number of columns of a place without and with -I."""


@dataclass(frozen=True)
class Place:
    """One side of a row. `wrong` is None if nothing was checked or an old version reports an error instead."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: int | None
    error: float | None = None
    """The largest difference, from versions that report it."""
    iteration_us: tuple[float, float, float] | None = None
    """Shortest, longest and 99th percentile of single iterations, with -I."""


@dataclass(frozen=True)
class Row:
    """One size. `out` and `in_place` are None if that place was not measured."""

    size_bytes: int
    count: int
    dtype: str
    op: str | None
    root: int | None
    out: Place | None
    in_place: Place | None
    timestamp: str | None = None


@dataclass
class Report:
    """The contents of a text so far."""

    version: str | None = None
    nccl_version: int | None = None
    ranks: int = 0
    headers: int = 0
    """More than one: processes that do not know of each other, because the build has no MPI."""
    rows: list[Row] = field(default_factory=list)
    out_of_bounds: int | None = None
    average_busbw_gbs: float | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    """Version of NCCL."""

    @property
    def finished(self) -> bool:
        """Whether the text is complete: the summary is present."""
        return self.average_busbw_gbs is not None


class TextParser:
    """Parses line by line, as the lines arrive."""

    def __init__(self) -> None:
        self.report = Report()
        self._begun = ""  # start of a row that another line interrupted
        self._tells_error = False

    def feed(self, line: str, whole: bool = True) -> Row | None:
        """Takes one line without its line end; returns the row that it completes, if any.

        `whole`: False for the last line of a killed program, whose last number may lack digits.
        """
        line = _LABEL.sub("", line.rstrip("\r\n"))
        if found := _NCCL.search(line):
            self._note_nccl(found[0])
            line = line[: found.start()]
            if not line.strip():
                return None
            row = self._row(self._begun + line)
            self._begun = "" if row else self._begun + line
            return row
        begun, self._begun = self._begun, ""
        self._note(line)
        if not whole:
            return None
        return self._row(begun + line) or (self._row(line) if begun else None)

    def is_header(self, line: str) -> bool:
        """Whether `line` is the last of the table's header: everything is connected, and measuring begins."""
        return "(B)" in line and "(elements)" in line and "#" in line

    def _row(self, line: str) -> Row | None:
        row = parse_row(line, self._tells_error)
        if row is not None:
            self.report.rows.append(row)
        return row

    def _note(self, line: str) -> None:
        report = self.report
        if found := _VERSION.search(line):
            report.version, report.nccl_version = found[1], int(found[3])
        elif found := _RANK.match(line):
            report.ranks += 1
        elif found := _BOUNDS.search(line):
            report.out_of_bounds = int(found[1])
        elif found := _AVERAGE.search(line):
            report.average_busbw_gbs = _number(found[1])
        elif self.is_header(line):
            report.headers += 1
        elif "algbw" in line and "busbw" in line:
            self._tells_error = "error" in line and "#wrong" not in line
        else:
            report.errors += [found[0].strip() for error in _ERRORS if (found := error.search(line))]

    def _note_nccl(self, text: str) -> None:
        if found := _WARNING.search(text):
            self.report.warnings.append(found[1].strip())


def parse_text(text: str) -> Report:
    """Parses a complete log."""
    parser = TextParser()
    for line in text.splitlines(keepends=True):
        parser.feed(line, whole=line.endswith("\n"))
    return parser.report


def parse_row(line: str, tells_error: bool = False) -> Row | None:
    """The row in `line`, or None if there is no complete row; `tells_error`: its last columns are errors."""
    stamp = _TIMESTAMP.search(line)
    words = (line[: stamp.start()] if stamp else line).split()
    if len(words) < 3 + _PLACE or not (words[0].isdigit() and words[1].isdigit() and _WORD.match(words[2])):
        return None
    has_op = bool(_WORD.match(words[3])) and not _NUMBER.match(words[3])
    numbers = words[3 + has_op :]
    if not all(_NUMBER.match(word) for word in numbers):
        return None
    root = int(numbers.pop(0)) if len(numbers) % _PLACE == 1 and re.match(r"-?\d+\Z", numbers[0]) else None
    places = list(_places(numbers, tells_error))
    if not places:
        return None
    return Row(
        int(words[0]),
        int(words[1]),
        words[2],
        words[3] if has_op else None,
        root,
        places[0] if len(places) == 2 else None,
        places[-1],
        stamp[1] if stamp else None,
    )


def _places(numbers: list[str], tells_error: bool) -> Iterator[Place]:
    """Two places, or one (only in place); none if the number of columns fits neither."""
    width = _PLACE_WITH_ITERATIONS if len(numbers) == 2 * _PLACE_WITH_ITERATIONS else _PLACE
    if len(numbers) not in (_PLACE, 2 * _PLACE, 2 * _PLACE_WITH_ITERATIONS):
        return
    sides = [numbers[at : at + width] for at in range(0, len(numbers), width)]
    # A row that was cut short may have the right number of columns, but not the right ones.
    if all(_LAST.match(side[3]) and not side[0].startswith("-") for side in sides):
        yield from (_place(side, tells_error) for side in sides)


def _place(words: list[str], tells_error: bool) -> Place:
    last = None if words[3] == "N/A" else _number(words[3])
    is_error = last is not None and (tells_error or last != last or last != int(last))
    return Place(
        _number(words[0]),
        _number(words[1]),
        _number(words[2]),
        None if last is None or is_error else int(last),
        last if is_error else None,
        (_number(words[4]), _number(words[5]), _number(words[6])) if len(words) > _PLACE else None,
    )


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return float("nan")
