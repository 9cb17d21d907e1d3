"""Processor time that a hypervisor took from the hosts while trials ran: their times are not of the network alone."""

from collections.abc import Iterable

from reports.trial import Trial
from reports.wording import percent, plural

MUCH = 0.05
"""Of a host's processor time; below it, iterations on two cores took as long as with nothing taken (measured)."""


def stolen_time(trials: Iterable[Trial]) -> str:
    """One sentence about the `trials` that lost much; empty where none did, or where nobody looked."""
    shares = [t.evidence.stolen_share for t in trials if t.evidence.stolen_share is not None]
    disturbed = [share for share in shares if share > MUCH]
    if not disturbed:
        return ""
    return (
        f"The hypervisor took more than {percent(MUCH)} of a host's processor time in {len(disturbed)} of "
        f"{plural(len(shares), 'trial')} that were watched, {percent(max(disturbed))} in the worst: "
        "their times are not of the network alone."
    )
