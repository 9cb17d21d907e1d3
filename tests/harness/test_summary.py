"""What a sweep came to: pending trials, exit codes and the table, from records made by hand."""

from pathlib import Path
from typing import Any

import pytest

from harness.errors import ExitCode
from harness.experiment_file import load
from harness.sweep.plan import plan
from harness.sweep.summary import exit_code, last_attempts, next_attempt, table

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
TRIAL = plan(load(ALLREDUCE))[0]


def record(status: str = "ok", expected: bool = True, attempt: int = 1, **changes: Any) -> dict[str, Any]:
    trial_id = TRIAL.trial_id if attempt == 1 else f"{TRIAL.trial_id}-a{attempt}"
    iterations = [
        {"phase": phase, "duration_ns": ms * 1_000_000, "busbw_gbs": 1 / ms}
        for phase, ms in (("warmup", 90), ("before", 10), ("before", 10), ("hit", 40), ("after", 15))
    ]
    made = {"trial_id": trial_id, "attempt": attempt, "status": status, "expected": expected}
    return made | {"system": "balance", "size_bytes": 1, "iterations": iterations} | changes


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([record()], ExitCode.OK),
        ([record("failed")], ExitCode.OK),
        ([record("wrong", False)], ExitCode.WRONG),
        ([record("failed", False)], ExitCode.WRONG),
        ([record("ok", False)], ExitCode.WRONG),
        ([record("inconclusive", False)], ExitCode.INCONCLUSIVE),
        ([record("inconclusive", False), record(attempt=2)], ExitCode.OK),
        ([record(attempt=2), record("inconclusive", False)], ExitCode.OK),
        ([record("wrong", False, trial_id="other"), record("inconclusive", False)], ExitCode.WRONG),
        ([], ExitCode.OK),
    ],
)
def test_exit_codes(records: list[dict[str, Any]], code: ExitCode) -> None:
    assert exit_code(records) is code


@pytest.mark.parametrize(
    ("records", "attempt"),
    [
        ([], 1),
        ([record()], None),
        ([record("failed", False)], None),
        ([record("wrong", False)], None),
        ([record("inconclusive", False)], 2),
        ([record("inconclusive", False), record("inconclusive", False, 2)], 3),
        ([record("inconclusive", False, n) for n in (1, 2, 3)], None),
        ([record("inconclusive", False), record(attempt=2)], None),
    ],
)
def test_what_runs_next_with_two_retries(records: list[dict[str, Any]], attempt: int | None) -> None:
    assert next_attempt(TRIAL, last_attempts(records), 2) == attempt


def test_the_table_has_medians_by_phase_and_the_slowdown() -> None:
    unexpected = record("failed", False, trial_id="other", iterations=[])
    (line,) = table([record(), unexpected])
    assert line.statuses == "1 failed!, 1 ok"
    assert (line.before_gbs, line.hit_gbs, line.after_gbs) == (0.1, 1 / 40, 1 / 15)
    assert line.slowdown == 1.5
