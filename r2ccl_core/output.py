"""Keeps failures of standard output and error from ending a command.

Text that cannot be encoded is written in plain characters; text that cannot be written is dropped. A reader may leave
(`| head`), a disk may be full, a terminal may support only latin-1. None of this concerns the results of a sweep or a
comparison, which the exit status is about. A stream that fails once stays silent from then on. Standard error reports
the failure, if it still works and the reader did not simply leave.
"""

import codecs
import errno
import io
import os
import select
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TextIO

PLAIN = {
    "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-", "\N{HORIZONTAL ELLIPSIS}": "...", "\N{PLUS-MINUS SIGN}": "+-",
    "\N{NARROW NO-BREAK SPACE}": " ", "\N{MULTIPLICATION SIGN}": "x", "\N{MICRO SIGN}": "u",
    "\N{RIGHTWARDS ARROW}": "->",
}  # fmt: skip
"""Replacements for our own symbols if the encoding lacks them; other characters become question marks."""
LEFT = (errno.EPIPE, errno.EBADF)
"""Errors that mean that the reader has left, or never existed."""
UNWRITTEN = 74
"""The exit status of a command that only prints, if its output could not be written."""

OBEYED = ("Cc", "Cf", "Zl", "Zp")
"""The kinds of characters that a terminal obeys instead of showing them: controls, directions of writing, ends of
lines."""
OF_WORDS = "\n\t\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}\N{SOFT HYPHEN}"
"""Those of them that text may hold."""


def harmless(text: str) -> str:
    """`text` as a terminal shows it and does not obey it: ESC is ``\\x1b``. Letters of every language stay."""
    if text.isprintable():
        return text
    return "".join(ascii(letter)[1:-1] if _is_obeyed(letter) else letter for letter in text)


def _is_obeyed(letter: str) -> bool:
    return unicodedata.category(letter) in OBEYED and letter not in OF_WORDS


CLOSED = "output was closed before the command began, so nothing of it was written"

_told: list[str] = []
"""Why standard output could not be written."""


def robust() -> None:
    """From now on `sys.stdout` and `sys.stderr` raise nothing. Call this once, before anything else."""
    codecs.register_error("plain", _plain)
    if sys.stdout is None:
        _told.append(CLOSED)
    sys.stderr = _wrapped(sys.stderr, 2, lambda line: None)
    sys.stdout = _wrapped(sys.stdout, 1, _tell)


def printed(status: int, lost: Collection[int] = (0,)) -> int:
    """The exit status of a command that only prints, after all its output: `status`, or `UNWRITTEN` if that is one of
    `lost` (success) and the output could not be written, other than because its reader had left."""
    sys.stdout.flush()
    if status not in lost or not _told:
        return status
    if CLOSED in _told:  # of a write that failed, a line was written then
        print(CLOSED, file=sys.stderr, flush=True)
    return UNWRITTEN


@contextmanager
def only_printing() -> Iterator[None]:
    """What ends the program with success in here has only printed, as a parser of arguments its help or the version."""
    try:
        yield
    except SystemExit as end:
        if end.code:
            raise
        sys.exit(printed(0))


def _tell(line: str) -> None:
    _told.append(line)
    print(line, file=sys.stderr, flush=True)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter, "?") for letter in text), error.end


def _wrapped(stream: TextIO | None, fd: int, tell: Callable[[str], None]) -> TextIO:
    """`stream` over a file that drops what cannot be written. If the stream was closed from the start, it drops
    everything."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - open until the end
    stream.flush()
    raw = Lenient(fd, tell)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),  # type: ignore[type-var]  # it is a raw stream, as BufferedWriter asks for
        encoding=stream.encoding,
        errors="plain",
        line_buffering=raw.isatty() or fd == 2,
    )


class Lenient(io.RawIOBase):
    """Writes to a descriptor until a write fails; later output is dropped. `tell` receives the reason, in one line."""

    def __init__(self, fd: int, tell: Callable[[str], None]) -> None:
        self._fd, self._tell, self._lost = fd, tell, False

    def writable(self) -> bool:
        """Always."""
        return True

    def fileno(self) -> int:
        """The descriptor's number, for those who ask about the terminal."""
        return self._fd

    def isatty(self) -> bool:
        """Whether a terminal reads it."""
        return os.isatty(self._fd)

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Writes all of `data`, or nothing any more."""
        left = memoryview(data)
        while left and not self._lost:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                select.select([], [self._fd], [])
            except OSError as error:
                self._lost = True
                if error.errno not in LEFT:
                    self._tell(f"output cannot be written ({error.strerror}); the rest of it is dropped")
        return len(data)
