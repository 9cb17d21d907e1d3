"""The entry point of the program `harness`: every ending has an exit status of its own.

A Ctrl-C during the imports is not a bug and shows no traceback. A bug shows one, and ends with a status that no result
has.
"""

import sys
import traceback

from r2ccl_core.output import robust

INTERRUPTED, CRASHED = 130, 70
"""`harness.errors.ExitCode`, which is not imported yet where these are needed."""


def main() -> None:
    """Runs the command line. All imports happen inside, so that an interrupt during them is caught."""
    robust()
    try:
        from harness.commands.cli import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except Exception:
        traceback.print_exc()
        sys.exit(CRASHED)
