"""Finds the informative lines at the end of a failed program's output, to which launchers add dashes and advice.
Pure."""

import re
from collections.abc import Sequence

MOST_CHARACTERS = 300

_RULE = re.compile(r"[-=]{20,}")
_EMPTY = re.compile(r"[\s\-=*_#+|.]*")
_SENTENCE = re.compile(r".*?[.:](?=\s|$)")
_TELLS = re.compile(
    r"error|fail|denied|refused|cannot|can't|could not|unable|not found|no such|abort|signal|fault|killed|timed? ?out"
    r"|\blost\b|unreachable|no route|died|invalid|mismatch|out of memory|not enough|unknown|missing",
    re.IGNORECASE,
)
_LAUNCHER = re.compile(r"\[[^\s\]:]+:\d+\] (?:\[\[\d+,\d+\],\d+\] )?(?:ORTE|PRTE|PMIX)[ _]ERROR")
"""Open MPI on itself, with host and process, when its ranks end in a way that it did not expect."""
_SOURCE = re.compile(r"^\[\S+:\d+\] ")
_NO_MEMORY = re.compile(r"can't allocate memory|out of memory|bad_alloc", re.IGNORECASE)
_WANTED = re.compile(r"tried to allocate (?:(?P<bytes>\d+) bytes|(?P<shown>[\d.]+ [KMGT]iB))", re.IGNORECASE)
_CALLBACK = re.compile(r"^Got the following error when running the callback: (\w+: )?")
_EXCEPTION = re.compile(
    r"^(?:\[\w+\]:\s*)?(?:\s*what\(\):\s*(?P<what>\S.*)|(?P<raised>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)\b.*))$"
)
"""Of a Python traceback or of C++; torchrun puts the rank before each line."""
_ADVICE = re.compile(
    r"Primary job|Per user-direction|.*has sent help message|.*Set MCA parameter|\*{3} End of error|.*NCCL INFO"
)


def telling(lines: Sequence[str]) -> str:
    """The line that best explains why a program failed; empty if no line says anything.

    Among the program's own lines, this is the first that reports a failure, since it causes the others, or otherwise
    the last. If there are none, it is the first such sentence in a launcher's box of dashes, or else of its log.
    """
    own, boxes = _parted(lines)
    found = [_first_telling(own) or (own[-1] if own else ""), _first_telling(boxes)]
    return "; ".join(text for text in found if text)[:MOST_CHARACTERS]


def last_words(lines: Sequence[str]) -> str:
    """What a program that ended said of it: the exception that nobody caught, or its last line; empty if it said
    nothing."""
    for line in reversed(lines):
        if raised := _EXCEPTION.match(line.rstrip()):
            return (raised["what"] or raised["raised"])[:MOST_CHARACTERS]
    return next((line.strip() for line in reversed(lines) if line.strip()), "")[:MOST_CHARACTERS]


def out_of_memory(error: BaseException) -> str | None:
    """What an allocation that failed means, with the remedy; None for any other error."""
    text = str(error)
    if not isinstance(error, MemoryError) and not _NO_MEMORY.search(text):
        return None
    size = _WANTED.search(text)
    wanted = "what it needs next"
    if size:
        wanted = (size["shown"] or f"{int(size['bytes']) / 1024**3:.1f} GiB") + " more"
    return f"out of memory: {wanted} cannot be had; choose a smaller model, batch or context"


def first_line(error: BaseException) -> str:
    """An error of PyTorch on one line: without its source location and without what follows the first line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return _SOURCE.sub("", _CALLBACK.sub("", lines[0]))[:MOST_CHARACTERS] if lines else type(error).__name__


def _first_telling(texts: Sequence[str]) -> str:
    return next((text for text in texts if _TELLS.search(text)), "")


def _parted(lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """The program's lines, and what the launcher says: the first sentence of each box, then the lines of its log."""
    own: list[str] = []
    log: list[str] = []
    boxes: list[list[str]] = []
    inside = False
    for line in map(str.strip, lines):
        if _RULE.fullmatch(line):
            inside = not inside
            boxes += [[]] if inside else []
        elif not _EMPTY.fullmatch(line) and not _ADVICE.match(line):
            (boxes[-1] if inside else log if _LAUNCHER.match(line) else own).append(line)
    return own, [*(_sentence(" ".join(box)) for box in boxes), *log]


def _sentence(text: str) -> str:
    """The first sentence; one that ends in a colon is joined with the next."""
    found = _SENTENCE.match(text)
    if found is None:
        return text
    return text if found[0].endswith(":") else found[0]
