"""The root of guests that run a release of Debian instead of this machine's own files: made once by mmdebstrap, kept.

    ~/.cache/r2ccl/vms/debian-<release>/     read-only to the guests

It has the requirements of every host from the release's own packages: Python, an SSH server, iproute2. A guest takes
everything else from this machine (`binds`): the cluster's files, its kernel's modules, and this package, so that ranks
can run that need nothing but Python.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import harness
from harness.cluster.vms.kernel import cache, locked
from harness.errors import ClusterError
from r2ccl_core.host.memory import shown

PACKAGES = ("python3", "openssh-server", "iproute2", "procps")
MAKE_S = 1800.0
APART = ("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Prefix of a command: the command ends with this process, for whatever reason, and so do its mounts in the root."""
ROOM_BYTES = 500 << 20
"""Space that a root takes while it is made: 180 MB of Debian 11 and, until then, its packages and lists."""
PACKAGES_OF_PYTHON = "/usr/lib/python3/dist-packages"


def prepared(release: str, tell: Callable[[str], None]) -> Path:
    """The folder of its root; made if it does not exist. Raises `ClusterError`."""
    folder = cache() / f"debian-{release}"
    with locked():
        if not folder.exists():
            _make(release, folder, tell)
    return folder


def is_prepared(release: str) -> bool:
    """Whether the root already exists."""
    return (cache() / f"debian-{release}").exists()


def binds(directory: Path, modules: Path) -> dict[Path, str]:
    """Folders of this machine, and their paths in a guest."""
    package = Path(harness.__file__).parent
    return {
        directory: str(directory),
        modules: str(modules),
        package: f"{PACKAGES_OF_PYTHON}/{package.name}",
    }


def _make(release: str, folder: Path, tell: Callable[[str], None]) -> None:
    """Makes the whole root or nothing."""
    program = shutil.which("mmdebstrap")
    if program is None:
        raise ClusterError("mmdebstrap is missing, for cluster.debian; install the package mmdebstrap")
    if os.getuid() != 0:
        raise ClusterError("only root can make the root of cluster.debian: run `harness cluster prepare` as root once")
    free = shutil.disk_usage(cache()).free
    if free < ROOM_BYTES:
        what = f"Debian {release} takes {shown(ROOM_BYTES)} in {cache()}, and {shown(free)} are free"
        raise ClusterError(f"{what}; make room, or set XDG_CACHE_HOME to a folder that has it")
    part = Path(tempfile.mkdtemp(prefix=f"{folder.name}-", suffix=".part", dir=cache()))
    try:
        tell(f"making {folder} of Debian {release}'s packages, once")
        _run([*APART, program, *arguments(release, part / "root")], release)
        (part / "root").rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def arguments(release: str, folder: Path) -> list[str]:
    """Arguments of mmdebstrap, which takes packages from the mirror that it knows for the release."""
    return ["--quiet", "--mode=root", "--variant=apt", f"--include={','.join(PACKAGES)}", release, str(folder)]


def _run(argv: list[str], release: str) -> None:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAKE_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(f"mmdebstrap has not ended within {MAKE_S:g} s; is the package mirror reached?") from None
    if done.returncode:
        wrong = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or ["no message"]
        raise ClusterError(f"Debian {release} cannot be had: {wrong[0][3:]}; look at cluster.debian and the mirror")
