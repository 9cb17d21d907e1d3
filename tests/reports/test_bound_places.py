"""Bounds on trials that a run has not: told with the reason, and unmeasured where the trials may be missing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from reports.bound_places import not_judged
from reports.bounds import held_in
from reports.load import load_folder
from reports.report import write_report

BOUNDS = [
    {"metric": "slowdown", "max": 9},
    {"metric": "slowdown", "system": "balance", "size": "64MiB", "max": 9, "of": "worst"},
    {"metric": "wrong", "fault": "flap", "axes": {"dtype": "int8"}, "max": 0},
]
SILENT = "slowdown (balance, 64MiB), every trial; wrong (flap, dtype=int8)"
SELECTED = f"Bounds that were not judged, because --only selected none of their trials: {SILENT}."


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path, sizes={1 << 20: 6}, repeats=1, counters=False)


def rewrite(folder: Path, only: dict[str, list[str]], **tags: Any) -> None:
    stored = json.loads((folder / "run.json").read_text())
    stored["experiment"]["bound"] = BOUNDS
    stored["tags"] |= {"only": only, **tags}
    (folder / "run.json").write_text(json.dumps(stored))


def told(folder: Path) -> str:
    loaded = load_folder(folder)
    return not_judged(loaded.run, loaded.final_trials, loaded.incomplete)


@pytest.mark.usefixtures("undrawn")
def test_a_bound_that_the_run_did_not_select_is_told_with_the_reason(folder: Path) -> None:
    """It was dropped silently."""
    rewrite(folder, {"size": ["1MiB"], "fault": ["nic_down"]})
    assert [bound.met for bound in held_in(folder)] == [True]
    assert told(folder) == SELECTED
    assert f"<li>{SELECTED}</li>" in write_report(folder).read_text()
    rewrite(folder, {})
    assert told(folder).startswith("Bounds that were not judged, because the run has none of their trials: ")


@pytest.mark.usefixtures("undrawn")
def test_a_bound_of_which_the_run_selected_some_trials_says_which(folder: Path) -> None:
    """It was told as held, of all."""
    rewrite(folder, {"size": ["1MiB"], "system": ["balance", "failstop"]})
    told = "judged on size=1MiB, system=balance, system=failstop alone, as --only selected"
    assert held_in(folder)[0].line.startswith("bound held: ") and held_in(folder)[0].line.endswith(f"; {told})")
    assert told in write_report(folder).read_text()
    assert json.loads((folder / "summary.json").read_text())["targets"][-1]["detail"].endswith(told)
    rewrite(folder, {"size": ["64MiB"], "system": ["balance"]}, trials=4)
    assert "--only" not in held_in(folder)[1].detail, "the bound itself is on these trials"


def test_a_run_that_has_trials_of_every_bound_says_nothing(folder: Path) -> None:
    rewrite(folder, {"size": ["1MiB"]})
    loaded = load_folder(folder)
    experiment = loaded.run.experiment | {"bound": BOUNDS[:1]}
    assert not_judged(loaded.run.model_copy(update={"experiment": experiment}), loaded.final_trials) == ""


def test_bounds_whose_trials_are_missing_are_not_measured(folder: Path) -> None:
    rewrite(folder, {"fault": ["nic_down"]}, trials=4)
    assert [(bound.met, bound.measured) for bound in held_in(folder)][1:] == [(None, "nothing")]
    assert "none of its trials is there; 1 of 4 trials is missing" in held_in(folder)[1].detail
    assert told(folder).endswith("of their trials: wrong (flap, dtype=int8).")
    shutil.rmtree(next((folder / "trials").glob("balance-*")))
    assert "2 of 4 trials are missing" in held_in(folder)[0].detail
