"""One row per trial: what the trial was, and every metric (`reports.metrics`).

Every table and figure is made from this frame. It holds only the last attempt of a trial. An inconclusive trial has its
status but no metrics, since nothing can be concluded from it.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any

import pandas as pd

from reports import model
from reports.columns import natural
from reports.effect import effect_error_ms
from reports.load import LoadedRun, counters, watched
from reports.metrics import METRICS, cost, serving, signs, training
from reports.metrics.correctness import checked
from reports.metrics.view import NO_TABLE, View
from reports.series import APART_NS, thinned
from reports.setting import env_of, setting_of, systems_of
from reports.trial import Trial

MAX_COUNTERS = 600
"""At most so many trials have their counters read, since a file takes a few milliseconds; of more trials, an even
sample."""


ON_FAILURE = ("SERVE_ON_FAILURE", "TRAIN_ON_FAILURE")
"""The variables that say what a system does after its transport has stopped."""


def trial_frame(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """The last attempt of every trial of `runs`, one row each."""
    rows = []
    faulted = sum(1 for run in runs for t in run.final_trials if t.fault and t.status == "ok")
    every = max(1, -(-faulted // MAX_COUNTERS))
    for run in runs:
        for number, view in enumerate(views(run)):
            read = number % every == 0 and view.trial.status != "inconclusive"
            rows.append(_row(run, view if read else View(view.trial, view.setting, view.system)))
    frame = pd.DataFrame(rows)
    for name, metric in METRICS.items():
        frame[name] = pd.to_numeric(frame[name])
        if metric.among is not None:
            frame[name] = metric.among(frame)
    if frame["pipeline"].nunique() < 2:
        frame["pipeline"] = float("nan")
    frame["pipeline"] = pd.to_numeric(frame["pipeline"])
    names = {each: place for place, each in enumerate(sorted({*frame["case"], *frame["system"]}, key=natural))}
    return frame.sort_values(
        ["case", "size_bytes", "mode", "system", "repeat"], kind="stable",
        key=lambda column: column.map(names) if column.name in ("case", "system") else column,
    ).reset_index(drop=True)  # fmt: skip


def views(run: LoadedRun) -> Iterable[View]:
    """The last attempt of every trial of `run`."""
    return (view_of(run, trial) for trial in run.final_trials)


def view_of(run: LoadedRun, trial: Trial) -> View:
    """A trial of `run` with its tables, which are read when a metric asks for them."""
    fine = cache(_table(partial(counters, apart_ns=0), run, trial))  # one read for both
    setting, system = setting_of(run.run, trial.settings), systems_of(run.run).get(trial.system, {})
    return View(trial, setting, system, partial(_thinned, fine), fine, _table(watched, run, trial))


def _thinned(read: "Callable[[], pd.DataFrame | None]") -> "pd.DataFrame | None":
    table = read()
    return None if table is None else thinned(table, APART_NS)


def _table(
    read: Callable[[LoadedRun, Trial], "pd.DataFrame | str"], run: LoadedRun, trial: Trial
) -> "Callable[[], pd.DataFrame | None]":
    def table() -> pd.DataFrame | None:
        found = read(run, trial)
        return None if isinstance(found, str) else found

    return table


def among_trials(trials: Sequence[Trial], metrics: Sequence[str]) -> pd.DataFrame:
    """Of the trials of one run, the metrics that depend on others of them, in the same order."""
    frame = pd.DataFrame(
        {
            "run": "",
            "workload": trial.workload,
            "setup": setup_of(trial),
            "system": trial.shown_system,
            "scenario": trial.shown_scenario,
            "repeat": trial.repeat,
            "status": trial.status,
        }
        | _compared(trial)
        for trial in trials
    )
    found = {name: METRICS[name].among for name in metrics}
    return pd.DataFrame({name: among(frame) for name, among in found.items() if among is not None})


def _row(run: LoadedRun, view: View) -> dict[str, Any]:
    received = view.received if view.counters is not NO_TABLE else ()
    values = {name: metric.value(view) for name, metric in METRICS.items()}
    values["by_mean"] = signs.by_mean(view)
    conclusive = view.trial.status != "inconclusive"
    return (
        _about(view, run)
        | values
        | {"unsure": {name: found for name, metric in METRICS.items() if (found := metric.unsure(view)) is not None}}
        | {"exceeds": {name: least for name, metric in METRICS.items() if (least := metric.exceeds(view)) is not None}}
        | {"checked": checked(view) if conclusive else 0, "received_bytes": tuple(received) or None}
    )


def _about(view: View, run: LoadedRun) -> dict[str, Any]:
    trial, setting, env = view.trial, view.setting, env_of(view.system)
    loses_nic = view.loses_a_nic and setting.nics is not None and trial.workload == "collective"
    modelled = loses_nic and view.by_rate
    return {
        "run": run.name,
        "run_number": run.number,
        "trial_id": trial.trial_id,
        "reason": trial.reason or "",
        "began_ns": min((i.t_ns for i in trial.iterations), default=None),
        "case": case_of(trial),
        "title": f"{_operation_in_words(trial)}, {trial.shown_scenario}{_points(trial)}",
        "scenario": trial.shown_scenario,
        "setup": setup_of(trial),
        "operation": _operation_in_words(trial),
        "beyond_axes": _beyond_axes(trial),
        "points": dict(trial.axes),
        "workload": trial.workload,
        "collective": trial.collective or trial.workload,
        **_compared(trial),
        "system": f"{trial.shown_system} ({run.called})" if run.called else trial.shown_system,
        "plain_system": trial.shown_system,
        "source": trial.source,
        "mode": trial.mode,
        "algo": env.get("R2CC_ALGO", ""),
        "on_failure": next((env[name] for name in ON_FAILURE if env.get(name)), ""),
        "network": str(view.system.get("network") or ""),
        "transport": env.get("R2CC_TRANSPORT", ""),
        "rdma_type": _rdma_type(trial),
        "alike": str((run.name, trial.mode, sorted(env.items()))),
        "size_bytes": trial.size_bytes,
        "repeat": trial.repeat,
        "planned": f"{trial.scenario}, {trial.repeat}",  # what trials share of which a comparison makes a pair
        "status": trial.status,
        "expected": trial.expected,
        "faulted": trial.fault is not None,
        "since": len(view.since),
        "disturbed": cost.disturbed(view),
        "disturbed_slowdown": cost.disturbed_slowdown(view),
        "reads_low": cost.reads_low(view),
        "slowdown_reads_low": cost.reads_low(view, by_medians=True),
        "effect_error_ms": effect_error_ms(trial),
        "several": view.several,
        "comes_and_goes": view.comes_and_goes,
        "until_repair": view.until_repair,
        "to_be_repaired": view.to_be_repaired,
        "cost_goes_on": view.cost_goes_on,
        "back_in_part": view.back_in_part,
        "hosts": setting.hosts,
        "ranks": setting.ranks,
        "nics": setting.nics,
        "limit_gbs": setting.limit_gbs(trial.collective) if view.by_rate else None,
        "limit_after_gbs": setting.limit_after_gbs(trial.collective) if modelled else None,
        "model": model.of_system(trial, setting, env) if modelled else None,
        "pipeline": model.pipeline(trial, env) if modelled and trial.status != "inconclusive" else None,
        "loses_nic": loses_nic,
        "by_rate": view.by_rate,
        "floor": model.floor(trial.collective, setting) if modelled else None,
    }


def _compared(trial: Trial) -> dict[str, Any]:
    """What is compared with that of the healthy trials."""
    return {
        "weights": trial.result.get("weights"),
        "steps": tuple(i.iteration for i in training.steps_of(trial)),
        "losses": tuple(i.measures["loss"] for i in training.steps_of(trial)),
        "requests": serving.requests(trial),
    }


def _rdma_type(trial: Trial) -> str:
    """The type of the RDMA devices that perftest's ranks report."""
    cores = (core for core in trial.core.values() if isinstance(core, dict))
    ports = (port for core in cores for port in core.get("rdma_ports", ()))
    return "+".join(sorted({str(port["type"]) for port in ports}))


