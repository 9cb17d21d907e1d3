"""Reports a sweep to programs: one JSON object per line on standard output, and nothing else there.

Every line has ``schema`` (the version of this form), ``event`` and ``t_ns`` (ns since the epoch). The events, in
the order in which they come:

    sweep_begin   folder, resumed
    plan          trials (the most that may run), done (by an earlier sweep), cells (names)
    note          text: a message that concerns no trial
    trial_begin   trial, cell, attempt, system, size_bytes, fault, axes, repeat
    step          trial, step: check, start, ready, watch, heal, collect, clean up
    fault         trial, kind, host, nic, at_ns: the fault has taken effect
    trial_end     trial, attempt, final, status, expected, reason, seconds, not_known (which of a completed trial's
                  metrics are not known, and why; empty: they are), not_back (that its speeds after the repair are
                  without the NIC; empty: they are not), and the metrics of the terminal's table (`reports.metrics`),
                  null if the trial has none
    sweep_end     exit_code, remarks, report

Readers must ignore unknown events and fields: new ones may be added without a new schema version.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from harness.errors import ExitCode
from harness.sweep.plan import Trial
from harness.sweep.summary import SHORT, next_attempt, told
from reports import trial as stored
from reports.metrics.cost import not_known
from reports.metrics.view import View
from reports.not_back import not_back_within

SCHEMA = 1


class JsonProgress:
    """Writes the events to `out`, each line at once."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._folder: Path | None = None
        self._trial = ""

    def opened(self, folder: Path, resumed: bool) -> None:
        """``sweep_begin``."""
        self._folder = folder
        self._say("sweep_begin", folder=str(folder), resumed=resumed)

    def begin(self, trials: Sequence[Trial], records: Mapping[str, stored.Trial]) -> None:
        """``plan``."""
        done = sum(1 for t in trials if next_attempt(t, records, t.variant.experiment.sweep.retries) is None)
        self._say("plan", trials=len(trials), done=done, cells=list(dict.fromkeys(t.cell for t in trials)))

    def note(self, text: str) -> None:
        """``note``."""
        self._say("note", text=text)

    def trial(self, trial: Trial, attempt: int) -> None:
        """``trial_begin``."""
        self._trial = trial.trial_id
        self._say(
            "trial_begin",
            trial=trial.trial_id,
            cell=trial.cell,
            attempt=attempt,
            system=trial.system.name,
            size_bytes=trial.size_bytes,
            fault=trial.value("fault"),
            axes=dict(trial.variant.axes),
            repeat=trial.repeat,
        )

    def told(self, event: str, fields: Mapping[str, Any]) -> None:
        """``step`` and ``fault``."""
        named = {"at_ns" if name == "t_ns" else name: value for name, value in fields.items()}
        self._say(event, trial=self._trial, **named)

    def ended(self, trial: Trial, record: stored.Trial, seconds: float, final: bool) -> None:
        """``trial_end``."""
        values = told([record], SHORT)
        self._say(
            "trial_end",
            trial=trial.trial_id,
            attempt=record.attempt,
            final=final,
            status=record.status,
            expected=record.expected,
            reason=record.reason,
            seconds=round(seconds, 3),
            not_known=not_known(View(record)),
            not_back=not_back_within(record),
            **{metric.name: values.get(metric.name) for metric in SHORT},
        )

    def end(self) -> None:
        """Nothing: ``sweep_end`` follows."""

    def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
        """``sweep_end``."""
        report = str(self._folder / "report.html") if self._folder else None
        self._say("sweep_end", exit_code=int(status), remarks=list(remarks), report=report)

    def _say(self, event: str, **fields: Any) -> None:
        line = json.dumps({"schema": SCHEMA, "event": event, "t_ns": time.time_ns(), **fields})
        self._out.write(line + "\n")
        self._out.flush()
