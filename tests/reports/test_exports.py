"""Markdown, CSV, LaTeX, JSON, JUnit and Prometheus: well formed, complete, and safe whatever a name holds."""

import csv
import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from synthetic_run import make_run

from reports import machine, tables
from reports.export import write_exports
from reports.headline import Line, headline
from reports.load import LoadedRun, load_folder
from reports.measures import trial_frame
from reports.targets import targets
from reports.trial import SCHEMA

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


def test_csv_has_plain_numbers(lines: list[Line]) -> None:
    rows = list(csv.DictReader(tables.comma_separated(lines).splitlines()))
    by_system = {row["system"]: row for row in rows}
    assert float(by_system["balance"]["slowdown_median"]) == pytest.approx(
        next(line["slowdown"].median for line in lines if line.system == "balance")
    )
    assert by_system["failstop"]["slowdown_median"] == ""


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
    (suite,) = ET.fromstring(machine.junit([run]))
    assert {k: suite.get(k) for k in ("tests", "failures", "skipped", "errors")} == {
        "tests": str(len(loaded.trials) + 1), "failures": "1", "skipped": "1", "errors": "1"
    }  # fmt: skip
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "<script>" in str(failure.get("message"))


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
    names = [path.name for path in write_exports([loaded], lines, targets(lines), loaded.folder)]
    assert names == ["table.md", "table.csv", "table.tex", "summary.json", "junit.xml", "metrics.prom"]
    assert all((loaded.folder / name).stat().st_size > 0 for name in names)
    assert not list(Path(loaded.folder).glob(".*.part"))
