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
    write_report(folder)
    monkeypatch.chdir(folder)
    matplotlib.use("Agg")
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), "outputs are of somebody's run: clear them before a commit"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert capsys.readouterr().out.startswith("0 wrong elements in ")
    lines = [line for line in headline(trial_frame(load_folders([folder]))) if line["slowdown"].n]
    told = {(line.system, line.size_bytes, line.scenario): line["slowdown"].median for line in lines}
    found = names["slowdown"].groupby(names["cell"]).median().to_dict()
    assert {scenario for *_, scenario in told} == {"nic_down", "flap"} and len(told) >= 4
    assert found == pytest.approx(told)


def _with_a_flap(folder: Path) -> None:
    """Adds each trial once more, as one of a NIC that comes and goes: its T/T0 is one of means."""
    for path in sorted((folder / "trials").glob("*/trial.json")):
        trial = json.loads(path.read_text())
        about = {"trial_id": trial["trial_id"].replace("nic_down", "flap"), "scenario": "flap"}
        flapping = {"fault": trial["fault"] | {"kind": "flap"}}
        write_trial(folder, trial | about | flapping | {"evidence": trial["evidence"] | {"comes_and_goes": True}})
