"""Lets Ctrl-C end a program quietly while its modules are imported. A program imports this before anything else.

Until `begun` is called an interrupt ends the process as the kernel does it, without a traceback; shells show status
130. Where the interrupt is ignored from the start, as in a background job, it stays ignored.
"""

import os

try:
    import signal

    _USUAL = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if _USUAL:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
except KeyboardInterrupt:
    os._exit(130)


def begun() -> None:
    """From now on an interrupt is a `KeyboardInterrupt`, which the program answers itself."""
    if _USUAL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
