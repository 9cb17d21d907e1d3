"""Plain words and numbers: what is said is what the frame holds, and no more."""

import re
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from reports import wording
from reports.headline import headline
from reports.load import load_folder
from reports.measures import trial_frame
from reports.page import number
from reports.paired import _compared
from reports.setting import Setting
from reports.stats import Difference
from reports.stolen import stolen_time
from reports.summary import scope, sentences
from reports.targets import targets
from reports.trial import Evidence, Trial


@pytest.fixture
def frame(tmp_path: Path) -> pd.DataFrame:
    return trial_frame([load_folder(make_run(tmp_path, repeats=5, sizes={1 << 20: 4, 8 << 20: 4}, counters=False))])


def doubtful(reason: str) -> Trial:
    values = {"trial_id": "b-1MiB-x-r0", "system": "b", "mode": 2, "collective": "all_reduce", "size_bytes": 1}
    values |= {"dtype": "float32", "op": "sum", "place": "out", "scenario": "x", "repeat": 0, "attempt": 1}
    return Trial.model_validate(values | {"status": "inconclusive", "expected": False, "reason": reason})


def told(frame: pd.DataFrame) -> str:
    return " ".join(sentences(frame, [scope(frame, Setting(3, 3, 500e6))]))


def test_the_headline_holds_medians_over_repeats(frame: pd.DataFrame) -> None:
    for line in headline(frame):
        own = frame[(frame["system"] == line.system) & (frame["size_bytes"] == line.size_bytes)]
        assert line["before_gbs"].median == pytest.approx(own["before_gbs"].median())
        assert line["share"].median == pytest.approx((own["before_gbs"] / 0.1875).median())
        assert line["slowdown"].n == (0 if line.mode == 0 else 5)
        assert line.as_expected


def test_what_was_run_names_virtual_machines_and_soft_rdma(frame: pd.DataFrame) -> None:
    assert "Soft-RoCE" not in told(frame)
    said = scope(frame, Setting(3, 2, 200e6, virtual=True, soft_rdma=True))
    assert "over 3 virtual machines with 2 NICs of 200 Mbit/s each" in said
    assert said.endswith("Their RDMA is Soft-RoCE (rxe): nothing here is the speed of RDMA hardware.")


def test_a_difference_is_told_only_where_it_shows(frame: pd.DataFrame) -> None:
    assert "hot_repair took 1.3" in told(frame)
    same = frame.assign(after_ms=frame["after_ms"].where(frame["mode"] == 0, [100 + n % 3 for n in range(len(frame))]))
    assert "no difference shown between hot_repair and balance" in told(same)


def test_an_interval_that_shows_a_difference_does_not_end_at_none() -> None:
    found = Difference(1.018, 1.0006, 1.0357, 3, "more")
    text = _compared(found, "sim", "balance", "")
    assert "sim took 1.02 times as long as balance (interval 1.001 to 1.04, 3 pairs)" in text


def test_systems_of_different_runs_are_no_pair(frame: pd.DataFrame) -> None:
    apart = frame.assign(run=frame["system"])
    assert "Too few repeats" not in told(apart)
    assert "Systems of different runs are not compared here" in told(apart)
    assert "Systems of different runs" not in told(frame)


def test_the_first_of_several_failures_is_the_first_that_ran(frame: pd.DataFrame) -> None:
    odd = frame.copy()
    places = odd.index[odd["system"] == "balance"][:2]
    odd.loc[places, "expected"] = False
    odd.loc[places, "reason"] = ["ran later", "ran first"]
    odd.loc[places, "began_ns"] = [20, 10]
    assert "2 trials did not end as expected" in told(odd) and ": ran first)" in told(odd)


