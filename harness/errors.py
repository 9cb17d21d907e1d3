"""Every error the harness raises on purpose, as one tree, and the exit codes a command ends with.

    R2cclError                      (r2ccl_core.errors) one line: what, where, remedy
    ├── UsageError                  (r2ccl_core.errors) exit code 2
    │   ├── MistakeError            one mistake in a file or an option: file, key, value, remedy
    │   │   └── ExperimentError     an experiment file says something impossible
    │   ├── InvalidExperimentError  all mistakes of one experiment file, one line each
    │   ├── InventoryError          all mistakes of one inventory file, one line each
    │   ├── BusyError               (harness.sweep.owner) another sweep has the run folder or a host
    │   └── RightsError             the kernel or the user's rights do not allow what was asked
    └── HarnessError                something outside the user's input went wrong
        ├── HostError               one host: its name comes first in the text
        │   ├── UnreachableError    no SSH session to the host, or it was lost
        │   ├── CommandError        a command on a host ended badly; carries argv, exit status and stderr
        │   └── HostTimeoutError    a host did not answer in time
        ├── ClusterError            a cluster cannot be made, checked or taken down
        │   └── UnhealthyError      a check before a trial failed (a NIC is down, counters unreadable)
        ├── SweepError              a sweep cannot go on
        ├── LogError                what another program wrote cannot be understood
        └── RdmaPortError           a NIC has no RDMA port that could be measured

A trial that fails is no exception: it is a row with a status. Anything that is not in this tree is a bug,
keeps its traceback and ends the command with `ExitCode.CRASHED`.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Self

from r2ccl_core import output
from r2ccl_core.errors import R2cclError, UsageError

MAX_WORD = 100
"""Longer words of a command are no help in a line about it."""


class ExitCode(IntEnum):
    """What a command's exit status means; the help of `harness sweep` and others says it in their words."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """A number with a meaning."""
        made = int.__new__(cls, value)
        made._value_, made.meaning = value, meaning
        return made

    OK = 0, "everything is as it should be"
    WRONG = 1, "a result is wrong, unexpected or worse, a bound is missed, or something is wrong on a host"
    USAGE = 2, "the input is wrong; nothing was touched"
    INCONCLUSIVE = 3, "unknown: trials without a result, unmeasured bounds, too few repeats"
    CRASHED = 70, "a bug of this program, with a traceback; it says nothing about any result"
    UNWRITTEN = output.UNWRITTEN, "what a command that only prints has to say could not be written"
    HUNG_UP = 129, "the terminal went away (SIGHUP), like every program that a signal ends 128 more than it"
    INTERRUPTED = 130, "interrupted (Ctrl-C); finished trials are kept, and the same command resumes"
    TERMINATED = 143, "ended by SIGTERM; as after an interrupt"


class MistakeError(UsageError):
    """One mistake in a file or an option, as the line ``file: key: value: remedy``."""

    def __init__(self, file: str, key: str, value: object, remedy: str) -> None:
        self.file, self.key, self.value, self.remedy = file, key, value, remedy
        super().__init__(": ".join(part for part in (file, key, _shown(value), remedy) if part))


class ExperimentError(MistakeError):
    """One mistake in an experiment file."""


class InvalidExperimentError(UsageError):
    """Every mistake of one experiment file; the text has one line for each."""

    def __init__(self, errors: Sequence[ExperimentError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


class InventoryError(UsageError):
    """Every mistake of one inventory file; the text has one line for each."""

    def __init__(self, errors: Sequence[MistakeError]) -> None:
        self.errors = tuple(errors)
        super().__init__("\n".join(map(str, self.errors)))


class RightsError(UsageError):
    """The kernel or the user's rights do not allow what was asked; the text says what to do."""


class HarnessError(R2cclError):
    """Something outside the user's input went wrong."""


class HostError(HarnessError):
    """Something went wrong on one host; the text starts with the host's name."""

    def __init__(self, host: str, message: str) -> None:
        self.host, self.message = host, message
        super().__init__(f"{host}: {message}")


class UnreachableError(HostError):
    """There is no SSH session to the host, or it was lost."""


class CommandError(HostError):
    """A command on a host ended with a status other than 0."""

    def __init__(self, host: str, argv: Sequence[str], returncode: int, stderr: str) -> None:
        self.argv, self.returncode, self.stderr = tuple(argv), returncode, stderr
        last = (stderr.strip().splitlines() or ["no message"])[-1]
        super().__init__(host, f"{command_line(argv)}: exit status {returncode}: {last}")


def command_line(argv: Sequence[str]) -> str:
    """A command for a line of text: of a script among its words, that it is there."""
    return " ".join("SCRIPT" if "\n" in word else word if len(word) <= MAX_WORD else "..." for word in argv)


class HostTimeoutError(HostError):
    """A host did not answer, or a command did not end, in time."""


class ClusterError(HarnessError):
    """A cluster cannot be made, checked or taken down."""


class UnhealthyError(ClusterError):
    """A cluster is not in the state a trial needs; the text lists every finding."""


class SweepError(HarnessError):
    """A sweep cannot continue."""


class LogError(HarnessError):
    """What another program wrote cannot be understood."""


class RdmaPortError(HarnessError):
    """A NIC has no RDMA port that could be measured."""


def _shown(value: object) -> str:
    """`value` as it stands in the file; the empty string where there is none to show."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).replace("\n", " ")[:200]
