"""Processor time that a hypervisor took from the hosts during trials, which distorts the trials' times."""

from collections.abc import Iterable

from reports.trial import Trial
from reports.wording import percent, plural

MUCH = 0.05
"""Share of a host's processor time; below it, iterations on two cores took as long as with nothing stolen
(measured)."""


def stolen_time(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` that lost much processor time; empty if none did or if it was not watched."""
    shares = [t.evidence.stolen_share for t in trials if t.evidence.stolen_share is not None]
    disturbed = [share for share in shares if share > MUCH]
    if not disturbed:
        return ""
    return (
        f"The hypervisor took more than {percent(MUCH)} of a host's processor time in {len(disturbed)} of "
        f"{plural(len(shares), 'trial')} that were watched, {percent(max(disturbed))} in the worst: "
        "their times do not reflect the network alone."
    )
