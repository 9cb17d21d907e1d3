"""The entry point of the program `r2ccl-status`: a Ctrl-C during the imports shows no traceback, and text that cannot
be written ends nothing."""

from r2ccl_core import quiet_start  # isort: skip  # the first of all, as it says


def main() -> None:
    """Imports the program and runs it."""
    from r2ccl_core.output import robust

    robust()
    from r2ccl_core.status.cli import main as run

    quiet_start.begun()
    run()
