"""The trials of a run that can answer for a published experiment; every other one is left out, with the reason. Pure,
except that it reads the experiment's file."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from harness.experiment.examples import named
from harness.experiment.file import load
from harness.experiment.model import Experiment
from harness.experiment.sweep import HEALTHY
from harness.sweep.plan import dimensions, parse_only
from r2ccl_core.errors import UsageError
from r2ccl_core.units import format_size
from reports.load import LoadedRun
from reports.metrics.view import LOSES_A_NIC
from reports.reproduce.entry import Entry, Trials
from reports.setting import env_of, experiment_name, systems_of
from reports.trial import Trial


def fitting(entry: Entry, trials: Trials, loaded: LoadedRun) -> tuple[LoadedRun, list[str]]:
    """`loaded` with only the trials that `trials` asks for, and a note about the others, if any.

    All of them have one size, as the lines do: the published one's stand-in if the run has it, otherwise the largest.
    Raises `UsageError` for a run of another experiment, and for one of which no trial is left.
    """
    wanted = load(named(trials.experiment), trials.changes)
    found = experiment_name(loaded.run)
    if found != wanted.name:
        raise UsageError(
            f"{loaded.folder}: is a run of {found}, and {entry.name} is measured by {wanted.name}; "
            "give a run of that, or leave out --run"
        )
    only = parse_only(trials.only, dimensions(wanted))
    unfit = _of_other_things(wanted, trials, only, systems_of(loaded.run))
    left_out = Counter(reason for trial in loaded.final_trials if (reason := unfit(trial)))
    kept = [trial for trial in loaded.trials if not unfit(trial)]
    size_bytes = _chosen_size(kept, only.get("size", ()))
    left_out.update(_size(t) for t in loaded.final_trials if not unfit(t) and t.size_bytes != size_bytes)
    kept = [trial for trial in kept if trial.size_bytes == size_bytes]
    told = ", ".join(f"{count} of {reason}" for reason, count in left_out.items())
    if not kept:
        raise UsageError(f"{loaded.folder}: no trial of it answers for {entry.name}: {told}")
    return replace(loaded, trials=tuple(kept)), [f"left out of the run: {told}"] if told else []


def _of_other_things(
    wanted: Experiment, trials: Trials, only: Mapping[str, tuple[str, ...]], systems: Mapping[str, Mapping[str, Any]]
) -> Callable[[Trial], str]:
    """Why a trial does not fit, in words; empty if it does."""
    known = {system.name: system for system in wanted.systems if system.name in only.get("system", (system.name,))}
    labels = only.get("fault", (HEALTHY, *(fault.label for fault in wanted.faults)))
    loses_a_nic = "fault" not in only and any(fault.kind in LOSES_A_NIC for fault in wanted.faults)

    def unfit(trial: Trial) -> str:
        if trial.workload == "collective" and trial.collective != trials.collective:
            return trial.collective
        if trial.system not in known:
            return f"system {trial.system}"
        there, own = systems.get(trial.system, {}), known[trial.system]
        if trial.mode != own.mode or not env_of(there).items() >= own.env.items():
            return f"a system {trial.system} with another mode or env"
        kinds = {fault.kind for fault in trial.faults}
        alike = loses_a_nic and len(trial.faults) == 1 and kinds <= set(LOSES_A_NIC)
        fits = trial.scenario in labels or trial.scenario.startswith(HEALTHY) or alike
        return "" if fits else f"fault {trial.scenario}"

    return unfit


def _chosen_size(trials: Iterable[Trial], wanted: Iterable[str]) -> int:
    sizes = {trial.size_bytes for trial in trials}
    asked = {size for size in sizes if format_size(size) in wanted} if sizes != {0} else sizes
    return max(asked or sizes, default=0)


def _size(trial: Trial) -> str:
    return f"size {format_size(trial.size_bytes)}"
