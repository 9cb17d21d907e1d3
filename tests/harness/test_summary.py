"""What a sweep came to: pending trials, exit codes and the table, from records made by hand."""

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import stored_run

from harness.errors import ExitCode
from harness.experiment.file import load
from harness.sweep.console import ConsoleProgress, trial_line
from harness.sweep.json_events import JsonProgress
from harness.sweep.plan import plan
from harness.sweep.run_folder import RunFolder
from harness.sweep.summary import exit_code, last_attempts, next_attempt, table
from harness.terminal import console
from reports import trial as stored
from reports.headline import headline
from reports.load import load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.trial import Iteration, Phase, Status

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
TRIAL = plan(load(ALLREDUCE))[0]


def record(status: Status = "ok", expected: bool = True, attempt: int = 1, **changes: Any) -> stored.Trial:
    phases: tuple[tuple[Phase, int], ...] = (
        ("warmup", 90),
        ("before", 10),
        ("before", 10),
        ("hit", 40),
        ("after", 15),
    )
    iterations = [
        Iteration(iteration=i, phase=p, t_ns=0, duration_ns=ms * 10**6, algbw_gbs=0, busbw_gbs=1 / ms)
        for i, (p, ms) in enumerate(phases, start=-1)
    ]
    made = stored.Trial(
        trial_id=TRIAL.trial_id if attempt == 1 else f"{TRIAL.trial_id}-a{attempt}",
        system="balance",
        mode=2,
        collective="all_reduce",
        size_bytes=1,
        dtype="float32",
        op="sum",
        place="out",
        scenario="nic_down",
        repeat=0,
        attempt=attempt,
        status=status,
        expected=expected,
        iterations=tuple(iterations),
    )
    return made.model_copy(update=changes)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ([record()], ExitCode.OK),
        ([record("failed")], ExitCode.OK),
        ([record("wrong", False)], ExitCode.WRONG),
        ([record("failed", False)], ExitCode.WRONG),
        ([record("ok", False)], ExitCode.WRONG),
        ([record("inconclusive", False)], ExitCode.INCONCLUSIVE),
        ([record("inconclusive", False), record(attempt=2)], ExitCode.OK),
        ([record(attempt=2), record("inconclusive", False)], ExitCode.OK),
        ([record("wrong", False, trial_id="other"), record("inconclusive", False)], ExitCode.WRONG),
        ([], ExitCode.OK),
    ],
)
def test_exit_codes(records: list[stored.Trial], code: ExitCode) -> None:
    assert exit_code(records) is code


@pytest.mark.parametrize(
    ("records", "attempt"),
    [
        ([], 1),
        ([record()], None),
        ([record("failed", False)], None),
        ([record("wrong", False)], None),
        ([record("inconclusive", False)], 2),
        ([record("inconclusive", False), record("inconclusive", False, 2)], 3),
        ([record("inconclusive", False, n) for n in (1, 2, 3)], None),
        ([record("inconclusive", False), record(attempt=2)], None),
    ],
)
def test_what_runs_next_with_two_retries(records: list[stored.Trial], attempt: int | None) -> None:
    assert next_attempt(TRIAL, last_attempts(records), 2) == attempt


def test_a_failure_that_was_expected_is_told_as_such() -> None:
    (line,) = table([record("failed", iterations=())])
    assert line.statuses == "1 stopped (expected)"


