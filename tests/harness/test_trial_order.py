"""The course of a sweep: repeats are added until every cell is known well enough, the same after a resume."""

from pathlib import Path

import pytest

from harness.experiment.file import load
from harness.experiment.model import Experiment
from harness.sweep.caveats import precision_caveats
from harness.sweep.plan import Trial, plan
from harness.sweep.precision import widths
from harness.sweep.record import lost_record
from harness.sweep.trial_order import due, remaining
from reports import trial as stored
from reports.drift import drifts
from reports.metrics.view import View
from reports.trial import Iteration

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
SMALL = ['workload.sizes=["1MiB"]', "workload.iterations_by_size={}", 'sweep.repeats={min=3, max=6, until="5 %"}']


def experiment(*settings: str) -> Experiment:
    return load(ALLREDUCE, [*SMALL, *settings])


def record(trial: Trial, *busbw_gbs: float) -> stored.Trial:
    """A finished trial of one experiment whose iterations before the fault had these bandwidths."""
    taken = [
        Iteration(iteration=i, phase="before", t_ns=i, duration_ns=round(1e6 / value), algbw_gbs=0, busbw_gbs=value)
        for i, value in enumerate(busbw_gbs)
    ]
    blank = lost_record(trial, 1, trial.variant.experiment.workload, "")
    return blank.model_copy(update={"status": "ok", "expected": True, "iterations": tuple(taken)})


def run(trials: tuple[Trial, ...], of: Experiment, noise: float) -> dict[str, stored.Trial]:
    """What a sweep leaves if odd repeats are faster by `noise`."""
    records: dict[str, stored.Trial] = {}
    for trial in remaining(trials, of.sweep, records):
        records[trial.trial_id] = record(trial, 1.0 + noise * (trial.repeat % 2))
    return records


def test_steady_cells_need_the_least_repeats_and_noisy_ones_the_most() -> None:
    of = experiment()
    for noise, repeats in ((0.0, 3), (0.04, 3), (0.5, 6)):
        records = run(plan(of), of, noise)
        assert {r.repeat for r in records.values()} == set(range(repeats))
        assert len(records) == 3 * repeats == len(due(plan(of), of.sweep, records))


def test_one_noisy_cell_keeps_all_repeating() -> None:
    of = experiment()
    records: dict[str, stored.Trial] = {}
    for trial in remaining(plan(of), of.sweep, records):
        noise = 0.5 if trial.system.name == "balance" else 0.0
        records[trial.trial_id] = record(trial, 1.0 + noise * (trial.repeat % 2))
    assert len(records) == 3 * 6
    (told,) = precision_caveats(plan(of), of.sweep, records)
    assert told.startswith("not known within 5 %: balance-1MiB-nic_down: interval +-")
    assert told.endswith("after 6 repeats")


def test_a_resumed_sweep_takes_the_same_course_wherever_it_was_cut() -> None:
    of = experiment("sweep.healthy=ends")
    trials = plan(of)
    whole = run(trials, of, 0.0)
    order = list(whole)
    for cut in range(len(order) + 1):
        kept = {name: whole[name] for name in order[:cut]}
        assert [t.trial_id for t in remaining(trials, of.sweep, dict(kept) | whole)] == []
        resumed = dict(kept)
        for trial in remaining(trials, of.sweep, resumed):
            resumed[trial.trial_id] = whole[trial.trial_id]
        assert list(resumed) == order


def test_healthy_trials_at_the_end_run_once_however_many_repeats_there_were() -> None:
    of = experiment("sweep.healthy=ends")
    records = run(plan(of), of, 0.0)
    assert [r.scenario for r in records.values()] == ["healthy_before"] * 3 + ["nic_down"] * 9 + ["healthy_after"] * 3


def test_a_cell_that_measured_nothing_does_not_ask_for_more() -> None:
    of = experiment()
    trials = [t for t in plan(of) if t.repeat < 3]
    records = {t.trial_id: record(t) for t in trials}
    assert widths(trials, records) == []
    assert len(due(plan(of), of.sweep, records)) == 9


def test_drift_is_told_where_the_intervals_lie_apart() -> None:
    of = experiment("sweep.healthy=ends")
    trials = [t for t in plan(of) if t.when]
    before, after = (1.00, 1.01, 0.99, 1.0, 1.0, 1.0), (0.90, 0.91, 0.89, 0.9, 0.9, 0.9)
    steady = {t.trial_id: record(t, *before) for t in trials}
    assert drifts(steady.values()) == []
    drifted = {t.trial_id: record(t, *(before if t.when == "before" else after)) for t in trials}
    told = "The machine drifted: balance at 1MiB: healthy bus bandwidth afterwards is 10.0 % less than before."
    assert told in map(str, drifts(drifted.values()))


def test_drift_is_that_of_the_speeds_that_are_told() -> None:
    """Of an even number of iterations, both are of the faster one in the middle."""
    of = experiment("sweep.healthy=ends")
    ends = [t for t in plan(of) if t.when and t.system.name == "balance"]
    trials = [record(t, *((0.9, 1.0, 1.2, 1.3) if t.when == "before" else (0.4, 0.5, 0.7, 0.8))) for t in ends]
    before, after = (usual for t in trials if (usual := View(t).usual_gbs("before")))
    (drift,) = drifts(trials)
    assert drift.ratio == pytest.approx(after / before, rel=1e-4) == pytest.approx(0.7 / 1.2, rel=1e-4)


def test_drift_over_several_blocks_is_told_by_pairs() -> None:
    of = experiment("sweep.healthy=blocks")
    trials = [t for t in plan(of) if t.when and t.repeat < 4]
    small = {t.trial_id: record(t, 1.0 + 0.1 * t.repeat + (0.02 if t.when == "after" else 0)) for t in trials}
    assert any("balance at 1MiB: healthy bus bandwidth afterwards is 1." in str(one) for one in drifts(small.values()))
    same = {t.trial_id: record(t, 1.0 + 0.1 * t.repeat) for t in trials}
    assert drifts(same.values()) == []
