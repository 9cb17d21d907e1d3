"""Markdown, CSV, LaTeX, JSON, JUnit and Prometheus: well formed, complete, and safe whatever a name holds."""

import csv
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import make_run

from reports import machine, tables
from reports.drift import drift_lines, drifts
from reports.export import write_exports
from reports.headline import Line, headline
from reports.load import LoadedRun, load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.page import told
from reports.report import content, write_report
from reports.stats import Estimate
from reports.targets import targets
from reports.trial import SCHEMA, Iteration
from reports.wording import NOTHING

HOSTILE = 'a|b<script>\n"$&%_{x}\\\x00'


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return load_folder(make_run(tmp_path_factory.mktemp("runs"), sizes={1 << 20: 8}, repeats=2))


@pytest.fixture(scope="module")
def lines(loaded: LoadedRun) -> list[Line]:
    return headline(trial_frame([loaded]))


@pytest.fixture
def hostile(lines: list[Line]) -> list[Line]:
    return [replace(line, system=HOSTILE) for line in lines]


def test_markdown_has_one_row_a_line_and_no_markup_of_names(hostile: list[Line]) -> None:
    rows = tables.markdown(hostile).splitlines()
    assert len(rows) == 2 + len(hostile)
    assert {row.replace("\\|", "").count("|") for row in rows} == {len(tables.texts(hostile)[0]) + 1}
    assert "\\<script\\>" in rows[2]


def test_a_total_that_cannot_be_had_reads_the_same_in_the_table_and_on_the_page(lines: list[Line]) -> None:
    none = replace(lines[0], estimates={name: Estimate(math.nan, math.nan, math.nan, 0) for name in METRICS})
    for name, text in (("weights_differ", NOTHING), ("wrong", "unchecked")):
        assert tables.cell_of(none, METRICS[name]) == told(none, METRICS[name]) == text


def test_csv_has_plain_numbers(lines: list[Line]) -> None:
    rows = list(csv.DictReader(tables.comma_separated(lines).splitlines()))
    by_system = {row["system"]: row for row in rows}
    assert float(by_system["balance"]["slowdown_median"]) == pytest.approx(
        next(line["slowdown"].median for line in lines if line.system == "balance")
    )
    assert by_system["failstop"]["slowdown_median"] == ""


def test_csv_and_json_count_the_values_that_the_worst_is_of_also_without_a_median(loaded: LoadedRun) -> None:
    frame = trial_frame([loaded])
    low = frame["repeat"] == 0
    frame = frame.assign(lost_ms=frame["lost_ms"].mask(low), disturbed=low.map({True: "slowed", False: ""}))
    lines = [line for line in headline(frame) if line.system == "balance"]
    (row,) = csv.DictReader(tables.comma_separated(lines).splitlines())
    assert (row["lost_ms_median"], row["lost_ms_n"]) == ("", "1") and float(row["lost_ms_worst"]) > 0
    (told,) = json.loads(machine.json_summary([loaded], lines, []))["table"]
    assert (told["lost_ms"]["median"], told["lost_ms"]["n"]) == (None, 1) and told["lost_ms"]["worst"] > 0


def test_latex_escapes_every_special_character(hostile: list[Line]) -> None:
    text = tables.latex(hostile)
    assert r"\$\&\%\_\{x\}\textbackslash{}" in text
    assert text.count(r"\\" + "\n") == len(hostile) + 1


def test_json_summary_reads_back_and_knows_no_nan(loaded: LoadedRun, hostile: list[Line]) -> None:
    text = machine.json_summary([loaded], hostile, targets(hostile))
    values = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert (values["schema"], values["as_expected"], len(values["table"])) == (SCHEMA, True, 3)
    assert {row["slowdown"]["median"] for row in values["table"] if row["mode"] == 0} == {None}


def test_junit_tells_failures_from_doubts(loaded: LoadedRun) -> None:
    first, second, *others = loaded.trials
    failed = first.model_copy(update={"expected": False, "status": "failed", "reason": HOSTILE})
    doubtful = second.model_copy(update={"expected": False, "status": "inconclusive"})
    run = replace(loaded, trials=(failed, doubtful, *others), problems=("x/trial.json: broken\x01",))
    (suite,) = ET.fromstring(machine.junit([run], [[]]))
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": str(len(loaded.trials) + 1), "failures": "1", "skipped": "1", "errors": "1"
    }  # fmt: skip
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "<script>" in str(failure.get("message"))


