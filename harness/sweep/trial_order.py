"""The order of trials in a sweep: which trial comes next, given the trials that have ended. Pure.

Blocks (repeats) run in order. Once `repeats.min` blocks have ended, another one is added only while some cell is not
known precisely enough. The answer depends only on the plan and the records, so a resumed sweep continues in the same
order.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from harness.experiment.sweep import SweepModel
from harness.sweep.plan import Trial
from harness.sweep.precision import is_narrow, widths
from harness.sweep.summary import next_attempt
from reports import trial as stored


def remaining(trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]) -> Iterator[Trial]:
    """The trials that still need an attempt, in order; `records` (last attempts) may grow while they are taken."""
    for block in left_by_block(trials, sweep, records):
        yield from block


def left_by_block(
    trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]
) -> Iterator[list[Trial]]:
    """The same block by block: trials of one block may run in any order, or at once."""
    for block in _blocks(trials, sweep, records):
        yield [trial for trial in block if next_attempt(trial, records, sweep.retries) is not None]


def due(trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]) -> list[Trial]:
    """The trials that belong to the sweep as far as is known, run or not."""
    return [trial for block in _blocks(trials, sweep, records) for trial in block]


def _blocks(
    trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]
) -> Iterator[Sequence[Trial]]:
    earlier: list[Trial] = []
    repeated = [trial for trial in trials if not trial.closing]
    for number, (_, block) in enumerate(groupby(repeated, key=lambda trial: trial.repeat)):
        if number >= sweep.repeats.min and _known_well(earlier, sweep, records):
            break
        chosen = list(block)
        yield chosen
        earlier += chosen
    yield [trial for trial in trials if trial.closing]


def _known_well(earlier: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]) -> bool:
    """All of `earlier` have ended, and every cell's interval is narrow."""
    until = sweep.repeats.until
    if until is None or any(next_attempt(trial, records, sweep.retries) is not None for trial in earlier):
        return False
    return all(is_narrow(width, until) for width in widths(earlier, records))
