"""How a command ends: a result becomes the exit status, an error one line on stderr, a bug a separate status."""

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import typer

from harness.errors import ExitCode, SweepError
from harness.interrupt import Interrupted, status_of
from harness.terminal import complain
from r2ccl_core import output
from r2ccl_core.errors import R2cclError

P = ParamSpec("P")


class Ended(typer.Exit):
    """The end of a command with its own status. Help and the version end with a plain `typer.Exit`."""


def reported(command: Callable[P, int]) -> Callable[P, None]:
    """Wraps a command whose result is the exit status and whose errors become one line on stderr."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            status = command(*args, **kwargs)
        except KeyboardInterrupt as stop:
            print(f"interrupted: {stop}" if isinstance(stop, Interrupted) else "interrupted", file=sys.stderr)
            status = status_of(stop)
        except R2cclError as error:
            complain(str(error))
            status = ExitCode.INCONCLUSIVE if isinstance(error, SweepError) else ExitCode.USAGE
        except Exception:
            traceback.print_exc()
            status = ExitCode.CRASHED
        raise Ended(int(status))

    return run


def printed(command: Callable[P, int]) -> Callable[P, None]:
    """Wraps a command that only prints: if its output cannot be written, it has failed, and why something is unknown is
    not told. What is wrong keeps its status."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        return output.printed(command(*args, **kwargs), (ExitCode.OK, ExitCode.INCONCLUSIVE))

    return reported(run)
