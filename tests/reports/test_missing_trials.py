"""Trials that a run should have and has not: nothing that it tells is concluded without them."""

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from harness.commands.compare import compare_command
from harness.errors import ExitCode
from reports.bounds import held_in
from reports.load import load_folder
from reports.report import write_report

PLANNED = 18
BOUNDS = 2
NOT_RUN = f"the sweep has not finished: 2 of {PLANNED} trials have no result"
TOLD = f"2 of {PLANNED} trials are missing from the folder or cannot be read"


def rewrite(folder: Path, **changes: Any) -> None:
    """Changes run.json, `tags` and `experiment` by their keys."""
    stored = json.loads((folder / "run.json").read_text())
    for key, value in changes.items():
        stored[key] = stored[key] | value if isinstance(value, dict) else value
    (folder / "run.json").write_text(json.dumps(stored))


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    folder = make_run(tmp_path, sizes={1 << 20: 6, 8 << 20: 6}, repeats=3, counters=False)
    bounds = [{"metric": "slowdown", "system": "balance", "max": limit} for limit in (9, 1.1)]
    rewrite(folder, tags={"trials": PLANNED}, experiment={"bound": bounds})
    return folder


@pytest.fixture
def damaged(whole: Path) -> Path:
    """One trial is removed, and one cut short."""
    folder = whole.parent / "damaged"
    shutil.copytree(whole, folder)
    removed, cut = sorted((folder / "trials").glob("balance-*-r1"))
    shutil.rmtree(removed)
    (cut / "trial.json").write_text((cut / "trial.json").read_text()[:900])
    return folder


def test_a_folder_with_every_trial_lacks_none(whole: Path) -> None:
    assert (load_folder(whole).missing, load_folder(whole).incomplete) == (0, "")
    assert [bound.met for bound in held_in(whole)] == [True, False]


def test_a_bound_is_not_held_by_a_folder_that_lacks_trials(damaged: Path) -> None:
    found = held_in(damaged)
    assert [bound.met for bound in found] == [None, False]
    assert all(bound.detail.endswith(f"; {TOLD}") for bound in found)


@pytest.mark.usefixtures("undrawn")
def test_page_and_exports_say_how_many_are_missing(damaged: Path) -> None:
    warnings: list[str] = []
    page = write_report(damaged, tell=warnings.append).read_text()
    assert f"damaged: {TOLD}" in warnings
    first, summary = page.split('<section id="summary">')
    assert f"{TOLD}." in first, "before everything else"
    assert f"<li>{TOLD}; the trials that are there ended as the experiment expects.</li>" in summary
    assert "Every trial ended" not in page
    values = json.loads((damaged / "summary.json").read_text())
    assert (values["as_expected"], values["runs"][0]["missing"]) == (None, 2)
    (suite,) = ET.parse(damaged / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == (str(PLANNED + BOUNDS), "2")
    assert (suite.get("skipped"), suite.get("failures")) == ("1", "1"), (
        "a bound not measured everywhere, and a missed one"
    )
    assert [e.get("message") for e in suite.iterfind("testcase[@classname='missing']/error")] == [TOLD]
    assert 'r2ccl_missing_trials{experiment="allreduce"} 2\n' in (damaged / "metrics.prom").read_text()


@pytest.fixture
def interrupted(whole: Path) -> Path:
    """A sweep that was stopped before its last two trials."""
    folder = whole.parent / "interrupted"
    shutil.copytree(whole, folder)
    for trial in (folder / "trials").glob("balance-*-r2"):
        shutil.rmtree(trial)
    rewrite(folder, finished=None)
    return folder


@pytest.mark.parametrize(("lacking", "why"), [("damaged", TOLD), ("interrupted", NOT_RUN)])
def test_new_may_be_worse_in_the_trials_that_it_lacks(
    whole: Path, lacking: str, why: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    part: Path = request.getfixturevalue(lacking)
    assert compare_command(str(whole), str(part), None, json=False) is ExitCode.INCONCLUSIVE
    assert f"NEW: {why}." in capsys.readouterr().out
    assert compare_command(str(part), str(whole), None, json=True) is ExitCode.OK
    assert json.loads(capsys.readouterr().out)["lacks"] == {"BASE": why}


@pytest.mark.usefixtures("undrawn")
def test_page_and_exports_say_how_many_trials_an_interrupted_run_lacks(interrupted: Path) -> None:
    page = write_report(interrupted).read_text()
    assert f"<strong>{NOT_RUN.replace('the', 'The', 1)}.</strong>" in page.split('<section id="summary">')[0]
    values = json.loads((interrupted / "summary.json").read_text())
    assert (values["as_expected"], values["runs"][0]["missing"]) == (None, 2)
    (suite,) = ET.parse(interrupted / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("errors")) == (str(PLANNED - 2 + 1 + BOUNDS), "1")
    assert [e.get("message") for e in suite.iterfind("testcase[@classname='missing']/error")] == [NOT_RUN]
    assert 'r2ccl_missing_trials{experiment="allreduce"} 2\n' in (interrupted / "metrics.prom").read_text()


def test_repeats_that_were_not_needed_are_not_missing(whole: Path) -> None:
    """A sweep plans the most repeats, and ends when every cell is known precisely."""
    rewrite(whole, tags={"trials": 30}, experiment={"sweep": {"repeats": {"min": 3, "max": 5, "until": 0.05}}})
    assert load_folder(whole).missing == 0, "an older program did not record how many it ran"
    rewrite(whole, tags={"ran": PLANNED + 1})
    assert load_folder(whole).missing == 1
    rewrite(whole, finished=None)
    most = "the sweep has not finished: up to 12 of 30 trials have no result"
    assert (load_folder(whole).missing, load_folder(whole).incomplete) == (12, most)
