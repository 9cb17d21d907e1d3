"""Resilient collectives: topology, schedules, bounds, planner, simulator, and the runtime that moves bytes.

Its loggers are named below ``r2ccl_core``. In a program that does not configure `logging`, their warnings appear on
stderr, including lost NICs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r2ccl_core.runtime.communicator import Communicator

__all__ = ["Communicator"]


def __getattr__(name: str) -> Any:
    """Imports `Communicator` and `__version__` on first use: either costs more than the rest of this package."""
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
