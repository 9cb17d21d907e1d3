"""The entry point of the program `harness`: every kind of end has a separate exit status.

A Ctrl-C during the imports is not a bug and shows no traceback. A bug shows one, and exits with a status that no result
has.
"""

from r2ccl_core import quiet_start  # isort: skip  # the first of all, as it says

import gc
import sys

ALLOCATIONS = 50_000
"""The garbage collector looks for cycles after so many, not after 700: a report takes 7 % less time."""
INTERRUPTED, CRASHED = 130, 70
"""`harness.errors.ExitCode`, which is not yet imported where these are needed."""


def main() -> None:
    """Runs the command line. All imports happen inside, so that an interrupt during them is caught."""
    from r2ccl_core.output import robust

    robust()
    gc.set_threshold(ALLOCATIONS)
    try:
        from harness.commands.cli import main as run

        quiet_start.begun()
        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception:
        import traceback

        traceback.print_exc()
        sys.exit(CRASHED)