def test_one_failure_among_many_is_told(frame: pd.DataFrame) -> None:
    odd = frame.copy()
    place = odd.index[odd["system"] == "balance"][0]
    odd.loc[place, "status"] = "failed"
    odd.loc[place, "expected"] = False
    odd.loc[place, "reason"] = "rank 0: out of memory"
    first = f"{odd.loc[place, 'trial_id']}: rank 0: out of memory"
    assert f"1 trial did not end as expected (first: {first})" in told(odd)
    assert "1 of its 10 faulted trials failed" in told(odd)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "\N{EN DASH}"),
        (float("nan"), "\N{EN DASH}"),
        (0, "0"),
        (-1e-12, "0"),
        (0.18234, "0.182"),
        (34.26, "34.3"),
        (1234.5, "1234"),
        (12345.6, "12\u202f346"),
        (123456.7, "123\u202f457"),
        (-1234.5, "\N{MINUS SIGN}1234"),
        (-12345.6, "\N{MINUS SIGN}12\u202f346"),
        (-2.5, "\N{MINUS SIGN}2.5"),
        (0.00286511, "0.00287"),
        (0.04475007, "0.0448"),
        (0.03114973, "0.0311"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text
    assert text.replace("\u202f", "") == wording.number(value)


def test_attempts_that_were_run_again_are_told(frame: pd.DataFrame) -> None:
    earlier = [doubtful("the fault missed")] * 14 + [doubtful("host1 did not heal")]
    text = " ".join(sentences(frame, [], earlier))
    assert "15 earlier attempts were inconclusive" in text
    assert "Reasons: the fault missed (14 times); host1 did not heal." in text
    assert "inconclusive" not in told(frame)


def test_a_system_is_called_by_its_schedule(frame: pd.DataFrame) -> None:
    named = frame.assign(algo=frame["mode"].map({0: "", 1: "auto", 2: "forest"}).fillna(""))
    text = told(named)
    assert "balance (the schedule forest) went on" in text
    assert "hot_repair (the planner's schedules) went on" in text
    assert "failstop (fail-stop, as NCCL is) stopped" in text


def test_several_scenarios_are_told_by_name_and_have_no_common_median(tmp_path: Path) -> None:
    one = trial_frame([load_folder(make_run(tmp_path, sizes={1 << 20: 4}, repeats=3, counters=False))])
    other = one.assign(scenario="slow", case=one["case"] + "!", slowdown=one["slowdown"] * 2)
    gone = one.assign(scenario="gone", case=one["case"] + "?", slowdown=float("nan"))
    text = told(pd.concat([one, other, gone]))
    balance = one[one["system"] == "balance"]["slowdown"].median()
    assert (
        f"balance (Balance over all NICs left) went on in 3 of 3 scenarios, T/T0 from {balance:.2f} (nic_down" in text
    )
    lost = r" and lost \S+ ms against healthy iterations over the whole trial \(at 1MiB, at most \S+ ms\)"
    rest = "; 3 of 9 trials have no comparable iterations both before and after the fault"
    assert re.search(rf"to {2 * balance:.2f} \(slow, 1MiB\){lost}{rest}", text), text
    same = told(pd.concat([one, other.assign(slowdown=one["slowdown"] * 1.0001), gone]))
    assert f", T/T0 {balance:.2f} (nic_down, 1MiB; slow, 1MiB) and lost" in same, "no span of one number"
    slowed = gone.assign(
        disturbed=gone["status"].map({"ok": "slowed"}).fillna(""), disturbed_slowdown=gone["status"] == "ok"
    )
    text = told(pd.concat([one, other, slowed]))
    assert "went on in 3 of 3 scenarios" in text and re.search(
        rf"\(slow, 1MiB\){lost}; the T/T0 of 1 more is not", text
    )
    assert "its T/T0 is not known, because something else slowed" in told(
        pd.concat([slowed, slowed.assign(scenario="x", case=slowed["case"] + "x")])
    )
    lost_only = gone.assign(disturbed="slowed")  # their T/T0 is missing for another reason
    text = told(pd.concat([lost_only, lost_only.assign(scenario="x", case=lost_only["case"] + "x")]))
    assert (
        "6 of 6 trials have no comparable iterations both before and after the fault" in text
        and "is not known" not in text
    )
    assert re.search(r"balance \(.*?\) went on in 2 of 2 scenarios and lost \S+ ms against healthy", text), text
    alone = told(slowed)
    assert (
        "balance (Balance over all NICs left) went on and lost " in alone
        and "; how fast, against healthy iterations, is not known" in alone
    )
    assert "something else slowed these in 3 of 3 trials" in alone and "no trial has iterations" not in alone


def test_healthy_bandwidth_is_one_target_whatever_breaks_later(tmp_path: Path) -> None:
    one = trial_frame([load_folder(make_run(tmp_path, sizes={1 << 20: 4}, repeats=3, counters=False))])
    other = one.assign(scenario="slow", case=one["case"] + "!", loses_nic=False, hit_cost_ms=1e6, model=None)
    found = targets(headline(pd.concat([one, other])))
    assert sum(target.what.startswith("Healthy") for target in found) == 1
    assert all("1000000" not in target.measured for target in found), "the promise is about a lost NIC"


def test_processors_that_were_taken_are_told() -> None:
    trials = [doubtful("").model_copy(update={"evidence": Evidence(stolen_share=s)}) for s in (None, 0.01, 0.2, 0.41)]
    said = stolen_time(trials)
    assert "more than 5 % of a host's processor time in 2 of 3 trials that were watched, 41 % in the worst" in said
    assert stolen_time(trials[:2]) == "" == stolen_time([])


def test_pairs_of_systems_with_too_few_repeats_are_one_sentence(tmp_path: Path) -> None:
    few = " ".join(sentences(trial_frame([load_folder(make_run(tmp_path, repeats=2, sizes={1 << 20: 4}))]), []))
    assert few.count("Too few repeats") == 1
    assert "to say which of two systems is faster after the fault, in 1 case;" in few


def test_pairs_of_which_some_have_no_value_are_not_called_too_few_repeats(tmp_path: Path) -> None:
    frame = trial_frame([load_folder(make_run(tmp_path, repeats=3, sizes={1 << 20: 4}))])
    unknown = (frame["system"] == "balance") & (frame["repeat"] == 1)
    said = " ".join(sentences(frame.assign(after_ms=frame["after_ms"].mask(unknown)), []))
    assert "Too few repeats" not in said
    which = "to say which of two systems is faster after the fault"
    assert f"Too few pairs {which}, in 1 case: 2 of 3 are known; it takes at least 3." in said


def test_a_trial_that_hung_is_no_error_that_was_told(frame: pd.DataFrame) -> None:
    assert "each of its 10 faulted trials ended with an error, at the latest" in told(frame)
    # The first table tells that of its own size only.
    assert "ms after the fault over all sizes." in told(frame)
    none = frame.assign(error_after_ms=float("nan"))
    assert "each of its 10 faulted trials ended without an error: it hung, or its" in told(none)
    frame.loc[frame[frame["system"] == "failstop"].index[0], "error_after_ms"] = float("nan")
    assert "stopped: 9 of its 10 faulted trials with an error, at the latest" in told(frame)
    assert "ms after the fault over all sizes, 1 without." in told(frame)


def test_time_lost_is_told_by_size_as_the_slowdown_is(tmp_path: Path) -> None:
    told = sentences(trial_frame([load_folder(make_run(tmp_path, repeats=2, counters=False))]), [])
    (own,) = [text for text in told if text.startswith("balance (")]
    assert own.partition(" and lost ")[2].count(" ms at ") == 3, own
