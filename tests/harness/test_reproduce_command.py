"""``harness reproduce`` as a user runs it: the list, a model alone, a run that is there, and a real sweep."""

import json
from pathlib import Path

import pytest
from synthetic_run import make_run
from typer.testing import CliRunner

from harness.commands.cli import app
from harness.experiment.examples import folder
from reports.reproduce.catalog import ENTRIES

NAME = "cloudlab_r7525"
"""The experiment by which cloudlab-01 is measured."""


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reproduce", *map(str, words)])
    return result.exit_code, result.output


def test_the_list_has_every_experiment_and_says_what_can_be_done() -> None:
    status, text = run()
    assert status == 0
    for entry in ENTRIES:
        assert f"\n{entry.name}\n" in text
    assert "model only: the sweep has no workload that captures CUDA graphs" in text
    assert "measured with k_sweep.toml" in text


def test_every_experiment_file_that_is_named_is_there() -> None:
    from harness.experiment.file import load

    for entry in ENTRIES:
        if entry.trials is not None and entry.trials.collective == "all_reduce":
            experiment = load(folder() / f"{entry.trials.experiment}.toml", entry.trials.changes)
            systems = {system.name for system in experiment.systems}
            kept = {word.removeprefix("system=") for word in entry.trials.only if word.startswith("system=")}
            assert kept <= systems


def test_a_model_alone(tmp_path: Path) -> None:
    status, text = run("cloudlab-07", "--model-only", "-o", tmp_path)
    assert status == 0
    assert "nothing is measured here: --model-only" in text
    made = tmp_path / "reproduce-cloudlab-07"
    assert {"table.md", "table.csv", "result.json", "figure.png", "figure.svg"} <= {p.name for p in made.iterdir()}


def test_a_simulated_run_measures_nothing(tmp_path: Path) -> None:
    folder = make_run(tmp_path, NAME, sizes={64 << 20: 6}, repeats=1, systems={"balance": 2}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        trial["evidence"]["simulated"] = {"alpha_s": 0.0}
        path.write_text(json.dumps(trial))
    status, text = run("cloudlab-01", "--run", folder, "-o", tmp_path)
    assert status == 2 and "is simulated and measured nothing" in text
    assert not (tmp_path / "reproduce-cloudlab-01").exists()


def test_a_run_that_is_there_is_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path, NAME, sizes={64 << 20: 6}, repeats=2, systems={"balance": 2})
    status, text = run("cloudlab-01", "--run", folder, "-o", tmp_path)
    assert status == 0
    assert "left out" not in text
    assert "measured on 3 hosts with 3 NICs of 500 Mbit/s each, 64MiB" in text
    assert "scaled down: ranks: 3 here, 6 published" in text
    record = json.loads((tmp_path / "reproduce-cloudlab-01" / "result.json").read_text())
    by_key = {line["key"]: line for line in record["lines"]}
    assert by_key["ratio"]["measured"]["n"] == 2
    assert 0.9 < by_key["ratio"]["measured_over_model"] < 1.1


