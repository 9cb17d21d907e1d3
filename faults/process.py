"""Signals to a rank: the commands that the faults of processes share."""

from faults.base import Order, Target
from faults.errors import NotPossibleError


def pid_of(target: Target, kind: str) -> int:
    """The rank's process; raises `NotPossibleError` while it is not known."""
    if target.pid is None:
        raise NotPossibleError(f"{kind} needs the process of the rank on {target.host}; it runs in a trial only")
    return target.pid


def signal(target: Target, name: str, kind: str, *, lenient: bool = False) -> Order:
    """A signal to the rank's whole process group."""
    return target.here("-kill" if lenient else "kill", f"-{name}", "--", f"-{pid_of(target, kind)}")


def status(target: Target, kind: str) -> Order:
    """The kernel's state of the process."""
    return target.here("cat", f"/proc/{pid_of(target, kind)}/stat")
