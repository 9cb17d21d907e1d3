"""Reads and writes files that people name: what may never end (pipes, devices), is far too large, or is a pipe that
nobody reads is refused."""

import errno
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from r2ccl_core.errors import UsageError

WRITTEN_BYTES = 64 << 20
"""Largest file that a person could have written."""
STORED_BYTES = 1 << 30
"""Largest text file that a program of ours stores."""


def is_there(path: Path) -> bool:
    """Whether there is a file or a folder; no such thing has a name that is too long, and reading it says so."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises such errors


def is_file(path: Path) -> bool:
    """Whether it is a regular file; as `is_there`."""
    return os.path.isfile(path)  # noqa: PTH113 - as above


def is_folder(path: Path) -> bool:
    """Whether it is a folder; as `is_there`."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def absolute(path: Path) -> Path:
    """`path` from the root. Raises `UsageError` if it is relative to a folder that has been deleted."""
    try:
        return path.absolute()
    except FileNotFoundError:
        raise UsageError(f"{path}: the folder in which this runs is gone; change to one that exists") from None


def regular(path: Path, most_bytes: int | None = None) -> Path:
    """`path`, if it is a regular file of at most this many bytes, or a folder, which cannot be read anyway. Raises
    `OSError` for anything else, without opening it, because opening may already block for ever."""
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        return path
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "is not a regular file")
    if most_bytes is not None and about.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes >> 20} MiB")
    return path


def text_of(path: Path, encoding: str = "utf-8", most_bytes: int = WRITTEN_BYTES) -> str:
    """The text of a file. Raises `OSError` if it cannot be read, and `UnicodeDecodeError` if it is not text."""
    return regular(path, most_bytes).read_text(encoding=encoding)


TOO_LONG = "has a number of thousands of digits; no key needs that"


def toml_of(text: str) -> dict[str, Any]:
    """The document. Raises `tomllib.TOMLDecodeError`, and `ValueError` for a number that is `TOO_LONG`: Python parses
    or shows none."""
    document = tomllib.loads(text)
    repr(document)
    return document


def write_text(path: Path, text: str) -> None:
    """Writes `text` as the file's new content. Raises `OSError` if it cannot be written, also for a pipe that nobody
    reads, where opening would block for ever."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
