"""Hosts whose watch reported nothing: the report must say that their processors, memory and errors are unknown."""

from collections.abc import Iterable

from reports.trial import Trial
from reports.wording import plural


def unwatched_hosts(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` with such hosts, with the last reason of each host; empty if there are none."""
    missing = [trial.evidence.unwatched for trial in trials if trial.evidence.unwatched]
    if not missing:
        return ""
    reasons = {host: reason for found in missing for host, reason in found.items()}
    told = "; ".join(f"{host}: {reason}" for host, reason in sorted(reasons.items()))
    return f"Some hosts were not watched in {plural(len(missing), 'trial')}, so their state is not shown: {told}."