def test_junit_has_the_bounds_as_the_exit_status_counts_them(tmp_path: Path) -> None:
    """A sweep that missed a bound exited with 1, and CI read that all of it had passed."""
    folder = make_run(tmp_path, sizes={1 << 20: 8}, repeats=2, counters=False)
    document = json.loads((folder / "run.json").read_text())
    document["experiment"]["bound"] = [
        {"metric": "slowdown", "system": "balance", "max": 100},
        {"metric": "slowdown", "system": "balance", "max": 0.5},
        {"metric": "error_after_ms", "system": "balance", "max": 0.5},
    ]
    (folder / "run.json").write_text(json.dumps(document))
    write_report(folder)
    (suite,) = ET.parse(folder / "junit.xml").getroot()
    trials = len(load_folder(folder).trials)
    counts = {"tests": trials + 3, "failures": 1, "skipped": 1, "errors": 0}
    assert {key: suite.get(key) for key in counts} == {key: str(count) for key, count in counts.items()}
    cases = suite.findall("testcase[@classname='bound']")
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["skipped"]]
    assert str(cases[1].get("name")).startswith("slowdown (balance): ")
    assert str(cases[1].get("name")).endswith(": at most 0.5")
    assert str(cases[1][0].get("message")).startswith("missed: ")
    assert str(cases[2][0].get("message")).startswith("not measured: nothing")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["as_expected"] is True and [one["met"] for one in summary["targets"][-3:]] == [True, False, None]


def test_prometheus_lines_are_whole(loaded: LoadedRun, hostile: list[Line]) -> None:
    samples = [line for line in machine.prometheus([loaded], hostile).splitlines() if not line.startswith("#")]
    assert samples
    for sample in samples:
        name, _, rest = sample.partition("{")
        labels, _, value = rest.rpartition("} ")
        assert name.startswith("r2ccl_")
        assert 'experiment="allreduce"' in labels
        float(value)


def test_exports_are_written_whole(loaded: LoadedRun, lines: list[Line]) -> None:
    names = [path.name for path in write_exports([loaded], lines, targets(lines), [[]], loaded.folder)]
    assert names == ["table.md", "table.csv", "table.tex", "summary.json", "junit.xml", "metrics.prom"]
    assert all((loaded.folder / name).stat().st_size > 0 for name in names)
    assert not list(Path(loaded.folder).glob(".*.part"))


def test_a_machine_that_drifted_is_told_in_page_and_exports(loaded: LoadedRun, tmp_path: Path) -> None:
    """The terminal said it, and neither the page nor any file did."""
    trial = next(t for t in loaded.trials if t.fault is None or t.status == "ok")
    whole = [i for i in trial.iterations if i.phase == "before"]
    slower = [replace_speed(i, 0.5) for i in whole]
    ends = [
        trial.model_copy(
            update={"trial_id": when, "scenario": f"healthy_{when}", "fault": None, "iterations": tuple(timed)}
        )
        for when, timed in (("before", whole), ("after", slower))
    ]
    run = replace(loaded, trials=(*loaded.trials, *ends))
    told = f"The machine drifted: {trial.system} at 1MiB: healthy bus bandwidth afterwards is 50.0 % less than before."
    frame = trial_frame([run])
    lines = headline(frame)
    assert told in content([run], frame, lines).sentences
    write_exports([run], lines, [], [[]], tmp_path)
    (drift,) = json.loads((tmp_path / "summary.json").read_text())["drift"]
    assert (drift["told"], drift["ratio"]) == (told, pytest.approx(0.5))
    assert (tmp_path / "table.md").read_text().endswith(f"\n\n{told}\n")
    sample = f'r2ccl_drift_ratio{{experiment="allreduce",case="",system="{trial.system}",size_bytes="1048576"}} '
    assert sample in (tmp_path / "metrics.prom").read_text()
    assert [told for told in content([loaded], frame, lines).sentences if "drifted" in told] == []


def test_many_drifts_are_one_sentence(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.fault is None or t.status == "ok")
    whole = [i for i in trial.iterations if i.phase == "before"]
    ends = [
        trial.model_copy(
            update={
                "trial_id": f"{when}{size}", "scenario": f"healthy_{when}", "fault": None, "size_bytes": size << 20,
                "iterations": tuple(whole if when == "before" else [replace_speed(i, ratio) for i in whole]),
            }
        )
        for size, ratio in ((1, 0.5), (2, 1.25), (4, 0.8))
        for when in ("before", "after")
    ]  # fmt: skip
    assert drift_lines(replace(loaded, trials=tuple(ends[:4]))) == [str(one) for one in drifts(ends[:4])]
    assert drift_lines(replace(loaded, trials=tuple(ends))) == [
        "The machine drifted: healthy speeds of 3 cells changed by \N{MINUS SIGN}50.0 to +25.0 % from before to after, "
        f"that of {trial.system} at 1MiB most; summary.json has each."
    ]


def replace_speed(iteration: Iteration, factor: float) -> Iteration:
    speed = None if iteration.busbw_gbs is None else iteration.busbw_gbs * factor
    return iteration.model_copy(update={"busbw_gbs": speed, "duration_ns": int(iteration.duration_ns / factor)})
