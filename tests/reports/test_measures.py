"""One row per trial: the measures equal what the stored iterations and events say."""

import json
import math
from pathlib import Path
from statistics import median

import pytest
from synthetic_run import make_run

from reports.load import load_folder
from reports.measures import MEASURES, trial_frame


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), repeats=2, sizes={1 << 20: 8, 64 << 20: 6})


def test_every_trial_is_one_row_with_every_measure(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded])
    assert len(frame) == len(loaded.final_trials) == 12
    assert set(MEASURES) <= set(frame.columns)
    assert list(frame["system"].unique()) == ["failstop", "hot_repair", "balance"]


def test_measures_equal_what_the_iterations_say(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded]).set_index("trial_id")
    for trial in loaded.final_trials:
        if trial.mode == 0:
            continue
        durations = {p: [i.duration_ns for i in trial.iterations if i.phase == p] for p in ("before", "hit", "after")}
        row = frame.loc[trial.trial_id]
        assert row["slowdown"] == pytest.approx(median(durations["after"]) / median(durations["before"]))
        assert row["hit_cost_ms"] == pytest.approx((durations["hit"][0] - median(durations["after"])) / 1e6)
        assert row["before_gbs"] == pytest.approx(median(i.busbw_gbs for i in trial.iterations if i.phase == "before"))


def test_fail_stop_has_a_time_to_its_error_and_nothing_after_the_fault(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded]).set_index("trial_id")
    for trial in (t for t in loaded.final_trials if t.mode == 0):
        row = frame.loc[trial.trial_id]
        assert trial.error is not None
        assert row["error_after_ms"] * 1e6 == pytest.approx(trial.error.after_fault_ns)
        assert math.isnan(row["slowdown"])
        assert math.isnan(row["after_gbs"])


def test_models_and_limits_stand_beside_the_measures(folder: Path) -> None:
    frame = trial_frame([load_folder(folder)])
    assert frame.groupby("system")["model"].first().dropna().to_dict() == pytest.approx(
        {"hot_repair": 2, "balance": 1.5}
    )
    assert set(frame["limit_gbs"]) == {0.1875}
    assert set(frame["limit_after_gbs"]) == {0.125}


def test_an_inconclusive_trial_has_a_status_but_no_measure(tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    path = folder / "trials/balance-1MiB-nic_down-r0/trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "inconclusive", "expected": False}))
    row = trial_frame([load_folder(folder)]).set_index("trial_id").loc["balance-1MiB-nic_down-r0"]
    assert row["status"] == "inconclusive"
    assert all(math.isnan(row[name]) for name in MEASURES)


@pytest.mark.parametrize("core", [{"0": None}, {"0": {"events": [None, {"kind": 3}]}}, {"x": {"events": "no"}}])
def test_strange_stats_of_a_core_do_no_harm(tmp_path: Path, core: object) -> None:
    folder = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"core": core}))
    frame = trial_frame([load_folder(folder)])
    assert frame["detect_ms"].isna().all()
