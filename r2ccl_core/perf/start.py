"""The entry point of the program `r2ccl-perf`: a Ctrl-C during the imports shows no traceback."""

from r2ccl_core import quiet_start  # isort: skip  # the first of all, as it says

from typing import NoReturn


def main() -> NoReturn:
    """Imports the program and runs it."""
    from r2ccl_core.perf.cli import main as run

    quiet_start.begun()
    run()
