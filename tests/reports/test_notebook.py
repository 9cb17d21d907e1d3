"""The notebook of the documents runs as it stands, and comes to the numbers of the report."""

import json
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from synthetic_run import make_run, write_trial

from reports.headline import headline
from reports.load import load_folders
from reports.measures import trial_frame
from reports.report import write_report

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "guides" / "rows.ipynb"


def test_every_cell_runs_and_agrees_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path, repeats=2, sizes={1 << 20: 4}, counters=False)
    _with_a_flap(folder)
    _with_a_slow_start(folder)
    write_report(folder)
    monkeypatch.chdir(folder)
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), "outputs are of somebody's run: clear them before a commit"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert capsys.readouterr().out.startswith("0 wrong elements in ")
    lines = [line for line in headline(trial_frame(load_folders([folder]))) if line.conclusive > line.stopped]
    told = {(line.system, line.size_bytes, line.scenario): line["slowdown"].median for line in lines}
    found = names["slowdown"]
    assert found["T/T0"].to_dict() == pytest.approx(told, nan_ok=True)
    assert {scenario for *_, scenario in told} == {"nic_down", "flap", "slow_start"} and len(told) >= 6
    unsaid = found[found["T/T0"].isna()]
    assert set(unsaid.index.get_level_values("scenario")) == {"slow_start"}
    assert (unsaid["known"] == 1).all() and (found["of"] == 2).all()


def _with_a_flap(folder: Path) -> None:
    """Adds each trial once more, as one of a NIC that comes and goes: its T/T0 is one of means."""
    for path in sorted((folder / "trials").glob("*/trial.json")):
        trial = json.loads(path.read_text())
        about = {"trial_id": trial["trial_id"].replace("nic_down", "flap"), "scenario": "flap"}
        flapping = {"fault": trial["fault"] | {"kind": "flap"}}
        write_trial(folder, trial | about | flapping | {"evidence": trial["evidence"] | {"comes_and_goes": True}})


def _with_a_slow_start(folder: Path) -> None:
    """Adds each trial once more. What slows the iterations before the fault of the first of two makes its T/T0, and so
    the median, unknown."""
    for path in sorted((folder / "trials").glob("*nic_down*/trial.json")):
        trial = json.loads(path.read_text())
        about = {"trial_id": trial["trial_id"].replace("nic_down", "slow_start"), "scenario": "slow_start"}
        factor = 1 if trial["repeat"] else 5
        slowed = [
            one | {"duration_ns": one["duration_ns"] * (factor if one["phase"] == "before" else 1)}
            for one in trial["iterations"]
        ]
        write_trial(folder, trial | about | {"iterations": slowed})
