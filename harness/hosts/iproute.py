"""The output of ``ip -j`` and ``tc -j`` on a host, as values."""

import json
from typing import Any

from harness.errors import CommandError
from harness.hosts.base import Host


def ask(host: Host, *argv: str) -> list[dict[str, Any]]:
    """The objects of the list that a command prints; none if there is no such program, or one without JSON.

    Raises `HostError` if the host does not answer.
    """
    try:
        values = json.loads(host.run(argv, check=False).stdout or "[]")
    except (CommandError, ValueError):
        return []
    return [value for value in values if isinstance(value, dict)]
