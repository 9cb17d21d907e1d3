"""Logs of nccl-tests: every one in tests/data/nccl_tests, whoever wrote it, and what is known of some of them.

``2.*`` and ``broken-*`` are written after the documented columns of those versions. Logs of real builds are added by
tests/gpu/record_nccl_tests.py, with what it ran in runs.json.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.backends.nccl_tests_json import parse_document
from harness.backends.nccl_tests_text import Place, Report, Row, parse_row, parse_text
from harness.errors import LogError

DATA = Path(__file__).parents[1] / "data" / "nccl_tests"
EXPECTED: dict[str, dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
RUNS: dict[str, dict[str, Any]] = json.loads((DATA / "runs.json").read_text()) if (DATA / "runs.json").exists() else {}
TEXTS, DOCUMENTS = sorted(DATA.glob("*.log")), sorted(DATA.glob("[!er]*-*.json"))
SILENT = ("too_many_gpus",)


def places(rows: list[Row] | tuple[Row, ...]) -> list[Place]:
    return [place for row in rows for place in (row.out, row.in_place) if place is not None]


def report_of(path: Path) -> Report:
    return parse_text(path.read_text())


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_every_log_is_read(path: Path) -> None:
    report = report_of(path)
    case = path.stem.removeprefix("real-").partition("-")[2]
    assert bool(report.rows) is (case not in (*SILENT, "empty"))
    assert report.finished is (not path.stem.startswith("broken") and case not in SILENT)
    if report.finished:
        every = [place.busbw_gbs for place in places(report.rows)]
        assert sum(every) / len(every) == pytest.approx(report.average_busbw_gbs, rel=0.01, abs=0.006)
        assert report.headers == 1 and report.ranks > 0
        assert report.out_of_bounds is not None and not report.errors
    for row in report.rows:
        assert row.size_bytes >= row.count > 0
        assert all(place.time_us > 0 and place.busbw_gbs >= 0 for place in places([row]))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_a_log_that_is_cut_anywhere_says_nothing_that_the_whole_does_not(path: Path) -> None:
    text = path.read_text()
    whole = parse_text(text)
    for end in range(0, len(text), 7):
        cut = parse_text(text[:end])
        assert cut.rows == whole.rows[: len(cut.rows)], text[max(0, end - 100) : end]
        assert not cut.finished or whole.finished


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_known_of_a_log(name: str) -> None:
    report, known = report_of(DATA / f"{name}.log"), EXPECTED[name]
    assert len(report.rows) == known["rows"]
    assert len(report.errors) == known.get("errors", 0)
    assert len(report.warnings) == known.get("warnings", 0)
    assert report.headers == known.get("headers", report.headers)
    for key in ("version", "ranks", "out_of_bounds"):
        assert getattr(report, key) == known.get(key, getattr(report, key)), key
    if "op" in known:
        assert {(row.op, row.root) for row in report.rows} == {(known["op"], known["root"])}
        counted = [place.wrong for place in places(report.rows) if place.wrong is not None]
        assert (sum(counted) if counted else None) == known["wrong"]
    if known.get("iterations"):
        for place in places(report.rows):
            assert place.iteration_us is not None and place.iteration_us[0] < place.time_us < place.iteration_us[1]


@pytest.mark.skipif(not RUNS, reason="no logs of real builds yet: tests/gpu/record_nccl_tests.py records them")
def test_what_a_recorded_run_says_fits_how_it_ended() -> None:
    for name, run in RUNS.items():
        report = report_of(DATA / f"{name}.log")
        if report.finished:
            assert run["status"] == 0 or report.out_of_bounds, name
        else:
            assert run["status"] != 0, name


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.stem)
def test_every_document_says_what_its_text_says_and_keeps_no_secret(path: Path) -> None:
    text = path.read_text()
    if path.stem.startswith("broken"):
        with pytest.raises(LogError) as refused:
            parse_document(text)
        assert "\n" not in str(refused.value)
        return
    document = parse_document(text)
    assert document.rows and document.ranks > 0 and document.out_of_bounds is not None
    assert "never-tell" not in repr(document) and "PATH=" not in json.dumps(document.as_record())
    if not path.with_suffix(".log").exists():
        return
    report = report_of(path.with_suffix(".log"))
    assert document.nccl_version == report.nccl_version
    for told, shown in zip(document.rows, report.rows, strict=True):
        assert (told.size_bytes, told.count, told.dtype, told.op, told.root) == (
            (shown.size_bytes, shown.count, shown.dtype, shown.op, shown.root)
        )
        for one, other in zip(places([told]), places([shown]), strict=True):
            assert one.time_us == pytest.approx(other.time_us, rel=0.02)
            assert one.wrong == other.wrong
    for times in document.times_us.values():
        assert len(times) == 3 and all(time_us > 0 for time_us in times)


def test_cpu_time_numbers_that_are_none_and_unchecked_places_are_read() -> None:
    (first, _) = parse_document((DATA / "2.17-cpu_time.json").read_text()).rows
    assert first.out is not None and first.out.time_us > 0 and first.out.algbw_gbs != first.out.algbw_gbs
    assert first.in_place is not None and first.in_place.wrong is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong",
        "     1048576        262144     float     sum      -1",
        "     1048576        262144     float     sum      -1    125.7    8.34    8.34      0    124.1    8.45",
        " 1048576     262144     float     sum      -1    125.7    8.34    8.34      0   124.1    8.45    8.45  oops",
        "     1048576        262144     float     sum       3    125.7    8.34    8.34",
        "1 2 3 4 5 6 7 8 9 10 11 12 13",
        "host0:900:915 [0] NCCL INFO Using network Socket",
    ],
)
def test_what_is_no_row_is_none(line: str) -> None:
    assert parse_row(line) is None


def test_a_long_time_and_large_counts_have_no_point() -> None:
    row = parse_row(
        " 8589934592   2147483648   float     sum      -1   63896  134.44  235.26  1e+06   63959  134.30  235.03   N/A"
    )
    assert row is not None and row.out is not None and row.in_place is not None
    assert (row.root, row.out.time_us, row.out.wrong, row.in_place.wrong) == (-1, 63896.0, 1_000_000, None)
    old = parse_row(
        "  8589934592    2147483648     float     sum    63896  134.44  235.26    N/A    63959  134.30  235.03    N/A"
    )
    assert old is not None and old.root is None and old.out is not None and old.out.time_us == 63896.0
