"""Reads files that people name, and refuses those that may never end (pipes, devices) or are far too large."""

import errno
import stat
from pathlib import Path

WRITTEN_BYTES = 64 << 20
"""No file that a person writes is larger."""
STORED_BYTES = 1 << 30
"""Nor is one that a program of ours stores as text."""


def regular(path: Path, most_bytes: int | None = None) -> Path:
    """`path`, where it is a regular file of at most so many bytes, or a folder, which cannot be read anyway. `OSError`
    for anything else; it is not opened, as that alone may wait for ever."""
    about = path.stat()
    if stat.S_ISDIR(about.st_mode):
        return path
    if not stat.S_ISREG(about.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")
    if most_bytes is not None and about.st_size > most_bytes:
        raise OSError(errno.EFBIG, f"is larger than {most_bytes >> 20} MiB")
    return path


def text_of(path: Path, encoding: str = "utf-8", most_bytes: int = WRITTEN_BYTES) -> str:
    """What a file says. `OSError` where it cannot be read, `UnicodeDecodeError` for what is no text."""
    return regular(path, most_bytes).read_text(encoding=encoding)