def case_of(trial: Trial) -> str:
    """What trials must share to stand in one table or figure: everything except system, size and repeat."""
    return f"{_operation(trial)}, {trial.shown_scenario}{_points(trial)}"


def setup_of(trial: Trial) -> str:
    """The case without the fault: trials of one setup are alike while healthy."""
    return f"{_operation(trial)}{_points(trial)}"


def _points(trial: Trial) -> str:
    """The values on the axes, without those that the operation already states."""
    told = {"collective": trial.collective, "dtype": trial.dtype}
    return "".join(f", {axis} {value}" for axis, value in trial.axes.items() if told.get(axis) != value)


def _operation(trial: Trial) -> str:
    """The collective, and how it differs from an out-of-place sum of float32: ``broadcast of int8 (max, in place)``."""
    return _named(trial, dtype="" if trial.dtype == "float32" else trial.dtype)


def _operation_in_words(trial: Trial) -> str:
    """The same for readers: where the type is on an axis, float32 is named beside the others. A case does not name it,
    so that it is the same in a run without that axis."""
    return _named(trial, trial.dtype) if trial.dtype in trial.axes.values() else _operation(trial)


def _named(trial: Trial, dtype: str) -> str:
    if trial.operation:
        return trial.operation
    how = [trial.op] if trial.op not in ("", "sum") else []
    how += ["in place"] if trial.place == "in" else []
    told = f" ({', '.join(how)})" if how else ""
    return f"{trial.collective}{f' of {dtype}' if dtype else ''}{told}"


def _beyond_axes(trial: Trial) -> str:
    """What of the operation is the value of no axis."""
    parts = (trial.operation,) if trial.operation else (trial.collective, trial.dtype, trial.op, trial.place)
    return ", ".join(part for part in parts if part and part not in trial.axes.values())
