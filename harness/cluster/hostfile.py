"""Host files of MPI as hosts: Open MPI's (``node1 slots=8``) and MPICH's (``node1:8``). Pure."""

import re
from dataclasses import dataclass

from harness.errors import MistakeError
from harness.experiment.tables import nearest

_KEYS = ("slots", "max_slots", "max-slots", "username", "user")
_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z_][A-Za-z0-9_.-]*)@)?(?P<address>[A-Za-z0-9][A-Za-z0-9_.-]*)(?::(?P<count>\d+))?\Z"
)
_IPV6 = re.compile(r"\[(?P<address>[0-9A-Fa-f:.]+)\](?::(?P<count>\d+))?\Z")


@dataclass(frozen=True)
class Entry:
    """One host of a file. Repeated lines of a host become one entry, as MPI adds up its slots."""

    address: str
    user: str | None = None


def parse(text: str, file: str) -> list[Entry]:
    """The hosts in the order of the file. Raises `MistakeError` for the first line of any other form."""
    found: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        if words:
            entry = _entry(words, file, f"line {number}")
            found.setdefault(entry.address, entry)
    if not found:
        raise MistakeError(file, "", None, "names no host; write one a line, such as: node1 slots=8")
    return list(found.values())


def _entry(words: list[str], file: str, place: str) -> Entry:
    match = _HOST.match(words[0]) or _IPV6.match(words[0])
    if match is None:
        raise MistakeError(file, place, words[0], "is not a host; write it like 'node1 slots=8' or 'node1:8'")
    user = match.groupdict().get("user")
    for pair in words[1:]:
        key, separator, value = pair.partition("=")
        if not separator or key not in _KEYS:
            raise MistakeError(file, place, pair, f"unknown key; {nearest(key, _KEYS)}")
        user = value if key in ("username", "user") else user
    return Entry(match["address"], user)
