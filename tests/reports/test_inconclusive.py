"""An inconclusive trial is counted nowhere as one that ended well, badly, or after a fault."""

import json
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from reports.figures import aftermath, bandwidth, slowdown, style
from reports.headline import headline
from reports.load import load_folder
from reports.machine import json_summary, prometheus
from reports.measures import trial_frame
from reports.setting import Setting
from reports.summary import scope


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """One of two balance trials is inconclusive, and both of failstop."""
    folder: Path = make_run(tmp_path_factory.mktemp("runs"), repeats=2, sizes={1 << 20: 4}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        if trial["system"] == "failstop" or (trial["system"] == "balance" and trial["repeat"] == 0):
            path.write_text(json.dumps(trial | {"status": "inconclusive", "expected": False}))
    return trial_frame([load_folder(folder)])


def test_captions_and_the_scope_count_conclusive_trials(frame: pd.DataFrame) -> None:
    assert ", 3 trials (loss noticed 3" in aftermath.caption(frame)
    assert "1 to 2 repeats per point" in bandwidth.caption(frame)
    assert "6 trials of all_reduce" in (said := scope(frame, Setting(3, 3, 500e6)))
    assert said.endswith(", 3 with a fault during a collective, 3 inconclusive.")


def test_a_system_without_a_conclusive_trial_is_no_short_one(frame: pd.DataFrame) -> None:
    said = slowdown.caption(frame)
    assert "none for failstop (not measured)" in said
    stopped = frame.copy()
    stopped.loc[stopped[stopped["system"] == "failstop"].index[0], "status"] = "failed"
    assert "none for failstop (stopped)" in slowdown.caption(stopped)


def test_a_cell_is_as_expected_by_its_conclusive_trials(frame: pd.DataFrame) -> None:
    lines = headline(frame)
    assert {line.system: line.as_expected for line in lines} == {"failstop": None, "hot_repair": True, "balance": True}
    assert json.loads(json_summary([], lines, []))["as_expected"] is True
    samples = [text for text in prometheus([], lines).splitlines() if text.startswith("r2ccl_as_expected{")]
    assert len(samples) == 2 and all(text.endswith(" 1") for text in samples)


def test_labels_of_the_logarithmic_axis_stand_apart_on_a_phone(frame: pd.DataFrame) -> None:
    wide = frame.assign(status="ok", detect_ms=[0.02, 5000.0, *[40.0] * (len(frame) - 2)])
    with style.narrowed():
        figure = aftermath.draw(wide)
    figure.draw_without_rendering()
    low, high = figure.axes[0].get_xlim()
    labels = [text for text in figure.axes[0].get_xticklabels() if low <= text.get_position()[0] <= high]
    boxes = sorted((label.get_window_extent().x0, label.get_window_extent().x1) for label in labels)
    assert len(boxes) > 2 and all(one[1] < other[0] for one, other in pairwise(boxes))
