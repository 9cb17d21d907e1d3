"""A finding: severity, topic, host, description and remedy. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How severe a finding is. Only an error keeps a sweep from running correctly."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One statement of a check. `host` is empty if it concerns all of them."""

    severity: Severity
    topic: str
    host: str
    what: str
    remedy: str = ""


def ok(topic: str, host: str, what: str) -> Finding:
    """All is well."""
    return Finding(Severity.OK, topic, host, what)


def note(topic: str, host: str, what: str, remedy: str = "") -> Finding:
    """Worth knowing."""
    return Finding(Severity.NOTE, topic, host, what, remedy)


def warning(topic: str, host: str, what: str, remedy: str) -> Finding:
    """It may spoil some experiments or their results."""
    return Finding(Severity.WARNING, topic, host, what, remedy)


def error(topic: str, host: str, what: str, remedy: str) -> Finding:
    """Experiments on these hosts fail, or give misleading results."""
    return Finding(Severity.ERROR, topic, host, what, remedy)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """By severity; otherwise in the given order."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: -order.index(finding.severity))


def merged(findings: Sequence[Finding]) -> list[tuple[Finding, list[str]]]:
    """Each different finding once, with all hosts that it concerns."""
    hosts: dict[tuple[Severity, str, str, str], list[str]] = {}
    for finding in findings:
        key = (finding.severity, finding.topic, finding.what, finding.remedy)
        hosts.setdefault(key, []).append(finding.host)
    return [(Finding(key[0], key[1], names[0], key[2], key[3]), names) for key, names in hosts.items()]


def split_remedy(message: str) -> tuple[str, str]:
    """An error's line as description and remedy, split at its last semicolon."""
    what, separator, remedy = message.rpartition("; ")
    return (what, remedy) if separator else (message, "")
