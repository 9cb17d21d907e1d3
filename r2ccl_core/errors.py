"""The root of every error this project raises on purpose, and the core's own branch of the tree.

    R2cclError                  anything a user can cause or must know; shown as one line
    ├── UsageError              the user's input is wrong: what, where, remedy (exit code 2)
    │   ├── UnitError           a quantity that cannot be read
    │   └── MismatchedCallError ranks of a group called different things
    ├── ScheduleError           a schedule breaks its own rules
    └── TransportError          bytes cannot be moved any more
        └── PeerLostError       fail-stop mode, or no path left: the collective is over

Everything else that surfaces is a bug and keeps its traceback.
"""


class R2cclError(Exception):
    """Anything a user can cause or must know; its text is one line with a remedy."""


class UsageError(R2cclError):
    """The user's input is wrong; the text says what, where, and what to do instead."""


class UnitError(UsageError):
    """A quantity such as ``500 Mbit/s`` or ``64MiB`` cannot be read."""


class MismatchedCallError(UsageError):
    """Ranks of a group called different things, or the same with different arguments. The group ends on every rank."""


class ScheduleError(R2cclError):
    """A schedule is malformed or does not compute its collective."""


class TransportError(R2cclError):
    """The transport cannot move bytes any more."""


class PeerLostError(TransportError):
    """A peer cannot be reached: fail-stop mode, or no healthy path was left for too long."""