def test_only_trials_that_fit_answer_and_the_others_are_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path, NAME, sizes={16 << 20: 6, 64 << 20: 6}, repeats=2, counters=False)
    status, text = run("cloudlab-01", "--run", folder, "-o", tmp_path)
    assert status == 0
    told = "left out of the run: 4 of system failstop, 4 of system hot_repair, 2 of size 16MiB"
    assert told in " ".join(text.split())
    alone = make_run(tmp_path / "alone", NAME, sizes={64 << 20: 6}, repeats=2, systems={"balance": 2}, counters=False)
    for path in alone.glob("trials/*/trial.json"):  # the same numbers as in the larger run
        path.write_text((folder / "trials" / path.parent.name / "trial.json").read_text())
    assert run("cloudlab-01", "--run", alone, "-o", tmp_path / "alone")[0] == 0
    tables = (place / "reproduce-cloudlab-01" / "table.csv" for place in (tmp_path, tmp_path / "alone"))
    assert next(tables).read_text() == next(tables).read_text()


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("smoke", {}, "is a run of smoke, and cloudlab-01 is measured by cloudlab_r7525; give a run of that"),
        (NAME, {"collective": "broadcast"}, "no trial of it answers for cloudlab-01: 1 of broadcast"),
        (NAME, {"system": "k1", "mode": 3}, "no trial of it answers for cloudlab-01: 1 of system k1"),
        (NAME, {"mode": 1}, "no trial of it answers for cloudlab-01: 1 of a system balance with another mode or env"),
        (NAME, {"scenario": "delay"}, "no trial of it answers for cloudlab-01: 1 of fault delay"),
    ],
)
def test_a_run_of_something_else_is_refused(tmp_path: Path, name: str, change: dict[str, object], told: str) -> None:
    folder = make_run(tmp_path, name, sizes={64 << 20: 6}, repeats=1, systems={"balance": 2}, counters=False)
    (path,) = folder.glob("trials/*/trial.json")
    trial = json.loads(path.read_text())
    if "scenario" in change:
        trial["fault"]["kind"] = change["scenario"]
    trial_id = trial["trial_id"].replace(trial["system"], str(change.get("system", trial["system"])))
    path.write_text(json.dumps(trial | change | {"trial_id": trial_id}))
    path.parent.rename(path.parent.with_name(trial_id))
    status, text = run("cloudlab-01", "--run", folder, "-o", tmp_path)
    assert (status, len(text.splitlines())) == (2, 1), text
    assert told in text
    assert not (tmp_path / "reproduce-cloudlab-01").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cloudlab-7",), "did you mean 'cloudlab-07'?"),
        (("CLOUDLAB-01",), "did you mean 'cloudlab-01'?"),
        (("cloudlab-01", "--run", "{file}"), "file: is a file; give the folder of a run"),
        (
            ("cloudlab-08", "--run", "x"),
            "no run can answer for it: the sweep has no workload that captures CUDA graphs",
        ),
        (("cloudlab-01", "--run", "nowhere"), "give the folder of a run"),
        (("cloudlab-01", "--run", "nowhere", "--model-only"), "is read as it is; leave out --model-only and --set"),
        (("cloudlab-01", "--run", "nowhere", "--set", "x=1"), "is read as it is; leave out --model-only and --set"),
        (("cloudlab-01", "--model-only", "--set", "x=1"), "--set x=1: changes the sweep, and --model-only measures"),
        (("cloudlab-08", "--set", "x=1"), "--set x=1: cloudlab-08 is not measured: the sweep has no workload"),
        (("cloudlab-01", "--run", "{strange}"), "hosts, NICs and their rate must be known"),
        (("cloudlab-08", "-o", "{file}"), "cannot be written"),
        (("cloudlab-01", "--set", "workload.sise=1", "-o", "x"), "sise"),
    ],
)
def test_what_cannot_be_reproduced_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    strange = make_run(tmp_path, NAME, sizes={1 << 20: 4}, repeats=1, counters=False)
    path = strange / "run.json"
    path.write_text(path.read_text().replace('"rate": "500 Mbit/s"', '"rate": "fast"'))
    (tmp_path / "file").touch()
    status, text = run(*(word.format(strange=strange, file=tmp_path / "file") for word in words))
    assert status == 2
    assert told in text.splitlines()[-1]


@pytest.mark.netns
@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_published_experiment_is_measured_on_the_local_cluster(tmp_path: Path) -> None:
    settings = ("sweep.repeats=1", "workload.min_duration=0 s", "workload.iterations=4")
    words = [word for setting in settings for word in ("--set", setting)]
    status, text = run("cloudlab-bytes", *words, "-o", tmp_path)
    assert status == 0, text
    assert "measured on 3 hosts with 3 NICs of 500 Mbit/s each, 6 ranks, 64MiB" in text
    assert "scaled down: rate of a NIC" in text and "scaled down: ranks" not in text
    record = json.loads((tmp_path / "reproduce-cloudlab-bytes" / "result.json").read_text())
    for line in record["lines"]:
        assert line["measured"] is not None, line["key"]
        assert line["measured_over_model"] == pytest.approx(1, abs=0.05), line["key"]