def test_the_table_has_medians_by_phase_and_the_slowdown() -> None:
    unexpected = record("failed", False, trial_id="other", iterations=())
    (line,) = table([record(), unexpected])
    assert line.statuses == "1 failed, 1 ok"
    assert [line.values[name] for name in ("before_gbs", "hit_gbs", "after_gbs")] == [0.1, 1 / 40, 1 / 15]
    assert line.values["slowdown"] == 1.5


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_the_summary_breaks_no_word_and_keeps_every_number(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    folder = RunFolder(tmp_path)
    (tmp_path / "trials" / TRIAL.trial_id).mkdir(parents=True)
    (tmp_path / "trials" / TRIAL.trial_id / "trial.json").write_text(record().model_dump_json(exclude_none=True))
    progress = ConsoleProgress(console())
    progress.opened(folder.path, False)
    capsys.readouterr()
    progress.closed(ExitCode.OK, [])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= columns
    words = re.split(r"[\s,:]+", shown)
    assert {"balance", "0.1", "0.0667", "1.5", "0.025"} <= set(words)


def test_an_inconclusive_trial_counts_in_no_number() -> None:
    slow = record("inconclusive", False, trial_id="slow", iterations=(record().iterations[1],) * 3)
    (line,), (alone,) = table([record(), slow]), table([slow])
    assert line.values == table([record()])[0].values
    assert (line.statuses, alone.values) == ("1 inconclusive, 1 ok", {})


def test_a_cost_that_is_not_known_is_no_empty_cell(capsys: pytest.CaptureFixture[str]) -> None:
    slow = [i.model_copy(update={"duration_ns": 90_000_000}) if i.phase == "before" else i for i in record().iterations]
    fault = stored.Fault(kind="flap", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1)
    slowed = record(fault=fault, iterations=tuple(slow))
    for wide, words in (
        (200, r"0\.0364 +\? +27\.5 +39\.8 +\?"),
        (40, "T/T0 not known, mean 27.5 ms, p99 39.8 ms, lost not known"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(wide))
            ConsoleProgress(console())._print_summary(table([slowed]))
        assert re.search(words, re.sub(r"\n +", " ", capsys.readouterr().out)), wide
    out = StringIO()
    JsonProgress(out).ended(TRIAL, slowed, 1.0, True)
    event = json.loads(out.getvalue())
    assert event["lost_ms"] is event["slowdown"] is None
    assert event["not_known"].startswith("time lost and T/T0 not known: the iterations before the fault were slower")


def test_programs_are_told_of_a_nic_that_was_not_back() -> None:
    fault = stored.Fault(kind="nic_down", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1, heal_ns=2)
    last = record().iterations[-1].model_copy(update={"iteration": 4, "phase": "repaired", "t_ns": 2_000_002})
    core = {"0": {"events": [{"t_ns": 1, "kind": "path_down", "nic": "eth1"}]}}
    out = StringIO()
    made = record(fault=fault, iterations=(*record().iterations[:-1], last), core=core)
    JsonProgress(out).ended(TRIAL, made, 1.0, True)
    JsonProgress(out).ended(TRIAL, record(fault=fault), 1.0, True)
    told = [json.loads(line)["not_back"] for line in out.getvalue().splitlines()]
    assert told == ["eth1 not back within 90 ms", ""]


def test_a_trial_line_says_which_numbers_of_a_fault_that_comes_and_goes_are_means() -> None:
    fault = stored.Fault(kind="flap", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1)
    line = trial_line(record(fault=fault), 1.0)
    assert re.search(r"before 0\.1 GB/s .*mean after \S+ GB/s  T/T0 of means ", line)
    lasting = trial_line(record(fault=fault.model_copy(update={"kind": "nic_down"})), 1.0)
    assert "  after " in lasting and "  T/T0 1" in lasting and "mean" not in lasting


def test_a_cost_that_is_known_for_some_trials_only_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """As the page and the tables do: its median is not over all the trials that the line counts."""
    fault = stored.Fault(kind="flap", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1)
    slow = [i.model_copy(update={"duration_ns": 90_000_000}) if i.phase == "before" else i for i in record().iterations]
    known = [record(fault=fault, trial_id=f"known{repeat}", repeat=repeat) for repeat in (1, 2)]
    records = [*known, record(fault=fault, trial_id="slowed", iterations=tuple(slow))]
    (line,) = table(records)
    assert line.comes_and_goes and not table([record()])[0].comes_and_goes
    assert line.statuses == "3 ok" and line.known_in == {"slowdown": (2, 3), "lost_ms": (2, 3)}
    assert table([record(fault=fault)])[0].known_in == {}
    for wide, words in (
        (200, r"lost: beyond healthy iterations; \(2/3\): known in 2 of 3\b.* \S+ \(2/3\) +27\.5 +39\.8 +\S+ \(2/3\)"),
        (
            200,
            "before; a fault that comes and goes: median before, mean after, T/T0 mean over mean; mean, p99: of all ",
        ),
        (40, r"T/T0 \S+ \(known in 2 of 3\), mean 27\.5 ms, p99 39\.8 ms, lost \S+ ms \(known in 2 of 3\)"),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(wide))
            ConsoleProgress(console())._print_summary([line])
        assert re.search(words, re.sub(r"\s+", " ", capsys.readouterr().out)), wide


def test_the_title_explains_what_the_cells_show(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known in so few that there is no median, a cell has "?" without a count: the title had it the other way round."""
    fault = stored.Fault(kind="flap", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1)
    slow = [i.model_copy(update={"duration_ns": 90_000_000}) if i.phase == "before" else i for i in record().iterations]
    slowed = [record(fault=fault, trial_id=f"slowed{n}", repeat=n + 1, iterations=tuple(slow)) for n in range(3)]
    monkeypatch.setenv("COLUMNS", "200")
    (line,) = table([record(fault=fault, trial_id="known"), *slowed])
    assert line.known_in["lost_ms"] == (1, 4) and "lost_ms" not in line.values
    ConsoleProgress(console())._print_summary([line])
    said = capsys.readouterr().out
    assert "?: not known" in said and "(1/4)" not in said


@pytest.mark.parametrize(("columns", "shown"), [(200, True), (62, False)])
def test_mean_and_p99_stand_beside_the_median_where_there_is_room(
    columns: int, shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    ConsoleProgress(console())._print_summary(table([record()]))
    said = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert ("T/T0 mean p99 " in said) is shown and " hit after T/T0 " in said
    assert ("mean, p99: of all iterations since the fault" in said) is shown
    assert "p99" not in trial_line(record(), 1.0)


def test_a_speed_after_the_repair_that_one_trial_has_is_marked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another trial of the cell was over before everything was healed."""
    fault = stored.Fault(kind="nic_down", host="host1", nic="eth1", t_before_ns=1, t_after_ns=1)
    last = record().iterations[-1]
    again = last.model_copy(update={"iteration": last.iteration + 1, "phase": "repaired"})
    repaired = record(fault=fault, trial_id="repaired", iterations=(*record().iterations, again))
    both = [record(fault=fault), repaired]
    (line,), (alone,) = table(both), table([repaired])
    assert (line.known_in, alone.known_in) == ({"repaired_gbs": (1, 2)}, {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        ConsoleProgress(console())._print_summary([line])
    assert "0.0667 (1/2)" in capsys.readouterr().out
    (on_the_page,) = headline(trial_frame([load_folder(stored_run(tmp_path, "healed", *both))]))
    assert on_the_page.known_in(METRICS["repaired_gbs"]) == "known in 1 of 2"


@pytest.mark.parametrize(
    ("points", "heading"),
    [
        (["dtype=int8", "dtype=float32"], "axes"),
        (["flap", "nic_down"], "fault"),
        (["flap dtype=int8", "healthy dtype=int8"], "fault, axes"),
    ],
)
def test_a_heading_says_what_its_column_holds(
    points: list[str], heading: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (line,) = table([record()])
    ConsoleProgress(console())._print_summary([line._replace(points=each) for each in points])
    assert re.search(rf"system +{heading} +trials", capsys.readouterr().out)
