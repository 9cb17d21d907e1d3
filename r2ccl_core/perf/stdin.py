"""A measuring program ends when its standard input does: whoever started it is gone, or wants it to end."""

import os
import threading
from collections.abc import Callable

LOST = 3


def end_with_stdin(before: Callable[[], object] = lambda: None) -> None:
    """From now on the process exits with 3 when its standard input ends, after a call of `before`."""

    def wait() -> None:
        # Not sys.stdin: a daemon thread that holds its lock aborts the interpreter's end.
        while os.read(0, 4096):
            pass
        before()
        os._exit(LOST)

    threading.Thread(target=wait, name="r2ccl-stdin", daemon=True).start()
