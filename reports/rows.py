"""The flat form: one row per iteration of every trial, the schema of rows.parquet and rows.csv. Pure.

A trial without a single finished iteration still has one row, with the iteration's columns empty: a failed
trial is a row with a status, not a hole. Times and bandwidths are as in `reports.trial`.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from reports.trial import Iteration, Run, Trial

COLUMNS = {
    "run": "string",  # the folder's name
    "commit": "string",  # of the program that measured; empty where it was not known
    "dirty": "boolean",  # whether that tree had uncommitted changes
    "trial_id": "string",
    "cell_id": "string",  # the trial that this is an attempt at
    "last_attempt": "bool",  # later attempts replace earlier ones in every statistic
    "system": "string",
    "mode": "int64",
    "collective": "string",
    "size_bytes": "int64",
    "dtype": "string",
    "op": "string",
    "place": "string",
    "scenario": "string",  # the label of the fault, or 'healthy'
    "repeat": "int64",
    "attempt": "int64",
    "status": "string",
    "expected": "bool",
    "reason": "string",
    "fault_kind": "string",
    "fault_host": "string",
    "fault_nic": "string",
    "fault_before_ns": "Int64",
    "fault_after_ns": "Int64",
    "heal_ns": "Int64",
    "in_flight": "boolean",
    "dead_nic_tx_after": "Int64",
    "dead_nic_rx_after": "Int64",
    "healed": "boolean",
    "error": "string",
    "error_after_fault_ns": "Int64",
    "iteration": "Int64",
    "phase": "string",
    "t_ns": "Int64",
    "duration_ns": "Int64",
    "wrong": "Int64",
    "algbw_gbs": "Float64",
    "busbw_gbs": "Float64",
}
"""Every column, in order, with its pandas type; the capitalised ones may be empty."""

TRIAL_COLUMNS = tuple(name for name in COLUMNS if name not in Iteration.model_fields)
"""Those that are the same in every row of a trial."""


def rows(run_name: str, run: Run, trials: Iterable[Trial]) -> pd.DataFrame:
    """All rows of a run, ordered as `trials`; columns and types are `COLUMNS`."""
    listed = list(trials)
    last = {t.cell_id: t.attempt for t in sorted(listed, key=lambda t: t.attempt)}
    head = (run_name, run.provenance.get("commit"), run.provenance.get("dirty"))
    taken = [row for t in listed for row in _trial_rows(head, t, last[t.cell_id] == t.attempt)]
    columns: list[Any] = list(zip(*taken, strict=True)) or [()] * len(COLUMNS)
    return pd.DataFrame(
        {name: pd.array(list(c), dtype=t) for (name, t), c in zip(COLUMNS.items(), columns, strict=True)}  # type: ignore[call-overload]
    )


def trials_of(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per attempt, without the iteration's columns."""
    return frame.drop_duplicates(["run", "trial_id"])[list(TRIAL_COLUMNS)].reset_index(drop=True)


def final(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that count: last attempts, without the inconclusive ones."""
    return frame[frame["last_attempt"] & (frame["status"] != "inconclusive")]


def _trial_rows(head: tuple[Any, ...], trial: Trial, last: bool) -> Iterator[tuple[Any, ...]]:
    order = (*head, trial.trial_id, trial.cell_id, last, *_about(trial), *_proof(trial))
    if not trial.iterations:
        yield (*order, *[None] * 7)
    for i in trial.iterations:
        yield (*order, i.iteration, i.phase, i.t_ns, i.duration_ns, i.wrong, i.algbw_gbs, i.busbw_gbs)


def _about(t: Trial) -> tuple[Any, ...]:
    what = (t.system, t.mode, t.collective, t.size_bytes, t.dtype, t.op, t.place, t.scenario)
    return (*what, t.repeat, t.attempt, t.status, t.expected, t.reason)


def _proof(t: Trial) -> tuple[Any, ...]:
    f, e, seen = t.fault, t.error, t.evidence
    fault = (f.kind, f.host, f.nic, f.t_before_ns, f.t_after_ns, f.heal_ns) if f else (None,) * 6
    error = (e.message, e.after_fault_ns) if e else (None, None)
    return (*fault, seen.in_flight, seen.dead_nic_tx_after, seen.dead_nic_rx_after, seen.healed, *error)
