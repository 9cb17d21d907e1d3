"""Removes the status files of processes that have ended, and the drafts they left.

An unreadable file, or a draft, is judged by its name, which contains the host, number and start of its process.
"""

import re
import socket
from pathlib import Path

from r2ccl_core.status.read import SILENT_S, Life, listed, read_folder, runs

_NAME = re.compile(r"r2ccl-(?P<host>.+)-(?P<pid>[0-9]{1,10})-(?P<ticks>[0-9]{1,20})-[0-9]+\.json(\.tmp)?")


def clean(folder: Path, now_s: float) -> list[str]:
    """Removes what ended processes left; returns one line for each file that cannot be removed."""
    found = read_folder(folder, now_s)
    ended = [status.path for status in found.statuses if status.life is Life.GONE]
    unclear = [*found.unread, *listed(folder, ".json.tmp")]
    failures = []
    for path in (*ended, *(path for path in unclear if _left_behind(path, now_s))):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            failures.append(f"{path}: cannot be removed ({error.strerror}); remove it as its owner")
    return failures


def _left_behind(path: Path, now_s: float) -> bool:
    """Whether its process ran on this host and no longer runs. The number may belong to another pid namespace, such as
    a container's, so recently written files stay, whoever wrote them."""
    name = _NAME.fullmatch(path.name)
    if name is None or name["host"] != socket.gethostname() or runs(int(name["pid"]), int(name["ticks"])):
        return False
    try:
        return now_s - path.stat().st_mtime > SILENT_S
    except OSError:
        return False
