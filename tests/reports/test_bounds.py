"""Bounds: what an experiment promises, held against made-up runs; missed, held and unmeasured are told apart."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from synthetic_run import make_run

from harness.errors import ExitCode
from harness.sweep.summary import with_bounds
from reports.bounds import Held, held, held_in
from reports.headline import headline
from reports.load import load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.report import write_report

GAP = "; not measured: 1 other cell, first balance at 64MiB, all_reduce, nic_down"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), sizes={1 << 20: 8, 64 << 20: 6}, repeats=3)


@pytest.fixture(scope="module")
def frame(folder: Path) -> pd.DataFrame:
    return trial_frame([load_folder(folder)])


def met(frame: pd.DataFrame, **bound: Any) -> list[bool | None]:
    return [one.met for one in held(frame, {"bound": [bound]})]


@pytest.mark.parametrize(
    ("bound", "word"),
    [
        ({"metric": "slowdown", "system": "balance", "max": 1.6}, True),
        ({"metric": "slowdown", "system": "balance", "max": 1.4}, False),
        ({"metric": "slowdown", "system": "balance", "min": 1.4, "max": 1.6}, True),
        ({"metric": "slowdown", "max": 1.6}, False),  # hot repair has about 2
        ({"metric": "slowdown", "system": "failstop", "max": 9.0}, None),  # it stopped
        ({"metric": "share", "size": "64MiB", "min": 0.9}, True),
        ({"metric": "share", "size": "64MiB", "min": 0.99}, False),
        ({"metric": "error_after_ms", "fault": "nic_down", "max": 5000}, True),
        ({"metric": "before_gbs", "min": 0.001, "of": "worst"}, True),
    ],
)
def test_a_bound_is_held_missed_or_not_measured(frame: pd.DataFrame, bound: dict[str, Any], word: bool | None) -> None:
    assert met(frame, **bound) == [word]


def test_the_worst_of_the_repeats_may_miss_what_their_median_holds(frame: pd.DataFrame) -> None:
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)]["slowdown"]
    between = (float(own.median()) + float(own.max())) / 2
    bound = {"metric": "slowdown", "system": "balance", "size": "64MiB", "max": between}
    assert met(frame, **bound) == [True]
    assert met(frame, **bound, of="worst") == [False]


def test_a_bound_on_every_trial_does_not_hold_if_one_is_not_known(frame: pd.DataFrame) -> None:
    own = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    partly = frame.assign(slowdown=frame["slowdown"].where(~(own & (frame["repeat"] == 1))))
    bound = {"metric": "slowdown", "system": "balance", "size": "64MiB"}
    (median,) = held(partly, {"bound": [bound | {"max": 1.6}]})
    assert median.met is True and ", 2 of 3 trials" in median.detail, "its median is known"
    (every,) = held(partly, {"bound": [bound | {"max": 1.6, "of": "worst"}]})
    assert every.met is None and "not measured: 1 trial of this one, first balance at 64MiB" in every.detail
    assert met(partly, **bound, max=1.4, of="worst") == [False], "one that is known misses it"


def test_inconclusive_trials_that_could_move_a_median_leave_its_bound_open(frame: pd.DataFrame) -> None:
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)]
    gone = own.assign(
        status=own["status"].where(own["repeat"] > 0, "inconclusive"),
        slowdown=own["slowdown"].where(own["repeat"] > 0),
    )
    bound = {"metric": "slowdown", "system": "balance", "size": "64MiB"}
    assert met(gone, **bound, max=1.6) == [True], "the median is one of the two that are known, or between them"
    assert met(gone, **bound, max=1.4) == [False]
    (one_of_two,) = held(gone[gone["repeat"] < 2], {"bound": [bound | {"max": 1.6}]})
    assert one_of_two.met is None and one_of_two.line.startswith("bound not measured everywhere: ")
    assert one_of_two.detail.endswith(
        "1 of 2 trials; the trials whose value is not known, or not well enough, decide it in 1 cell"
    )


def test_an_inconclusive_trial_could_add_to_a_total(frame: pd.DataFrame) -> None:
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].assign(wrong=[None, 0.0, 2.0])
    own["status"] = own["status"].where(own["repeat"] > 0, "inconclusive")
    assert met(own, metric="wrong", max=2) == [None] and met(own, metric="wrong", max=1) == [False]
    assert met(own, metric="wrong", min=2) == [True]


@pytest.mark.usefixtures("undrawn")
def test_an_open_bound_is_open_on_the_page_in_junit_and_in_the_exit_status(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sizes={1 << 20: 4}, repeats=2, counters=False)
    for path in folder.glob("trials/balance-*-r1/trial.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "inconclusive", "expected": False}))
    stored = json.loads((folder / "run.json").read_text())
    stored["experiment"]["bound"] = [{"metric": "slowdown", "system": "balance", "max": 1.6}]
    (folder / "run.json").write_text(json.dumps(stored))
    assert with_bounds(ExitCode.OK, [bound.met for bound in held_in(folder)]) is ExitCode.INCONCLUSIVE
    assert "decide it in 1 cell" in write_report(folder).read_text()
    (told,) = (t for t in json.loads((folder / "summary.json").read_text())["targets"] if "slowdown" in t["what"])
    assert told["met"] is None
    case = next(c for c in ElementTree.parse(folder / "junit.xml").iter("testcase") if c.get("classname") == "bound")
    assert [child.tag for child in case] == ["skipped"]


def test_what_was_not_watched_in_any_trial_is_a_gap_of_what_its_system_has_elsewhere(frame: pd.DataFrame) -> None:
    """Also of metrics that not every trial has; cells without a value that need none are counted, and never below 0."""
    gone = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    names = ["hit_cost_ms", "replayed_chunks", "slowdown", "after_gbs", "lost_ms"]
    made = frame.assign(status=frame["status"].where(~gone, "inconclusive"))
    made[names] = made[names].mask(gone)
    for name in names:
        (one,) = held(made, {"bound": [{"metric": name, "min": -1e9, "max": 1e9}]})
        assert one.met is None and "not measured: 1 other cell, first balance at 64MiB" in one.detail, name
        assert "-" not in one.detail.partition("no such value")[0].rpartition(";")[2]


@pytest.mark.parametrize(
    ("metric", "told", "why"),
    [
        ("recover_ms", {"several": True}, "several failures"),
        ("recover_most_ms", {"several": True}, "several failures"),
        ("stall_ms", {"several": True}, "several failures"),
        ("stall_ms", {"comes_and_goes": True}, "a fault that comes and goes"),
        ("hit_cost_ms", {"comes_and_goes": True}, "a fault that comes and goes"),
    ],
)
def test_a_metric_that_a_scenario_cannot_have_holds_no_bound_on_it(
    frame: pd.DataFrame, metric: str, told: dict[str, bool], why: str
) -> None:
    """It was held, beside cells that have no such value. A system that stops there, as expected, lacks none."""
    own = frame[frame["size_bytes"] == 64 << 20]
    other = own.assign(scenario="other", case="all_reduce, other", **told, **{metric: float("nan")})
    both = pd.concat([own, other])
    bound = {"metric": metric, "max": 1e9}
    (one,) = held(both, {"bound": [bound]})
    hint = f"; {metric} is of no scenario of {why}: name the faults that the bound is on"
    assert one.met is None and hint in one.detail
    assert "not measured: 2 other cells, first hot_repair at 64MiB, all_reduce, other" in one.detail
    assert met(both, **bound, fault="nic_down") == [True]
    stopped = both[(both["scenario"] == "nic_down") | (both["system"] == "failstop")]
    assert met(stopped, **bound) == [True]
    (alone,) = held(other, {"bound": [bound]})
    assert (alone.met, alone.measured) == (None, "nothing") and alone.detail.endswith(hint)
    (named,) = held(both, {"bound": [bound | {"fault": "other"}]})
    assert named.detail.endswith(f"; {metric} is of no scenario of {why}: leave this bound out"), "it names its fault"


@pytest.mark.parametrize("metric", ["replayed_chunks", "detect_ms", "slowdown"])
@pytest.mark.parametrize("of", ["worst", "median"])
def test_a_repeat_that_was_not_watched_is_missing_whichever_trials_have_the_metric(
    frame: pd.DataFrame, metric: str, of: str
) -> None:
    """What some trials have was held by the rest, while a comparison of the same trials left it open."""
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].assign(**{metric: 1.0})
    lost = own["repeat"] > 0
    made = own.assign(status=own["status"].mask(lost, "inconclusive"), **{metric: own[metric].mask(lost)})
    (one,) = held(made, {"bound": [{"metric": metric, "of": of, "max": 2}]})
    assert one.met is None and "1 of 3 trials" in one.detail
    (one,) = held(made, {"bound": [{"metric": metric, "of": of, "max": 0.5}]})
    assert one.met is (False if of == "worst" else None)


def test_a_system_of_which_no_trial_was_watched_may_have_what_others_have_under_the_same_fault(
    frame: pd.DataFrame,
) -> None:
    both = frame[frame["system"].isin(["balance", "hot_repair"])].assign(detect_ms=1.0)
    own = both["system"] == "balance"
    made = both.assign(status=both["status"].mask(own, "inconclusive"), detect_ms=both["detect_ms"].mask(own))
    bound = {"metric": "detect_ms", "max": 2}
    (one,) = held(made, {"bound": [bound]})
    assert one.met is None and "not measured: 2 other cells, first balance at 1MiB" in one.detail
    seen = own & (both["size_bytes"] == 1 << 20)
    assert met(made.assign(status=both["status"].mask(own & ~seen, "inconclusive")), **bound) == [True], "it has none"


def test_where_a_system_stops_under_one_fault_its_error_under_another_is_missing(frame: pd.DataFrame) -> None:
    """Its trials under the other were all inconclusive, and it goes on under a third one."""
    own = frame[frame["system"] == "failstop"]
    lost = own.assign(
        scenario="flaps", case="flaps", status="inconclusive", expected=False, error_after_ms=float("nan")
    )
    goes_on = own.assign(
        scenario="slow", case="slow", status="ok", expected=True, error_after_ms=float("nan"), after_ms=1.0
    )
    (one,) = held(pd.concat([own, lost, goes_on]), {"bound": [{"metric": "error_after_ms", "max": 1e9}]})
    assert one.met is None and "not measured: 2 other cells" in one.detail
    assert met(pd.concat([own, goes_on]), metric="error_after_ms", max=1e9) == [True]


def test_a_system_that_hung_where_it_was_to_stop_has_no_time_until_its_error(frame: pd.DataFrame) -> None:
    own = frame[frame["system"] == "failstop"]
    hung = own["size_bytes"] == 64 << 20
    made = own.assign(expected=~hung, error_after_ms=own["error_after_ms"].mask(hung))
    (one,) = held(made, {"bound": [{"metric": "error_after_ms", "max": 1e9}]})
    assert one.met is None and "not measured: 1 other cell, first failstop at 64MiB" in one.detail


def test_nothing_is_held_before_the_sweep_is_over(frame: pd.DataFrame) -> None:
    experiment = {"bound": [{"metric": "slowdown", "max": 9}, {"metric": "slowdown", "max": 1.4}]}
    found = held(frame, experiment, "the sweep has not finished")
    assert [one.met for one in found] == [None, False]
    assert all(one.detail.endswith("; the sweep has not finished") for one in found)


def test_times_from_an_effect_that_is_not_known_well_enough_hold_only_limits_beyond_their_error(
    frame: pd.DataFrame,
) -> None:
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)]
    made = own.assign(detect_ms=[1.0, 2.0, 3.0], effect_error_ms=[0.0, 14.0, 16.0])
    for of, held_by in (("median", 20), ("worst", 20)):
        bound = {"metric": "detect_ms", "of": of}
        assert met(made, **bound, max=held_by) == [True]
        (one,) = held(made, {"bound": [bound | {"max": 4}]})
        assert one.met is None and "not known, or not well enough, decide it in 1 cell" in one.detail
        assert one.detail.endswith(
            "; the effect is not known well enough in 2 trials: times from it may be wrong by 16 ms"
        )
        assert met(own.assign(detect_ms=[1.0, 2.0, 3.0]), **bound, max=4) == [True]
    assert met(made, metric="lost_ms", max=1e9) == [True], "it is no time from the effect"


def test_known_trials_without_a_median_are_not_called_unmeasured(frame: pd.DataFrame) -> None:
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)]
    low = own.assign(slowdown=own["slowdown"].where(own["repeat"] == 0))
    low = low.assign(disturbed_slowdown=own["repeat"] > 0, slowdown_reads_low=own["repeat"] > 0)
    (one,) = held(low, {"bound": [{"metric": "slowdown", "max": 9}]})
    assert (one.met, one.detail) == (None, "known in 1 of 3 trials, too few for a median")


def test_cells_and_trials_that_are_missing_are_counted_apart(frame: pd.DataFrame) -> None:
    gone = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    one = (frame["system"] == "hot_repair") & (frame["repeat"] == 1)
    partly = frame.assign(slowdown=frame["slowdown"].where(~(gone | one)))
    (every,) = held(partly, {"bound": [{"metric": "slowdown", "max": 9, "of": "worst"}]})
    cells = partly[partly["slowdown"].notna()].groupby(["system", "size_bytes", "case"]).ngroups
    missing = int((one & frame["slowdown"].notna()).sum())
    assert f"the worst of {cells} cells; not measured: 1 other cell and {missing} trials of these" in every.detail


def test_a_cost_that_is_not_known_is_a_gap_also_where_the_fault_was_healed(frame: pd.DataFrame) -> None:
    """A healed fault has iterations after the heal: these must not stand for the cost of a disturbed trial."""
    own = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    bound = {"metric": "lost_ms", "system": "balance", "max": 1e9}
    healed = frame.assign(repaired_ms=1.0, lost_ms=frame["lost_ms"].where(~own))
    unknown = healed.assign(disturbed=healed["disturbed"].where(~own, "slowed"))
    (gap,) = held(unknown, {"bound": [bound]})
    assert gap.met is None and "not measured: 1 other cell" in gap.detail
    assert met(healed.assign(after_ms=float("nan")), **bound) == [True], "healed before an iteration began"
    (known,) = held(healed.assign(after_ms=float("nan")), {"bound": [bound]})
    assert known.detail.endswith("; 1 other cell has no such value")


@pytest.mark.parametrize("of", ["worst", "median"])
def test_time_lost_that_was_seen_in_part_holds_no_limit(frame: pd.DataFrame, of: str) -> None:
    """A trial that ended before the cost of its fault was over lost that much or more: it was "held"."""
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].assign(lost_ms=[10.0, 20.0, 30.0])
    bound = {"metric": "lost_ms", "of": of}
    cut = own.assign(cost_goes_on=True)
    (one,) = held(cut, {"bound": [bound | {"max": 1000}]})
    assert one.met is None and one.line.startswith("bound not measured everywhere: ")
    assert one.detail.endswith(", 3 trials; trials that ended before the cost was over decide it in 1 cell")
    assert one.measured == ("30" if of == "worst" else "20")
    assert met(cut, **bound, max=9) == [False] and met(cut, **bound, min=5) == [True]
    assert met(own, **bound, max=1000) == [True]
    few = own.assign(cost_goes_on=own["repeat"] == 2)
    assert met(few, **bound, max=30) == [None if of == "worst" else True], "a median is one of the others"
    gone = few.assign(lost_ms=[float("nan"), 29.9, 30.0], disturbed=["slowed", "", ""])
    (both,) = held(gone, {"bound": [bound | {"max": 1000}]})
    why = "trials whose value is not known, or that ended before the cost was over decide it in 1 cell"
    assert both.met is None and why in both.detail


@pytest.mark.parametrize("metric", ["lost_ms", "hit_cost_ms", "after_gbs"])
def test_cells_that_stopped_or_are_healthy_are_none_without_a_value_of_those_that_went_on(
    frame: pd.DataFrame, metric: str
) -> None:
    """They were counted for metrics of some trials that went on, and not for those of all."""
    healthy = frame[frame["system"] == "balance"].assign(case="healthy", scenario="healthy", faulted=False)
    (one,) = held(pd.concat([frame, healthy.assign(**{metric: float("nan")})]), {"bound": [{"metric": metric}]})
    assert "no such value" not in one.detail
    went_on = frame["system"] == "hot_repair"
    lacking = frame.assign(after_ms=frame["after_ms"].mask(went_on), repaired_ms=1.0)
    lacking[metric] = lacking[metric].mask(went_on)
    (one,) = held(lacking, {"bound": [{"metric": metric}]})
    assert one.detail.endswith("; 2 other cells have no such value")


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ({"repaired_ms": 1.0}, "; 1 other cell has no such value"),
        ({}, GAP),
        ({"status": "failed", "expected": False}, GAP),
        ({"status": "inconclusive", "expected": False}, GAP),
        ({"status": "failed", "expected": True}, ""),
    ],
)
@pytest.mark.parametrize("systems", [["balance", "hot_repair"], ["balance"]])
def test_a_cell_without_iterations_after_the_fault_lacks_its_costs_as_it_lacks_its_slowdown(
    frame: pd.DataFrame, cell: dict[str, Any], told: str, systems: list[str]
) -> None:
    """The hit cost was not measured where T/T0 had no such value, or the other way round. Also of a size whose fault no
    other size met."""
    names = ["slowdown", "hit_cost_ms", "stall_ms"]
    own = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    for other in ("nic_down", "other"):
        made = frame.assign(scenario=frame["scenario"].where(own, other))
        made[[*names, "after_ms"]] = made[[*names, "after_ms"]].mask(own)
        made = made.assign(**{key: made[key].mask(own, value) for key, value in cell.items()})
        made = made[made["system"].isin(systems)]
        for name in names:
            (one,) = held(made, {"bound": [{"metric": name, "max": 1e9}]})
            assert one.detail.endswith((f", 3 trials{told}", f" cells{told}")), name
            assert one.met is (None if "not measured" in told else True)


@pytest.mark.parametrize("metric", ["slowdown", "after_gbs", "hit_cost_ms", "stall_ms"])
def test_a_system_that_stood_still_until_the_repair_holds_no_bound(frame: pd.DataFrame, metric: str) -> None:
    """It was not measured alone, and with a system that has a value the bound was held: the worst one passed."""
    own = frame["system"] == "balance"
    last = own & (frame["size_bytes"] == 64 << 20)
    lacking = ["slowdown", "after_gbs", "after_ms", "hit_cost_ms", "stall_ms"]

    def still(trials: "pd.Series[bool]") -> pd.DataFrame:
        made = frame.assign(until_repair=trials, repaired_ms=frame["before_ms"].where(trials))
        made[lacking] = made[lacking].mask(trials)
        return made

    def told(made: pd.DataFrame, **limits: Any) -> Held:
        (one,) = held(made, {"bound": [{"metric": metric, "min": -1e9, "max": 1e9} | limits]})
        return one

    why = "; in 3 trials, what was hit lasted until the repair"
    alone, beside = told(still(last)[last]), told(still(last))
    assert (alone.met, alone.measured, alone.detail) == (None, "nothing", f"none of 3 trials measured it{why}")
    assert beside.met is None and beside.line.startswith("bound not measured everywhere: ")
    assert beside.detail.endswith(f"{GAP}{why}")
    assert told(still(last), max=-1e9).met is False, "what others miss is missed"
    some = last & (frame["repeat"] < 2)
    for of in ("median", "worst"):
        assert told(still(some), of=of).met is None
        assert told(still(some), of=of).detail.endswith("; in 2 trials, what was hit lasted until the repair")
    assert told(still(last).assign(until_repair=False)).met is True, "healed before an iteration began: none was hit"


def test_a_bound_that_a_system_is_too_slow_to_be_judged_by_passes_nowhere(tmp_path: Path) -> None:
    """Neither the exit status nor JUnit nor the headline table."""
    folder = make_run(tmp_path, sizes={1 << 20: 4}, repeats=2, counters=False)
    for path in folder.glob("trials/balance-*/trial.json"):
        trial = json.loads(path.read_text())
        (hit,) = [each for each in trial["iterations"] if each["phase"] == "hit"]
        trial["fault"]["heal_ns"] = hit["t_ns"] + hit["duration_ns"]
        for each in trial["iterations"]:
            each["phase"] = "repaired" if each["phase"] == "after" else each["phase"]
        path.write_text(json.dumps(trial))
    stored = json.loads((folder / "run.json").read_text())
    stored["experiment"]["bound"] = [{"metric": "slowdown", "max": 9}]
    (folder / "run.json").write_text(json.dumps(stored))
    (one,) = held_in(folder)
    assert one.met is None and one.detail.endswith("; in 2 trials, what was hit lasted until the repair")
    assert with_bounds(ExitCode.OK, [one.met]) is ExitCode.INCONCLUSIVE
    assert "not measured everywhere" in write_report(folder).read_text()
    (told,) = (t for t in json.loads((folder / "summary.json").read_text())["targets"] if "slowdown" in t["what"])
    assert told["met"] is None
    case = next(c for c in ElementTree.parse(folder / "junit.xml").iter("testcase") if c.get("classname") == "bound")
    assert [child.tag for child in case] == ["skipped"]


def test_a_limit_is_told_as_it_was_written(frame: pd.DataFrame) -> None:
    (own,) = held(frame.assign(slowdown=1.0624), {"bound": [{"metric": "slowdown", "min": 0.12345, "max": 1.0625}]})
    assert (own.wanted, own.measured, own.met) == ("at least 0.12345 and at most 1.0625", "1.062", True)


def test_a_value_that_just_misses_its_bound_does_not_look_as_if_it_held(frame: pd.DataFrame) -> None:
    (own,) = held(frame.assign(slowdown=1.02041), {"bound": [{"metric": "slowdown", "max": 1.02}]})
    assert (own.met, own.measured) == (False, "1.0204")
    (own,) = held(frame.assign(slowdown=1.0199), {"bound": [{"metric": "slowdown", "max": 1.02}]})
    assert (own.met, own.measured) == (True, "1.02")


def test_a_bound_of_trials_that_were_not_selected_is_left_out(frame: pd.DataFrame) -> None:
    assert met(frame, metric="slowdown", size="8MiB", max=1.6) == []
    assert met(frame, metric="slowdown", axes={"dtype": "float16"}, max=1.6) == []
    assert held(frame, {"bound": "strange"}) == held(frame, {}) == []


def test_a_point_of_the_axes_is_a_cell_of_its_own(frame: pd.DataFrame) -> None:
    slower = frame.assign(points=[{"dtype": "float16"}] * len(frame), case="other", slowdown=frame["slowdown"] * 2)
    both = pd.concat([frame, slower], ignore_index=True)
    bound = {"metric": "slowdown", "system": "balance", "max": 1.6}
    assert met(both, **bound) == [False]
    assert met(both, **bound, axes={"dtype": "float16"}) == [False]
    (missed,) = held(both, {"bound": [bound]})
    assert "other" in missed.detail
    assert missed.line.startswith(
        "bound missed: slowdown (balance): T/T0: an iteration after the fault over one before"
    )


@pytest.mark.usefixtures("undrawn")
def test_a_missed_bound_stands_in_the_report(folder: Path) -> None:
    stored = json.loads((folder / "run.json").read_text())
    stored["experiment"]["bound"] = [{"metric": "slowdown", "system": "balance", "max": 1.4}]
    (folder / "run.json").write_text(json.dumps(stored))
    assert [bound.met for bound in held_in(folder)] == [False]
    assert "slowdown (balance): T/T0" in write_report(folder).read_text()
    summary = json.loads((folder / "summary.json").read_text())
    assert [t["met"] for t in summary["targets"] if t["what"].startswith("slowdown (balance)")] == [False]


def test_trials_that_something_else_slowed_neither_miss_a_bound_nor_hold_it(frame: pd.DataFrame) -> None:
    own = frame[frame["system"] == "balance"].iloc[:3]
    made = own.assign(lost_ms=[float("nan"), 23.3, 1681], disturbed=["slowed", "", ""], reads_low=[True, False, False])
    bound = {"metric": "lost_ms", "system": "balance"}
    assert met(made, **bound, max=400) == [None], "its median is 23 with a low one, and 1681 with a high one"
    assert met(made, **bound, max=20) == [False] and met(made, **bound, max=1700) == [True]
    (line,) = held(made, {"bound": [bound | {"max": 400}]})
    assert (line.met, line.detail) == (None, "known in 2 of 3 trials, too few for a median")
    measured = [held(made, {"bound": [bound | {"max": most}]})[0].measured for most in (20, 1700)]
    assert measured == ["at least 23.3", "at most 1681"]


def test_a_missed_bound_tells_the_worst_cell_of_the_table_and_the_one_that_misses_it_surely(
    frame: pd.DataFrame,
) -> None:
    own = (frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)
    doubted = own & (frame["repeat"] < 1)
    worse = frame.assign(
        slowdown=frame["slowdown"].mask(doubted).where(~own | doubted, 1.102 + 0.294 * frame["repeat"]),
        disturbed=frame["disturbed"].mask(doubted, "slowed"),
        disturbed_slowdown=frame["disturbed_slowdown"] | doubted,
    )
    (one,) = held(worse, {"bound": [{"metric": "slowdown", "system": "balance", "max": 1.4}]})
    assert (one.met, one.measured) == (False, "1.543")
    assert one.detail.startswith("balance at 64MiB, all_reduce, nic_down, 2 of 3 trials, the worst of 2 cells; ")
    assert "decide it in 1 cell, but not in balance at 1MiB, all_reduce, nic_down, 3 trials, with 1." in one.detail


def test_a_recovery_time_of_0_may_hide_as_much_as_its_longest_pause(frame: pd.DataFrame) -> None:
    """No stop was longer than healthy pauses, of which the longest after the effect took 8 ms."""
    own = frame[frame["system"] == "balance"].assign(recover_ms=0.0, recover_most_ms=8.0, by_mean=False)
    limits = [{"max": most, "of": of} for most in (5, 10) for of in ("median", "worst")]
    assert [met(own, metric="recover_ms", **limit) for limit in limits] == [[None], [None], [True], [True]]
    (line,) = held(own, {"bound": [{"metric": "recover_ms", "max": 5}]})
    assert "recover_ms is 0 or more there, and recover_most_ms up to 8" in line.detail
    assert "value is not known" not in line.detail


@pytest.mark.parametrize(
    ("mean_ms", "limits", "results"),
    [
        (0.0, [{"max": 1}, {"max": 9}, {"max": 10}, {"min": 1}], [None, None, True, None]),
        (11.0, [{"max": 5}, {"max": 11}, {"min": 0}, {"min": 5}, {"min": 12}], [None, True, True, None, False]),
    ],
)
def test_a_recovery_time_by_the_mean_alone_may_be_anything_up_to_it(
    frame: pd.DataFrame, mean_ms: float, limits: list[dict[str, float]], results: list[bool | None]
) -> None:
    """It misses stops of less than 10 ms, and takes pauses for stops."""
    own = frame[frame["system"] == "balance"]
    by_mean = own.assign(recover_ms=mean_ms, recover_most_ms=max(mean_ms, 10.0), by_mean=True)
    for of in ("median", "worst"):
        assert [met(by_mean, metric="recover_ms", of=of, **limit) for limit in limits] == [[each] for each in results]


def test_an_inconclusive_trial_of_a_cell_that_stops_is_no_gap(frame: pd.DataFrame) -> None:
    """Whatever the system did under another fault."""
    own = frame[frame["system"] == "failstop"]
    other = own.assign(case="all_reduce, hole", scenario="hole", status="ok", expected=False, slowdown=2.0)
    part = own.assign(status=own["status"].mask(own["repeat"] == 0, "inconclusive"))
    (one,) = held(pd.concat([part, other]), {"bound": [{"metric": "slowdown", "max": 3}]})
    assert one.met is True, one.detail
    none = own.assign(status="inconclusive")
    (one,) = held(pd.concat([none, other]), {"bound": [{"metric": "slowdown", "max": 3}]})
    assert one.met is None, "where its cell says nothing, what the system did elsewhere decides"


def test_what_a_system_has_under_a_fault_at_one_size_is_missing_at_another(frame: pd.DataFrame) -> None:
    """A bound on recovery was held by one of two sizes, though iterations of the other were too short to tell."""
    known = frame.assign(recover_ms=3.0, recover_most_ms=4.0, by_mean=False)
    bound = {"metric": "recover_ms", "system": "balance", "max": 5}
    assert met(known, **bound) == [True]
    partly = known.assign(recover_ms=known["recover_ms"].where(known["size_bytes"] > 1 << 20))
    assert met(partly, **bound) == [None]
    assert met(partly, **bound | {"size": "64MiB"}) == [True]
    assert met(known.assign(recover_ms=known["recover_ms"].where(known["system"] != "hot_repair")), **bound) == [True]
    share = frame.assign(share=frame["share"].where(frame["size_bytes"] > 1 << 20))
    assert met(share, metric="share", system="balance", min=0.5) == [True], "the rate is no limit of the small size"


@pytest.mark.parametrize("of", ["median", "worst"])
def test_what_a_trial_ended_before_is_known_by_its_lower_end(frame: pd.DataFrame, of: str) -> None:
    own = frame[(frame["system"] == "balance") & frame["faulted"] & (frame["size_bytes"] == 64 << 20)]
    late = own.assign(return_ms=float("nan"), exceeds=[{"return_ms": 4017.0}] * len(own))
    bound = {"metric": "return_ms", "of": of}
    (missed,) = held(late, {"bound": [bound | {"max": 500}]})
    assert (missed.met, missed.measured) == (False, "at least 4017")
    (open_,) = held(late, {"bound": [bound | {"max": 10000}]})
    assert (open_.met, open_.measured) == (None, "at least 4017")
    assert "trials that ended before return_ms was known decide it in 1 cell" in open_.detail
    assert met(late, **bound, min=1000) == [True], "and more than a lower limit is certain"
    assert (headline(late)[0].unknown(METRICS["return_ms"]), headline(late)[0]["return_ms"].n) == (len(own), 0)


def test_a_median_bears_the_trials_that_ended_before_a_value_was_known(frame: pd.DataFrame) -> None:
    own = frame[(frame["system"] == "balance") & frame["faulted"] & (frame["size_bytes"] == 64 << 20)].head(3)
    one = own.assign(return_ms=[4.0, 5.0, float("nan")], exceeds=[{}, {}, {"return_ms": 4017.0}])
    bound = {"metric": "return_ms", "max": 500}
    assert met(one, **bound) == [True], "the median is between 4 and 5, or 5"
    assert met(one, **bound, of="worst") == [False]
    two = own.assign(return_ms=[4.0, float("nan"), float("nan")], exceeds=[{}, *[{"return_ms": 4017.0}] * 2])
    assert met(two, **bound) == [False]
    assert met(two.assign(exceeds=[{}, *[{"return_ms": 30.0}] * 2]), **bound) == [None], "it may be more"
