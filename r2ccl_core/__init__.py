"""Resilient collectives: topology, schedules, bounds, planner, simulator, and the runtime that moves bytes.

Its loggers are those below ``r2ccl_core``. A program that does not configure `logging` has their warnings on stderr, a
lost NIC among them.
"""


def __getattr__(name: str) -> str:
    """`__version__`, when it is asked for: looking it up costs as much as all other imports here."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("r2ccl")
    except PackageNotFoundError:
        return "0+unknown"
