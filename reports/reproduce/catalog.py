"""Every published experiment by name."""

from difflib import get_close_matches

from reports.errors import ReportError
from reports.reproduce import applications, cloudlab, collectives, jobs, theory
from reports.reproduce.entry import Entry

ENTRIES = (*cloudlab.ENTRIES, *collectives.ENTRIES, *applications.ENTRIES, *jobs.ENTRIES, *theory.ENTRIES)
"""In the order of the listing."""


def find(name: str) -> Entry:
    """The entry of that name; raises `ReportError` with the nearest name."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    close = get_close_matches(name.lower(), [entry.name for entry in ENTRIES], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`harness reproduce` lists them"
    raise ReportError(f"{name}: no published experiment has this name; {hint}")
