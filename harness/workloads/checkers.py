"""Definitions of "correct" as functions of the ranks' records; a workload names those that apply to it. Pure.

A checker returns in one line why a trial is wrong, or an empty text. What a failed rank could no longer report does not
count against it.
"""

from collections.abc import Callable, Sequence

from harness.events import RankRecord

Checker = Callable[[Sequence[RankRecord]], str]


def first_of(checkers: Sequence[Checker], ranks: Sequence[RankRecord]) -> str:
    """The reason of the first of `checkers` that has one."""
    return next((why for checker in checkers if (why := checker(ranks))), "")


def count_wrong(ranks: Sequence[RankRecord]) -> int:
    """Wrong elements over all ranks and iterations, including warm-up."""
    return sum(timed.wrong or 0 for record in ranks for timed in record.finished.values())


def elements(ranks: Sequence[RankRecord]) -> str:
    """Every element that was compared must be right."""
    wrong = count_wrong(ranks)
    return f"{wrong} wrong {'element' if wrong == 1 else 'elements'}" if wrong else ""


def same_result(name: str) -> Checker:
    """Every rank that completed must have ended with the same `name`."""

    def check(ranks: Sequence[RankRecord]) -> str:
        said = {r.rank: r.result[name] for r in ranks if name in r.result}
        if len(set(said.values())) < 2:
            return ""
        first, other = next((a, b) for a in said for b in said if said[a] != said[b])
        return f"rank {first} ended with {name} {said[first]}, rank {other} with {said[other]}"

    return check
