"""The right to make network namespaces: root has it, other users get it in a user namespace of their own.

`acquire` re-executes the running command in such a namespace. It must be the first action of a command that needs a
local cluster, since a process with threads cannot move.
"""

import os
import sys
from pathlib import Path

from harness.errors import RightsError

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
INSIDE = "R2CCL_USER_NAMESPACE"
"""Set in the environment of the re-executed command, so that it never tries twice."""


def have() -> bool:
    """True if this process may make network namespaces and mounts."""
    wanted = 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN
    return effective_capabilities(Path("/proc/self/status").read_text()) & wanted == wanted


def effective_capabilities(status: str) -> int:
    """The bits of CapEff in a /proc/<pid>/status."""
    return next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))


def require() -> None:
    """Raises `RightsError` without the right."""
    if not have():
        raise RightsError("a local cluster needs root, or a kernel that lets users make user namespaces")


def acquire() -> None:
    """Returns if the process has the right, or re-executes this command with it. Raises `RightsError`."""
    if have():
        return
    if INSIDE in os.environ:
        require()
    launcher = Path(__file__).with_name("user_namespace.py")
    argv = [sys.executable, "-I", "-S", str(launcher), sys.executable, *sys.orig_argv[1:]]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, argv, os.environ | {INSIDE: "1"})
