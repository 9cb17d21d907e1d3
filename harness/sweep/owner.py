"""The holder of a run folder or a host: a process, its start of possession, and the command that it runs."""

import getpass
import json
import os
import shlex
import socket
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from r2ccl_core.errors import UsageError


class BusyError(UsageError):
    """Another sweep holds something that this one needs; nothing was changed. The text names the owner."""


@dataclass(frozen=True)
class Owner:
    """The sweep that holds a run folder or a host, as another sweep reports it."""

    who: str
    pid: int
    since: str
    command: str

    @classmethod
    def this(cls) -> "Owner":
        """This process, as the owner from now on."""
        return cls(
            who=f"{_user()}@{socket.gethostname()}",
            pid=os.getpid(),
            since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            command=shlex.join(["harness", *sys.argv[1:]])[:200],
        )

    @classmethod
    def read(cls, told: object) -> "Owner | None":
        """The owner as a lock records it; None if the record cannot be read."""
        try:
            values: Any = json.loads(told) if isinstance(told, str | bytes) else told
            return cls(str(values["who"]), int(values["pid"]), str(values["since"]), str(values["command"]))
        except (ValueError, KeyError, TypeError):
            return None

    def values(self) -> Mapping[str, Any]:
        """The owner as JSON values."""
        return asdict(self)

    def is_same_sweep(self, other: "Owner") -> bool:
        """Whether both belong to one process, also under two names of one machine."""
        return (self.who, self.pid) == (other.who, other.pid)

    def __str__(self) -> str:
        return f"process {self.pid} of {self.who} ({self.command}) since {self.since}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
