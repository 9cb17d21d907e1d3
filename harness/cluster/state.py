"""The records of local clusters: one directory per cluster, named by its tag, with its keys and its owner.

    /tmp/r2ccl-<uid>/<tag>/     cluster.json, keys, configurations and logs of the SSH servers

A cluster whose owner (a process, by number and start time) is gone is a left-over.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.cluster.processes import ProcessId, alive
from harness.errors import ClusterError

SCHEMA = 1


@dataclass
class Record:
    """One cluster's `cluster.json`."""

    tag: str
    name: str
    created: str
    command: list[str]
    owner: ProcessId
    processes: list[ProcessId] = field(default_factory=list)
    """The processes that keep its SSH servers running."""
    user_namespace: int = 0
    """The inode of the owner's user namespace."""
    user: str = ""
    """The user that logs in."""
    python: str = ""
    """The Python of its hosts."""
    layout: dict[str, Any] = field(default_factory=dict)

    def is_living(self) -> bool:
        """True while its owner runs."""
        return alive(self.owner)


def root() -> Path:
    """This user's directory of clusters, which exists while there is a cluster."""
    # tempfile.gettempdir() would follow TMPDIR, and a later `clean` without it would not find the clusters.
    return Path("/tmp") / f"r2ccl-{os.getuid()}"


@contextmanager
def lock() -> Iterator[None]:
    """Admits one process of this user at a time; makes the directory if needed, and removes it when empty.

    The lock is on the directory itself, which may disappear while we wait for it.
    """
    while True:
        fd = _open_root()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_root(fd):
                try:
                    yield
                finally:
                    with suppress(OSError):
                        root().rmdir()
                return
        finally:
            os.close(fd)


def _open_root() -> int:
    """Opens the directory. Raises `ClusterError` if it belongs to another user, or is open to others."""
    path = root()
    path.mkdir(mode=0o700, exist_ok=True)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return _open_root()  # another process's last cluster was removed in between
    except OSError as e:
        raise ClusterError(f"{path}: {e.strerror}; it must be a directory of yours alone: remove it") from None
    status = os.fstat(fd)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        os.close(fd)
        raise ClusterError(f"{path} is not a directory of yours alone (mode 0700); remove it")
    return fd


def _is_root(fd: int) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), root().stat())
    except FileNotFoundError:
        return False


def new_tag() -> str:
    """Eight hexadecimal digits: enough for uniqueness, short enough for an interface name."""
    return secrets.token_hex(4)


def directory(tag: str) -> Path:
    """The folder with the files of the cluster of that tag."""
    return root() / tag


def write(record: Record) -> None:
    """Makes the directory if needed, and replaces `cluster.json` atomically."""
    path = directory(record.tag)
    path.mkdir(mode=0o700, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path, delete=False) as file:
        json.dump({"schema": SCHEMA, **asdict(record)}, file, indent=1)
    Path(file.name).rename(path / "cluster.json")


def read(tag: str) -> Record | None:
    """The cluster's record; None if there is none that can be read (after a crash right at the start)."""
    try:
        data = json.loads((directory(tag) / "cluster.json").read_text())
        if data.pop("schema") != SCHEMA:
            raise ClusterError(f"{directory(tag)} is of another version of this program; clean with that one")
        data["owner"] = ProcessId(*data["owner"])
        data["processes"] = [ProcessId(*process) for process in data["processes"]]
        return Record(**data)
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def tags() -> list[str]:
    """All clusters of this user that have left a directory, living or not."""
    names = [path.name for path in root().iterdir()] if root().is_dir() else []
    return sorted(name for name in names if re.fullmatch("[0-9a-f]{8}", name))


def forget(tag: str) -> None:
    """Removes the cluster's directory; harmless twice."""
    shutil.rmtree(directory(tag), ignore_errors=True)
