"""The stored form: what is written is read back, and anything else is refused in one line with advice."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import make_run

from reports.errors import SchemaError
from reports.trial import SCHEMA, Run, Trial, load_run, load_trial, save, to_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), repeats=1, sizes={1 << 20: 4}, counters=False)


def stored(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "trials/balance-1MiB-nic_down-r0/trial.json").read_text()))


def refusal(tmp_path: Path, content: str) -> str:
    path = tmp_path / "trial.json"
    path.write_text(content)
    with pytest.raises(SchemaError) as caught:
        load_trial(path)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


def test_what_is_saved_is_loaded_again(folder: Path, tmp_path: Path) -> None:
    trial = load_trial(folder / "trials/balance-1MiB-nic_down-r0/trial.json")
    save(tmp_path / "trial.json", trial)
    assert load_trial(tmp_path / "trial.json") == trial
    assert to_json(trial)["schema"] == SCHEMA
    assert [p.name for p in tmp_path.iterdir()] == ["trial.json"]


def test_run_json_is_loaded(folder: Path) -> None:
    run = load_run(folder / "run.json")
    assert isinstance(run, Run)
    assert run.experiment["name"] == "allreduce"


@pytest.mark.parametrize(("trial_id", "attempt", "cell"), [("a-1MiB-x-r0", 1, "a-1MiB-x-r0"), ("a-r0-a2", 2, "a-r0")])
def test_attempts_of_one_cell_share_its_id(folder: Path, trial_id: str, attempt: int, cell: str) -> None:
    trial = Trial.model_validate(stored(folder) | {"trial_id": trial_id, "attempt": attempt})
    assert trial.cell_id == cell


def old(folder: Path, **changes: object) -> dict[str, Any]:
    """As the first version wrote it: without a scenario, which was only in the id."""
    values = stored(folder) | {"schema": 1} | changes
    return {key: value for key, value in values.items() if key not in ("scenario", "axes")}


@pytest.mark.parametrize(
    ("changes", "scenario"),
    [
        ({"trial_id": "b-1MiB-two_nics-r0"}, "two_nics"),
        ({"trial_id": "b-1MiB-two_nics-r0-a2", "attempt": 2}, "two_nics"),
        ({"trial_id": "odd"}, "nic_down"),
        ({"trial_id": "odd", "fault": None}, "healthy"),
    ],
)
def test_a_trial_of_the_first_version_is_brought_up_to_date(
    folder: Path, tmp_path: Path, changes: dict[str, object], scenario: str
) -> None:
    path = tmp_path / "trial.json"
    path.write_text(json.dumps(old(folder, **changes)))
    trial = load_trial(path)
    assert (trial.scenario, trial.axes, trial.schema_version) == (scenario, {}, SCHEMA)


def test_an_older_file_that_is_damaged_is_still_refused(folder: Path, tmp_path: Path) -> None:
    assert "trial_id" in refusal(tmp_path, json.dumps(old(folder, trial_id=7)))
    assert "half" not in refusal(tmp_path, json.dumps(old(folder, reason="\ud800")))


def test_a_run_of_the_first_version_reads_as_one_of_today(folder: Path, tmp_path: Path) -> None:
    today = load_run(folder / "run.json")
    path = tmp_path / "run.json"
    path.write_text(json.dumps(to_json(today) | {"schema": 1}))
    assert load_run(path) == today


def test_evidence_may_grow_and_keeps_what_it_does_not_know(folder: Path, tmp_path: Path) -> None:
    trial = Trial.model_validate(stored(folder) | {"evidence": {"in_flight": True, "novelty": 7}})
    save(tmp_path / "trial.json", trial)
    assert json.loads((tmp_path / "trial.json").read_text())["evidence"]["novelty"] == 7


CASES = {
    "newer": ({"schema": SCHEMA + 1}, "newer than this program's"),
    "not a number": ({"schema": "1"}, "not a schema version"),
    "true": ({"schema": True}, "not a schema version"),
    "zero": ({"schema": 0}, "not a schema version"),
    "unknown key": ({"sise_bytes": 1}, "unknown key; nearest is 'size_bytes'"),
    "wrong status": ({"status": "fine"}, "status"),
    "negative size": ({"size_bytes": -1}, "size_bytes"),
    "missing iteration key": ({"iterations": [{"iteration": 0}]}, "iterations.0"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_this_schema_is_refused(folder: Path, tmp_path: Path, case: str) -> None:
    changes, expected = CASES[case]
    assert expected in refusal(tmp_path, json.dumps(stored(folder) | changes))


@pytest.mark.parametrize("content", ["", "{", '{"schema": 1, "trial', "[1]", "\x00", "[" * 100_000])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    refusal(tmp_path, content)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "trial.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SchemaError, match="broken"):
        load_trial(tmp_path / "trial.json")


def test_a_missing_file_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="give the folder of a run"):
        load_run(tmp_path / "run.json")


def test_the_schema_is_light_to_import() -> None:
    heavy = ("pandas", "matplotlib", "pyarrow", "numpy")
    code = f"import sys, reports.trial; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
