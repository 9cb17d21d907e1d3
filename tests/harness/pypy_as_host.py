#!/usr/bin/env -S pypy3 -I -S
"""PyPy as the Python of a host: with os.waitid, the one call of Python 3.9 that the agent needs and PyPy has not.

Called as Python is: [-I] [-S] -c CODE ARGUMENTS...
"""

import ctypes
import os
import sys

SIGINFO_BYTES = 128
SI_PID = 16

_libc = ctypes.CDLL(None, use_errno=True)


def waitid(kind: int, number: int, options: int) -> object:
    """waitid(2): None where nothing has changed, else something."""
    info = ctypes.create_string_buffer(SIGINFO_BYTES)
    if _libc.waitid(kind, number, info, options) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    pid = int.from_bytes(info.raw[SI_PID : SI_PID + 4], "little")
    return pid or None


os.waitid = waitid  # type: ignore[assignment]
os.P_PID, os.WEXITED, os.WNOWAIT = 1, 4, 0x01000000  # type: ignore[misc]
sys.executable = os.path.abspath(sys.argv[0])  # noqa: PTH100  (what the agent starts is started so, too)
at = sys.argv.index("-c")
code, sys.argv = sys.argv[at + 1], ["-c", *sys.argv[at + 2 :]]
exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
