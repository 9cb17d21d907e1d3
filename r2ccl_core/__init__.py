"""Resilient collectives: topology, schedules, bounds, planner, simulator, and the runtime that moves bytes.

Its loggers are those below ``r2ccl_core``. A program that does not configure `logging` has their warnings on stderr, a
lost NIC among them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r2ccl_core.runtime.communicator import Communicator

__all__ = ["Communicator"]


def __getattr__(name: str) -> Any:
    """`Communicator` and `__version__`, when they are asked for: either costs more than all else here."""
    if name == "Communicator":
        from r2ccl_core.runtime.communicator import Communicator

        return Communicator
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("r2ccl")
    except PackageNotFoundError:
        return "0+unknown"
