"""One row per trial: what each trial measured, from its iterations, its core's events and its counters.

This frame is what every table and figure is made from. Only the last attempt of a trial is in it; an
inconclusive one has its status but no measure, since nothing can be said about it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from reports import model, stats, traffic
from reports.after import after
from reports.core_log import core_events
from reports.load import LoadedRun, counters, watched
from reports.recovery import recovery_ns, throughput
from reports.setting import Setting, env_of, setting_of, systems_of
from reports.trial import Iteration, Phase, Trial

MAX_COUNTERS = 600
"""Trials whose counters are read; a file takes a few milliseconds, so of more trials an even sample is taken."""

LOSES_A_NIC = (
    "nic_down", "nic_unbind", "ib_port_down", "switch_port_down", "blackhole", "ovs_drop", "route_blackhole",
)  # fmt: skip
"""Kinds of faults after which their NIC carries nothing until the heal."""

SHOWN_PHASES: tuple[Phase, ...] = ("before", "hit", "after", "repaired")

MEASURES = (
    "before_gbs", "hit_gbs", "after_gbs", "repaired_gbs", "before_ms", "hit_ms", "after_ms", "repaired_ms",
    "switch_ms", "switch_cost_ms", "slowdown", "hit_cost_ms", "stall_ms",
    "error_after_ms", "detect_ms", "migrate_ms", "return_ms", "recover_ms", "replayed_chunks", "pipeline",
    "gap", "remaining", "over_simulated", "over_schedule",
)  # fmt: skip
"""The columns that are measured; `_ms` are milliseconds, the last ones from the fault (return: from the heal).
`switch_ms` is the operation in which the ranks changed their schedule, its cost what it lasted beyond one after it;
where they did, `after_` are the iterations that follow it (`reports.after`). `bound_share`, computed from them, is the
least time of any schedule with the NIC lost (`floor` times that of the healthy ring at the NICs' rate) over the time
measured after it. Simulated trials have `gap` and `remaining` as well: the time above the lower bound for what is left,
and the share of the slowest host's bandwidth that is. `over_schedule` is of the bytes that hosts received
(`reports.traffic`)."""


def trial_frame(runs: Sequence[LoadedRun]) -> pd.DataFrame:
    """The last attempt of every trial of `runs`, one row each."""
    several = len(runs) > 1
    rows = []
    faulted = sum(1 for run in runs for t in run.final_trials if t.fault and t.status == "ok")
    every = max(1, -(-faulted // MAX_COUNTERS))
    for run in runs:
        systems = systems_of(run.run)
        for number, trial in enumerate(run.final_trials):
            setting, system = setting_of(run.run, trial.settings), systems.get(trial.system, {})
            row = _about(trial, run.name, setting, system, several)
            row["alike"] = str((run.name, trial.mode, sorted(env_of(system).items())))
            if trial.status != "inconclusive":
                row |= _measures(trial)
                row |= _counted(run, trial, setting, system) if number % every == 0 else {}
            rows.append(row)
    frame = pd.DataFrame(rows)
    for column in MEASURES:
        frame[column] = pd.to_numeric(frame[column]) if column in frame else float("nan")
    known = (pd.to_numeric(frame[column]) for column in ("floor", "limit_gbs"))
    frame["bound_share"] = frame["after_gbs"] * next(known) / next(known)
    frame["over_simulated"] = _over_simulated(frame)
    if frame["pipeline"].nunique() < 2:
        frame["pipeline"] = float("nan")
    if "received_bytes" not in frame:
        frame["received_bytes"] = None
    return frame.sort_values(["case", "size_bytes", "mode", "system", "repeat"], kind="stable").reset_index(drop=True)


def _about(trial: Trial, run: str, setting: Setting, system: Mapping[str, Any], several: bool) -> dict[str, Any]:
    checked = [i.wrong for i in trial.iterations if i.wrong is not None]
    lost_nic = loses_one_nic(trial) and setting.nics is not None
    return {
        "run": run,
        "trial_id": trial.trial_id,
        "case": case_of(trial),
        "scenario": scenario_of(trial),
        "setup": setup_of(trial),
        "points": dict(trial.axes),
        "collective": trial.collective,
        "system": f"{trial.shown_system} ({run})" if several else trial.shown_system,
        "source": trial.source,
        "mode": trial.mode,
        "algo": env_of(system).get("R2CC_ALGO", ""),
        "size_bytes": trial.size_bytes,
        "repeat": trial.repeat,
        "status": trial.status,
        "expected": trial.expected,
        "faulted": trial.fault is not None,
        "wrong": sum(checked),
        "checked": len(checked),
        "hosts": setting.hosts,
        "ranks": setting.ranks,
        "nics": setting.nics,
        "limit_gbs": setting.limit_gbs,
        "limit_after_gbs": setting.limit_after_gbs if lost_nic else None,
        "model": model.of_system(trial, setting, env_of(system)) if lost_nic else None,
        "pipeline": model.pipeline(trial, env_of(system)) if lost_nic else None,
        "loses_nic": lost_nic,
        "floor": model.floor(trial.collective, setting) if lost_nic else None,
    }


def loses_one_nic(trial: Trial) -> bool:
    """Whether the trial's failure is what the models are about: one NIC of one host, gone for good."""
    return len(trial.faults) == 1 and trial.faults[0].kind in LOSES_A_NIC and bool(trial.faults[0].nic)


def case_of(trial: Trial) -> str:
    """What trials must share to stand in one table or figure: all that differs but system, size and repeat."""
    points = "".join(f", {axis} {value}" for axis, value in trial.axes.items())
    return f"{_operation(trial)}, {scenario_of(trial)}{points}"


def setup_of(trial: Trial) -> str:
    """The same without what breaks: of what healthy trials, or iterations before a fault, are one kind."""
    return _operation(trial) + "".join(f", {axis} {value}" for axis, value in trial.axes.items())


def scenario_of(trial: Trial) -> str:
    """Healthy trials before and after the others are one thing: together they show the healthy machine."""
    return "healthy" if trial.scenario.startswith("healthy_") else trial.scenario


def _operation(trial: Trial) -> str:
    return f"{trial.collective} of {trial.dtype} ({trial.op}, {trial.place} of place)"


def _measures(trial: Trial) -> dict[str, float | None]:
    events = core_events(trial) if trial.fault else []
    rest = after(trial, events)
    by_phase: dict[Phase, Sequence[Iteration]] = {
        p: [i for i in trial.iterations if i.phase == p] for p in SHOWN_PHASES if p != "after"
    }
    by_phase["after"] = rest.steady
    durations = {p: [float(i.duration_ns) for i in items] for p, items in by_phase.items()}
    measured: dict[str, float | None] = {}
    for phase, items in by_phase.items():
        measured[f"{phase}_gbs"] = stats.median(i.busbw_gbs for i in items)
        measured[f"{phase}_ms"] = stats.median(durations[phase]) / 1e6
    measured |= _above_bound(trial, durations["after"] or durations["before"])
    measured["slowdown"] = stats.slowdown(durations["before"], durations["after"])
    if rest.switch is not None:
        measured["switch_ms"] = rest.switch.duration_ns / 1e6
        measured["switch_cost_ms"] = stats.hit_cost_ns([float(rest.switch.duration_ns)], durations["after"]) / 1e6
    # Beyond one after it on the same schedule, where there is one: the gain of a new one is not the hit iteration's.
    same = durations["after"] if rest.switch is None else [float(i.duration_ns) for i in rest.old]
    measured["hit_cost_ms"] = stats.hit_cost_ns(durations["hit"], same) / 1e6
    measured["stall_ms"] = _stall_ms(trial, durations["before"], same)
    after_ns = trial.error.after_fault_ns if trial.error else None
    measured["error_after_ms"] = after_ns / 1e6 if after_ns is not None and after_ns >= 0 else None
    return measured | _event_times(trial, events)


def _over_simulated(frame: pd.DataFrame) -> "pd.Series[float]":
    """Of measured trials whose experiment has the same system simulated as well: measured over simulated time, healthy
    or after the fault, whichever of the two lies farther from 1."""
    keys = ["alike", "case", "size_bytes"]
    columns = ["before_ms", "after_ms"]
    simulated = frame[frame["source"] == "simulated"].groupby(keys)[columns].median()
    beside = frame.join(simulated.add_suffix("_simulated"), on=keys)
    ratios = pd.DataFrame({name: beside[name] / beside[f"{name}_simulated"] for name in columns})
    far = (ratios - 1).abs()
    worst = ratios["after_ms"].where(far["after_ms"].fillna(-1) > far["before_ms"].fillna(-1), ratios["before_ms"])
    return worst.where(frame["source"] == "measured")


def _above_bound(trial: Trial, durations_ns: Sequence[float]) -> dict[str, float | None]:
    """Of a simulated trial: how far it ends above the lower bound for what is left then, and that share x."""
    about = trial.simulated or {}
    limit_s = _number(about.get("bound_s"))
    if not limit_s or not durations_ns:
        return {}
    return {"gap": stats.median(durations_ns) / 1e9 / limit_s - 1, "remaining": _number(about.get("remaining"))}


def _stall_ms(trial: Trial, before_ns: Sequence[float], after_ns: Sequence[float]) -> float | None:
    hit = [i for i in trial.iterations if i.phase == "hit"]
    if trial.fault is None or len(hit) != 1:
        return None
    until_fault_ns = trial.fault.t_before_ns - hit[0].t_ns
    usual = stats.median(before_ns), stats.median(after_ns)
    return stats.stall_ns(float(hit[0].duration_ns), until_fault_ns, *usual) / 1e6


def _event_times(trial: Trial, events: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """From the fault to the first sign of it in any core's log, and to the first migration; heal to return."""
    if trial.fault is None:
        return {}
    fault = trial.fault
    replayed = [_number(core.get("replayed_chunks")) for core in trial.core.values() if isinstance(core, dict)]
    return {
        "detect_ms": _first_ms(events, lambda kind: kind == "path_down", fault.t_before_ns),
        "migrate_ms": _first_ms(events, lambda kind: kind == "migrated", fault.t_before_ns),
        "return_ms": _first_ms(events, lambda kind: kind == "path_returned", fault.heal_ns),
        "replayed_chunks": sum(stats.known(replayed)) if replayed else None,
    }


def _first_ms(events: Iterable[dict[str, Any]], wanted: Callable[[str], bool], since_ns: int | None) -> float | None:
    if since_ns is None:
        return None
    found = (e["t_ns"] for e in events if e["t_ns"] >= since_ns and wanted(str(e.get("kind"))))
    first = next(found, None)
    return None if first is None else float(first - since_ns) / 1e6


def _counted(run: LoadedRun, trial: Trial, setting: Setting, system: Mapping[str, Any]) -> dict[str, Any]:
    """What the NIC counters say: time until traffic was back, and bytes per host beside those of the schedules."""
    if not trial.iterations:
        return {}
    samples = counters(run, trial)
    if isinstance(samples, str) or samples.empty:
        return {}
    watch = watched(run, trial)
    frames = None if isinstance(watch, str) else watch
    received = traffic.counted(samples, frames, trial, after(trial, core_events(trial)))
    if received:
        lost = trial.faults[0].host if loses_one_nic(trial) else None
        phases = {item.phase for item in received}
        received += [i for i in traffic.scheduled(trial, setting, system, lost) if i.phase in phases]
    return {
        "recover_ms": _recover_ms(trial, samples),
        "received_bytes": tuple(received) or None,
        "over_schedule": traffic.over_schedule(received),
    }


def _recover_ms(trial: Trial, samples: pd.DataFrame) -> float | None:
    """From the fault until the struck host sends at its later speed again."""
    hit = [i for i in trial.iterations if i.phase == "hit"]
    later = [i for i in trial.iterations if i.phase == "after"]
    # With several failures there are several dips, of which only the first is the first one's.
    if len(trial.further_faults) or trial.fault is None or not hit or not later:
        return None
    span = later[0].t_ns, later[-1].t_ns + later[-1].duration_ns
    hit_end_ns = hit[-1].t_ns + hit[-1].duration_ns
    own = samples[samples["host"] == trial.fault.host]
    took = recovery_ns(throughput(own), trial.fault.host, trial.fault.t_before_ns, hit_end_ns, span)
    return None if took is None else took / 1e6


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
