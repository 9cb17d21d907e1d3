"""The file to install on the hosts: this checkout as an archive that pip builds there, or a wheel that the user
names."""

import gzip
import hashlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from r2ccl_core.errors import UsageError

ROOT = Path(__file__).parents[2]
UNNEEDED = ("tests/", "experiments/", ".ci/")


@dataclass(frozen=True)
class Core:
    """A file that pip installs; `digest` identifies its content."""

    path: Path
    digest: str
    built_there: bool
    """True for source, which needs a compiler on the host."""


@contextmanager
def core_file(wheel: Path | None) -> Iterator[Core]:
    """The user's wheel, or an archive of this checkout's tracked files that exists as long as the context.

    Raises `UsageError` if there is neither.
    """
    if wheel is not None:
        yield _of_wheel(wheel)
        return
    data = archive(ROOT)
    with tempfile.TemporaryDirectory(prefix="r2ccl-core-") as folder:
        path = Path(folder) / "r2ccl.tar.gz"
        path.write_bytes(data)
        yield Core(path, _digest(data), built_there=True)


def archive(root: Path) -> bytes:
    """The tracked files of the checkout `root` as they are now, without those that hosts do not need; always the same
    bytes."""
    made = io.BytesIO()
    with gzip.GzipFile(fileobj=made, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name in _tracked(root):
            path = root / name
            if not name.startswith(UNNEEDED) and path.is_file() and not path.is_symlink():
                entry = tarfile.TarInfo(f"r2ccl/{name}")
                entry.size, entry.mode = path.stat().st_size, path.stat().st_mode & 0o755
                with path.open("rb") as file:
                    tar.addfile(entry, file)
    return made.getvalue()


def _tracked(root: Path) -> list[str]:
    try:
        done = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        done = None
    if done is None or done.returncode or "pyproject.toml" not in done.stdout.split("\0"):
        raise UsageError(f"{root} is not a checkout of r2ccl that could be sent to the hosts; name a wheel with --core")
    return sorted(filter(None, done.stdout.split("\0")))


def _of_wheel(path: Path) -> Core:
    if path.suffix != ".whl":
        raise UsageError(f"--core: {path}: is not a wheel; make one with `pip wheel --no-deps .`, or leave it out")
    try:
        return Core(path, _digest(path.read_bytes()), built_there=False)
    except OSError as error:
        raise UsageError(f"--core: {path}: cannot be read: {error.strerror}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
