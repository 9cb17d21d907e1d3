"""The kernel of the guests: a Debian package, unpacked once into a folder of this user's and kept.

    ~/.cache/r2ccl/vms/<package>/    vmlinux, busybox, release, lib/modules/<release>/

Nothing is installed on this machine. The kernel is kept uncompressed: QEMU enters it directly, and a translated guest
need not decompress it (4.5 s of CPU from power on to the SSH server instead of 8.1).
"""

import fcntl
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ClusterError
from r2ccl_core.host.memory import shown

SHELL_PACKAGE = "busybox-static"
"""The package of the guests' programs until they have a root file system."""

KEPT = ("arch", "crypto", "drivers/block", "drivers/infiniband", "drivers/net", "drivers/virtio", "fs", "lib", "net")
"""Folders of modules that a guest may need; the rest of 400 MB is removed."""

ROOM_BYTES = 900 << 20
"""Space that a kernel's package takes while it is unpacked: 70 MB fetched, 460 MB unpacked, and the part of it that is
kept."""

DOWNLOAD_S, UNPACK_S = 600.0, 120.0
XZ = b"\xfd7zXZ\x00"
ELF = b"\x7fELF"


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel."""

    folder: Path

    @property
    def image(self) -> Path:
        """The file that QEMU boots."""
        return self.folder / "vmlinux"

    @property
    def busybox(self) -> Path:
        """A program that needs no library."""
        return self.folder / "busybox"

    @property
    def release(self) -> str:
        """The output of ``uname -r``."""
        return (self.folder / "release").read_text().strip()

    @property
    def modules(self) -> Path:
        """The folder of its modules."""
        return self.folder / "lib" / "modules" / self.release

    def lacks(self, *modules: str) -> list[str]:
        """Those of these modules that it has neither built in nor as a file."""
        builtin = (self.modules / "modules.builtin").read_text()
        return [name for name in modules if f"/{name}.ko" not in builtin and not self._has(name)]

    def _has(self, name: str) -> bool:
        return next(self.modules.rglob(f"{name}.ko*"), None) is not None


def cache() -> Path:
    """The folder in which kernels are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "r2ccl" / "vms"


def prepared(package: str, tell: Callable[[str], None]) -> Kernel:
    """The kernel of that Debian package; fetched and unpacked if it does not exist. Raises `ClusterError`."""
    with locked():
        kernel = Kernel(cache() / package)
        if not (kernel.folder / "release").exists():
            for tool in ("apt-get", "apt-cache", "dpkg-deb"):
                if shutil.which(tool) is None:
                    raise ClusterError(f"{tool} is missing: the guests' kernel is a Debian package")
            _check_room()
            _make(package, kernel.folder, tell)
        return kernel


def is_prepared(package: str) -> bool:
    """Whether the kernel already exists."""
    return (cache() / package / "release").exists()


def _check_room() -> None:
    free = shutil.disk_usage(cache()).free
    if free < ROOM_BYTES:
        what = f"the guests' kernel takes {shown(ROOM_BYTES)} in {cache()}, and {shown(free)} are free"
        raise ClusterError(f"{what}; make room, or set XDG_CACHE_HOME to a folder that has it")


@contextmanager
def locked() -> Iterator[None]:
    """Admits one process of this user at a time."""
    try:
        cache().mkdir(parents=True, exist_ok=True)
        fd = os.open(cache(), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        raise ClusterError(f"{cache()}: {e.strerror}; the guests' kernel is kept there: make it writable") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        _remove_parts()
        yield
    finally:
        os.close(fd)


def clean() -> list[str]:
    """Removes the remains of killed preparations, unless one is in progress; returns a line for each."""
    try:
        fd = os.open(cache(), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return [f"{name}, half made" for name in _remove_parts()]
    except BlockingIOError:
        return []
    finally:
        os.close(fd)


def _remove_parts() -> list[str]:
    parts = sorted(cache().glob("*.part"))
    for part in parts:
        shutil.rmtree(part, ignore_errors=True)
    return [part.name for part in parts]


def _make(package: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Makes the whole folder or nothing."""
    part = Path(tempfile.mkdtemp(prefix=f"{package}-", suffix=".part", dir=cache()))
    try:
        name = concrete(package, _said(["apt-cache", "depends", "--important", package], package, DOWNLOAD_S))
        tell(f"fetching {name} and {SHELL_PACKAGE}, once")
        _said(["apt-get", "-o", "APT::Sandbox::User=root", "download", name, SHELL_PACKAGE], package, DOWNLOAD_S, part)
        tell(f"unpacking them into {folder}")
        for file in part.glob("*.deb"):
            _said(["dpkg-deb", "-x", str(file), str(part / "unpacked")], package, UNPACK_S)
            file.unlink()
        _arrange(part / "unpacked", part)
        part.chmod(0o755)
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)
    except OSError as e:
        raise ClusterError(f"{package} cannot be unpacked in {cache()}: {e.strerror}; make room there") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def concrete(package: str, depends: str) -> str:
    """The package that has the kernel: the dependency of a meta-package by ``apt-cache depends``, or the package
    itself."""
    found = re.findall(r"Depends: (linux-image-\S+)", depends)
    return found[0] if found else package


def _arrange(unpacked: Path, folder: Path) -> None:
    """Moves the packages' files to those of a `Kernel`; `release` comes last."""
    modules = next((unpacked / "lib" / "modules").iterdir())
    release = modules.name
    uncompress(unpacked / "boot" / f"vmlinuz-{release}", folder / "vmlinux")
    (unpacked / "bin" / "busybox").rename(folder / "busybox")
    _prune(modules / "kernel", folder / "lib" / "modules" / release / "kernel")
    for file in modules.glob("modules.*"):
        file.rename(folder / "lib" / "modules" / release / file.name)
    _said([str(folder / "busybox"), "depmod", "-b", str(folder), release], release, UNPACK_S)
    shutil.rmtree(unpacked)
    (folder / "release").write_text(release + "\n")


def _prune(source: Path, target: Path) -> None:
    for name in KEPT:
        if (source / name).is_dir():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).rename(target / name)


def uncompress(image: Path, target: Path) -> None:
    """The ELF file in a Debian kernel; if it cannot be extracted, the image as it is, which QEMU boots as well."""
    data = image.read_bytes()
    try:
        found = lzma.LZMADecompressor().decompress(data[data.index(XZ) :])
    except (ValueError, lzma.LZMAError):
        found = b""
    target.write_bytes(found if found.startswith(ELF) else data)


def _said(argv: Sequence[str], package: str, limit_s: float, folder: Path | None = None) -> str:
    """The output of a command. Raises `ClusterError` with its last line if it fails."""
    try:
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{argv[0]} has not ended within {limit_s:g} s; is the package mirror reached?") from None
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("W:")] or ["no message"]
        remedy = "run `apt-get update`, and look at cluster.kernel"
        raise ClusterError(f"the guests' kernel {package} cannot be had: {argv[0]}: {lines[-1]}; {remedy}")
    return done.stdout
