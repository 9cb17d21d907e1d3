"""Processes by identity: a number together with a start time, so that a reused number is never killed."""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
POLL_S = 0.005


class ProcessId(NamedTuple):
    """`start` is in clock ticks after boot, as in /proc/<pid>/stat; `pidns` distinguishes containers."""

    pid: int
    start: int
    pidns: int


def identify(pid: int) -> ProcessId | None:
    """The process with that number now; None if there is none, or only a zombie."""
    try:
        # The name, in brackets, may itself contain blanks and brackets.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        pidns = (PROC / "self" / "ns" / "pid").stat().st_ino
    except OSError:
        return None
    return None if fields[0] in "ZX" else ProcessId(pid, int(fields[19]), pidns)


def alive(process: ProcessId) -> bool:
    """True while exactly this process runs. A process of another container cannot be checked: it counts as alive."""
    if process.pidns != (PROC / "self" / "ns" / "pid").stat().st_ino:
        return True
    return identify(process.pid) == process


def in_namespaces(kind: str, inodes: set[int]) -> list[ProcessId]:
    """Processes in one of the namespaces of that kind ('net', 'user'), as far as we may read them."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "ns" / kind).stat().st_ino in inodes:
                    found.append(identify(int(entry.name)))
    return [process for process in found if process is not None and process.pid != os.getpid()]


def kill(processes: Iterable[ProcessId], *, sig: int = signal.SIGKILL, wait_s: float = 5.0) -> None:
    """Signals each and waits until all are gone. Raises `TimeoutError` naming those that remain."""
    left = [process for process in processes if _signal(process, sig)]
    deadline = time.monotonic() + wait_s
    while left := [process for process in left if alive(process)]:
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {', '.join(str(p.pid) for p in left)} do not end")
        time.sleep(POLL_S)


def _signal(process: ProcessId, sig: int) -> bool:
    """True if it existed and was signalled; the descriptor keeps its number from being reused meanwhile."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(fd, sig)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
