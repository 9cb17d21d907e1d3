"""The notebook of the documents runs as it stands, and comes to the numbers of the report."""

import json
from pathlib import Path

import matplotlib
import pytest
from synthetic_run import make_run

from reports.report import write_report

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "guides" / "rows.ipynb"


def test_every_cell_runs_and_agrees_with_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path, repeats=2, sizes={1 << 20: 4}, counters=False)
    write_report(folder)
    monkeypatch.chdir(folder)
    matplotlib.use("Agg")
    names: dict[str, object] = {}
    for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]:
        assert not cell.get("outputs"), "outputs are of somebody's run: clear them before a commit"
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert capsys.readouterr().out.startswith("0 wrong elements in ")
    told, here = names["told"], names["slowdown"]
    found = here.droplevel(["system", "size_bytes"])  # type: ignore[attr-defined]
    assert len(found) >= 2
    assert found.to_dict() == pytest.approx(told[found.index].to_dict(), rel=0.02)  # type: ignore[index]
