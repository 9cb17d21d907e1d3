"""Where the program `harness` begins: a Ctrl-C that comes while it still imports is no bug, and shows no traceback."""

import sys


def main() -> None:
    """The command line; whatever it imports, it imports in here."""
    try:
        from harness.cli import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
