"""Run folders that are broken in every way that one is likely to meet: one clear line each."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from reports.errors import ReportError, SchemaError
from reports.load import all_problems, counters, load_folder, load_folders
from reports.trial import SCHEMA

BALANCE = "balance-1MiB-nic_down-r0"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path, repeats=1, sizes={1 << 20: 4})


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def cut_trial(folder: Path) -> None:
    path = folder / "trials" / BALANCE / "trial.json"
    path.write_bytes(path.read_bytes()[:200])


def newer_trial(folder: Path) -> None:
    edit(folder / "trials" / BALANCE / "trial.json", schema=SCHEMA + 1)


def copied_trial(folder: Path) -> None:
    shutil.copytree(folder / "trials" / BALANCE, folder / "trials" / "copy")


def edited(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "trials" / BALANCE / "trial.json", **changes)


def second_has(key: str, value: object) -> Callable[[Path], None]:
    return changed(lambda trial: trial["iterations"][2].update({key: value}))


def second_lasts(value: object) -> Callable[[Path], None]:
    return second_has("duration_ns", value)


def fault_ends_before_it_begins(trial: dict[str, Any]) -> None:
    trial["further_faults"] = [trial["fault"] | {"t_after_ns": trial["fault"]["t_before_ns"] - 1}]


def changed(edit: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "trials" / BALANCE / "trial.json"
        trial = json.loads(path.read_text())
        edit(trial)
        path.write_text(json.dumps(trial))

    return change


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut": (cut_trial, "broken or cut short"),
    "newer": (newer_trial, "newer than this program's"),
    "timeless": (second_lasts(0), "iterations.2.duration_ns: no iteration takes 0 ns; the file is damaged or was"),
    "text": (second_lasts("5"), "iterations.2.duration_ns: Input should be a valid integer; the file is damaged or"),
    "fewer than none": (second_has("wrong", -1), "iterations.2.wrong: Input should be greater than or equal to 0; the"),
    "doubled": (second_has("iteration", 0), "iterations.2.iteration: 0 is there already; the file is damaged or was"),
    "backwards": (
        changed(fault_ends_before_it_begins),
        "further_faults.0.t_after_ns: lies before t_before_ns; the file is damaged",
    ),
    "of another system": (edited(system="ghost"), "system: 'ghost' is not that of its trial_id; the file is damaged"),
    "copied": (copied_trial, "not the name of its folder"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_trial_costs_one_line_and_nothing_else(folder: Path, case: str) -> None:
    whole = len(load_folder(folder).trials)
    harm, expected = BROKEN[case]
    harm(folder)
    loaded = load_folder(folder)
    (line,) = all_problems([loaded])
    assert expected in line
    assert "\n" not in line
    assert str(folder.parent) not in line
    assert len(loaded.trials) == whole - (case != "copied")


def test_a_broken_run_keeps_its_trials_in_the_remedy(folder: Path) -> None:
    """Nobody may be told to remove the file without which no trial of the run is read again."""
    path = folder / "run.json"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SchemaError, match="broken or cut short") as refused:
        load_folder(folder)
    assert str(refused.value).endswith("restore it from a copy, or sweep again with --fresh")
    assert "remove" not in str(refused.value)


def test_trials_come_in_the_order_in_which_they_ran(folder: Path) -> None:
    starts = [min(i.t_ns for i in t.iterations) for t in load_folder(folder).trials]
    assert starts == sorted(starts)


def test_the_last_attempt_counts(folder: Path) -> None:
    first = folder / "trials" / BALANCE
    second = folder / "trials" / f"{BALANCE}-a2"
    shutil.copytree(first, second)
    edit(first / "trial.json", status="inconclusive", expected=False)
    edit(second / "trial.json", trial_id=second.name, attempt=2)
    loaded = load_folder(folder)
    assert len(loaded.trials) == len(loaded.final_trials) + 1
    assert second.name in [t.trial_id for t in loaded.final_trials]
    assert first.name not in [t.trial_id for t in loaded.final_trials]


def test_no_report_without_a_run_or_without_trials(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="give the folder of a run"):
        load_folder(tmp_path / "nowhere")
    with pytest.raises(ReportError, match="no run folder was given"):
        load_folders([])
    shutil.rmtree(folder / "trials")
    for make in (os.mkfifo, Path.touch, lambda path: path.symlink_to("nowhere")):
        make(folder / "trials")
        with pytest.raises(ReportError, match="trials: not a folder; restore it from a copy, or sweep again"):
            load_folder(folder)
        (folder / "trials").unlink()
    with pytest.raises(ReportError, match="no trial has finished"):
        load_folder(folder)
    edit(folder / "run.json", schema=99)
    with pytest.raises(ReportError, match="newer"):
        load_folder(folder)


def test_when_no_trial_can_be_read_the_first_reason_is_told(folder: Path) -> None:
    for path in folder.glob("trials/*/trial.json"):
        path.write_text("")
    with pytest.raises(ReportError, match=r"none of its 3 trials can be read; the first: .*broken"):
        load_folder(folder)


def test_counters_are_there_or_a_line_says_why(folder: Path) -> None:
    loaded = load_folder(folder)
    trial = next(t for t in loaded.trials if t.trial_id == BALANCE)
    samples = counters(loaded, trial)
    assert not isinstance(samples, str)
    assert set(samples["host"]) == {"host0", "host1", "host2"}
    path = loaded.trial_folder(trial) / "nics.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    assert "broken or cut short" in str(counters(loaded, trial))
    path.unlink()
    assert "no such file" in str(counters(loaded, trial))
