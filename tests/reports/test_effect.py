"""Times from an effect that a busy machine left uncertain: no output has them as values."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from reports.bounds import held
from reports.compare import compare
from reports.effect import effect_error_ms, error_text
from reports.headline import headline
from reports.load import LoadedRun, load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.metrics.view import View
from reports.report import _story, write_report
from reports.rules import DEFAULT
from reports.summary import sentences

MS = 1_000_000


def drawn_out(path: Path, injected_ms: int, error_after_ms: int) -> Path:
    """A run of a system that stops, whose injections took so long that each error may have come at once."""
    folder = make_run(path, sizes={1 << 20: 4}, repeats=3, systems={"failstop": 0})
    for file in folder.glob("trials/*/trial.json"):
        trial = json.loads(file.read_text())
        begin = trial["fault"]["t_before_ns"]
        trial["fault"]["t_after_ns"] = begin + injected_ms * MS
        half = injected_ms * MS // 2
        trial["evidence"]["effects"] = [{"t_ns": begin + half, "error_ns": half}]
        trial["error"] |= {"t_ns": begin + error_after_ms * MS, "after_fault_ns": error_after_ms * MS}
        file.write_text(json.dumps(trial))
    return folder


def loaded_with(path: Path, injected_ms: int, error_after_ms: int) -> LoadedRun:
    return load_folder(drawn_out(path, injected_ms, error_after_ms))


def test_an_error_that_may_have_come_at_once_is_no_number_anywhere(tmp_path: Path) -> None:
    """Of an injection of 180 ms, an error 193 ms after its beginning came 13 to 193 ms after the fault."""
    folder = drawn_out(tmp_path, 180, 193)
    run = load_folder(folder)
    frame = trial_frame([run])
    assert frame["error_after_ms"].isna().all() and frame["detect_ms"].isna().all()
    (line,) = headline(frame)
    assert line["error_after_ms"].n == 0 and line.unknown(METRICS["error_after_ms"]) == 3
    assert line.median_not_known(METRICS["error_after_ms"]) == "not known"
    assert all("not known, effect at" in _story(run, trial) for trial in run.trials)
    assert all("from the fault to the error: at most 193 ms, effect at" in _story(run, trial) for trial in run.trials)
    told = " ".join(sentences(frame, []))
    assert "when is not known in 3 of 3 trials" in told and "ended without an error" not in told
    page = write_report(folder).read_text()
    numbers, _, _ = page.partition('<section id="trials">')
    assert "193" not in (folder / "table.csv").read_text() and "at most 193 ms" not in numbers


@pytest.mark.parametrize(("after_ms", "told"), [(193, "at most 193"), (400, "400")])
def test_a_page_says_of_one_error_when_it_came_as_its_reason_says_it(tmp_path: Path, after_ms: int, told: str) -> None:
    folder = drawn_out(tmp_path, 180, after_ms)
    page = write_report(folder).read_text()
    assert set(re.findall(r"\(((?:at most )?[\d.]+) ms after the fault\)</dd>", page)) == {told}


def test_an_error_before_the_fault_is_told_as_such(tmp_path: Path) -> None:
    (trial, *_) = loaded_with(tmp_path, 180, -3).trials
    assert error_text(trial) == "before the fault"
    assert error_text(trial.model_copy(update={"error": None})) == ""


def test_no_bound_and_no_rule_is_judged_by_such_a_time(tmp_path: Path) -> None:
    quiet = trial_frame([loaded_with(tmp_path / "quiet", 4, 60)])
    busy = trial_frame([loaded_with(tmp_path / "busy", 180, 193)])
    for limit in ({"max": 100}, {"min": 100}, {"min": 20, "max": 5000}):
        for of in ("median", "worst"):
            (bound,) = held(busy, {"bound": [{"metric": "error_after_ms", "of": of} | limit]})
            assert bound.met is None and "0" not in bound.measured
    found = next(f for f in compare(quiet, busy, DEFAULT) if f.metric == "error_after_ms")
    assert found.conclusion == "not known in NEW" and found.unknown


@pytest.mark.parametrize("of", ["median", "worst"])
@pytest.mark.parametrize(
    ("limit", "met", "measured"),
    [
        ({"max": 193}, True, "at most 193"),
        ({"max": 12}, False, "at least 13"),
        ({"min": 13}, True, "at least 13"),
        ({"min": 194}, False, "at most 193"),
        ({"min": 13, "max": 193}, True, "at most 193"),
    ],
)
def test_a_bound_is_judged_where_both_ends_of_such_a_time_lie_on_one_side_of_it(
    tmp_path: Path, limit: dict[str, float], met: bool, measured: str, of: str
) -> None:
    """The error came 13 to 193 ms after the fault: 193 is counted from the beginning of its injection."""
    busy = trial_frame([loaded_with(tmp_path, 180, 193)])
    (bound,) = held(busy, {"bound": [{"metric": "error_after_ms", "of": of} | limit]})
    assert (bound.met, bound.measured) == (met, measured) and "none of 3 trials" in bound.detail


def test_known_values_do_not_hide_uncertain_ones_that_miss_a_bound(tmp_path: Path) -> None:
    """One error came after 60 ms, two after 80 to 200 ms: the median and the worst are above 70 ms, at most 200."""
    frame = trial_frame([loaded_with(tmp_path, 4, 60)])
    unsure = frame.index > 0
    made = frame.assign(
        error_after_ms=frame["error_after_ms"].mask(unsure),
        unsure=[{"error_after_ms": 200.0} if at else {} for at in unsure],
        effect_error_ms=[120.0 if at else 0.0 for at in unsure],
    )
    limits = [{"max": most, "of": of} for most in (70, 100, 200) for of in ("median", "worst")]
    found = held(made, {"bound": [{"metric": "error_after_ms"} | limit for limit in limits]})
    assert [bound.met for bound in found] == [False, False, None, None, True, True]
    assert found[0].measured == found[1].measured == "at least 80"


@pytest.mark.parametrize(("injected_ms", "after_ms", "known"), [(8, 1, True), (90, 193, True), (97, 193, False)])
def test_a_time_counts_if_it_is_more_than_twice_the_interval_of_an_uncertain_effect(
    tmp_path: Path, injected_ms: int, after_ms: int, known: bool
) -> None:
    run = loaded_with(tmp_path, injected_ms, after_ms)
    metric = METRICS["error_after_ms"]
    for trial in run.trials:
        value = metric.value(View(trial))
        assert value == (after_ms if known else None)
        assert metric.is_unsure(View(trial)) is not known
        assert (effect_error_ms(trial) > 0) == (injected_ms > 10)
        assert not METRICS["lost_ms"].is_unsure(View(trial)), "it is no time from the effect"


def test_a_bound_holds_where_no_value_of_an_uncertain_trial_could_miss_it(tmp_path: Path) -> None:
    frame = trial_frame([loaded_with(tmp_path, 4, 60)])
    one = frame.index == 0
    unsure = pd.Series([{"error_after_ms": 193.0} if at else {} for at in one])
    errors_ms = pd.Series([180.0 if at else 0.0 for at in one])
    made = frame.assign(error_after_ms=frame["error_after_ms"].mask(one), unsure=unsure, effect_error_ms=errors_ms)
    bounds = {"bound": [{"metric": "error_after_ms", "max": 100, "of": of} for of in ("median", "worst")]}
    assert [bound.met for bound in held(made, bounds)] == [True, None]
    assert replace(headline(made)[0]).known_in(METRICS["error_after_ms"]) == "known in 2 of 3"
