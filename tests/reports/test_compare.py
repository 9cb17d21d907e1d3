"""Comparisons: a regression is told where the repeats show one, and nowhere else."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_run import make_run

from reports.change import Change, change
from reports.compare import Finding, _counts, compare, is_open, regressions
from reports.compared import as_json, cells, told
from reports.errors import ReportError
from reports.load import LoadedRun, load_folder
from reports.machines import differences
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.rules import DEFAULT, Rules, load_rules, rules_of


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two runs of one experiment that differ by chance alone."""
    folders = [
        make_run(tmp_path_factory.mktemp("runs"), sizes={1 << 20: 8}, repeats=4, counters=False, seed=seed)
        for seed in (1, 2)
    ]
    first, second = (trial_frame([load_folder(folder)]) for folder in folders)
    return first, second


def rules(**rule: object) -> Rules:
    return Rules.model_validate({"rule": [rule]})


def test_a_congestion_control_that_was_not_noted_is_no_difference(tmp_path: Path) -> None:
    def run(name: str, congestion_control: str | None) -> LoadedRun:
        loaded = load_folder(make_run(tmp_path / name, sizes={1 << 20: 4}, repeats=1, counters=False))
        noted = {"cluster": {"congestion_control": congestion_control}} if congestion_control else {}
        provenance = loaded.run.provenance | noted
        return replace(loaded, run=loaded.run.model_copy(update={"provenance": provenance}), label=name)

    older, cubic, bbr = run("older", None), run("newer", "cubic"), run("cloud", "bbr")
    assert differences([older, cubic]) == []
    (found,) = differences([older, cubic, bbr])
    assert found.told() == "cluster: congestion control: not known (older), cubic (newer), bbr (cloud)"


def test_axes_limits_and_retries_differ_but_decide_no_result(tmp_path: Path) -> None:
    def run(name: str, retries: int, limit: str, *axes: dict[str, object]) -> LoadedRun:
        loaded = load_folder(make_run(tmp_path / name, sizes={1 << 20: 4}, repeats=1, counters=False))
        sweep = {"repeats": retries, "retries": retries, "limits": {"trial": limit}}
        experiment = loaded.run.experiment | {"sweep": sweep, "axis": list(axes)}
        return replace(loaded, run=loaded.run.model_copy(update={"experiment": experiment}), label=name)

    both = run("a", 2, "120 s", {"key": "workload.collective", "values": ["all_reduce", "all_gather"]})
    found = differences([both, run("b", 1, "60 s")])
    assert [one.told() for one in found] == [
        "experiment: sweep.retries: 2 (a), 1 (b)",
        "experiment: sweep.limits.trial: 120 s (a), 60 s (b)",
        "experiment: axes: workload.collective = all_reduce, all_gather (a), none (b)",
    ]
    assert not any(one.decides_results for one in found)


def test_of_other_workloads_what_only_one_kind_has_is_no_difference(tmp_path: Path) -> None:
    def run(name: str, **workload: object) -> LoadedRun:
        loaded = load_folder(make_run(tmp_path / name, sizes={1 << 20: 4}, repeats=1, counters=False))
        experiment = loaded.run.experiment | {"workload": workload}
        return replace(loaded, run=loaded.run.model_copy(update={"experiment": experiment}), label=name)

    small, large = (run(name, kind="collective", warmup=1, sizes=[name]) for name in ("1MiB", "8MiB"))
    served = run("served", kind="serving", warmup=2, requests=10)
    assert [one.told() for one in differences([small, large, served])] == [
        "experiment: workload.kind: collective (1MiB, 8MiB), serving (served)",
        "experiment: workload.warmup: 1 (1MiB, 8MiB), 2 (served)",
        "experiment: workload.sizes: 1MiB (1MiB), 8MiB (8MiB)",
    ]


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def test_two_runs_of_the_same_show_no_regression(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    found = compare(*frames, DEFAULT)
    assert regressions(found) == []
    worse = {"worse, not beyond the tolerance", "worse, not shown to be beyond it"}
    assert {f.conclusion for f in found} <= {"same", "no difference shown", "better"} | worse
    assert f"No regression is shown in {len(found)} comparisons." in told(found, [])


def test_every_metric_is_compared_unless_its_record_says_otherwise() -> None:
    mine = Metric("mine_ms", "ms", "lower", "x", lambda view: None)
    records = (
        mine, replace(mine, name="p99_ms", tolerance=NOT_COMPARED), replace(mine, name="slowdown", better=None),
        replace(mine, name="stall_ms", tolerance="50 ms"), replace(mine, name="steps_lost", aggregate="total"),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METRICS, "mine_ms", mine)
        found = [(rule.metric, *rule.written) for rule in rules_of(records).rules]
    assert found == [("steps_lost", 0, ""), ("mine_ms", 5, "%"), ("stall_ms", 50, "ms")]
    judged = {rule.metric: rule for rule in DEFAULT.rules}
    for name, metric in METRICS.items():
        if metric.on_any_network:
            assert judged[name].tolerance == (0, False), name
    tolerant = [name for name, metric in METRICS.items() if name in judged and metric.unit in ("requests", "steps",
                "elements", "trials") and judged[name].tolerance != (0, False)]  # fmt: skip
    assert tolerant == ["requests_hurt"], "of counts, only what is chance to a part has a tolerance"
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "serving.md").read_text()
    assert "`harness compare` accepts two more of them" in guide and judged["requests_hurt"].tolerance == (2, False)
    for name in ("before_gbs", "before_tokens_s", "after_tokens_s", "after_ttft_p50_ms", "before_tpot_p99_ms"):
        assert judged[name].tolerance == (0.05, True)


def test_a_change_that_is_not_that_of_the_medians_is_explained(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    stray = new.assign(after_gbs=new["after_gbs"].where(new["repeat"] != 0, new["after_gbs"] / 10))
    found = compare(base, stray, rules(metric="after_gbs", tolerance="5 %", systems=["balance"]))
    assert told(found, [])[0].startswith("BASE and NEW are medians, and a change is that of means")
    _, _, _, before, after, *_, changed, _, _, _ = cells(only(found))
    means = [re.fullmatch(r"[0-9.]+ \(geometric mean ([0-9.]+)\)", text) for text in (before, after)]
    ratio = float(means[1][1]) / float(means[0][1]) if means[0] and means[1] else 0
    change_of = only(found).change
    assert change_of is not None and ratio == pytest.approx(change_of.value, rel=0.01)
    assert changed == f"{100 * (change_of.value - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")
    same = compare(base, base, rules(metric="after_gbs", tolerance="5 %", systems=["balance"]))
    assert len(told(same, [])) == 1 and "mean" not in " ".join(cells(only(same)))


def test_a_change_of_medians_that_are_0_is_explained_too(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = (frame.assign(stall_ms=0.0) for frame in frames)
    hurt = new.assign(stall_ms=new["stall_ms"].where(new["repeat"] != 0, 90.0))
    found = compare(base, hurt, rules(metric="stall_ms", tolerance="30 ms", systems=["balance"]))
    assert told(found, [])[0].startswith("BASE and NEW are medians, and a change is that of means")
    assert cells(only(found))[3] == "0 (mean 0)" and re.fullmatch(r"0 \(mean [1-9][0-9.]*\)", cells(only(found))[4])


def test_healthy_trials_before_and_after_the_others_both_count(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """They are one cell with two trials of each repeat."""

    def with_ends(frame: pd.DataFrame, wrong: int) -> pd.DataFrame:
        own = frame[frame["system"] == "balance"].assign(case="all_reduce, healthy", scenario="healthy", faulted=False)
        ends = [own.assign(planned=f"healthy_{end}, " + own["repeat"].astype(str)) for end in ("before", "after")]
        return pd.concat([ends[0].assign(wrong=wrong), ends[1].assign(before_gbs=own["before_gbs"] * 2)])

    base, new = with_ends(frames[0], 0), with_ends(frames[0], 5)
    finding = only(compare(base, new, rules(metric="wrong", tolerance=0)))
    assert (finding.told, finding.conclusion) == ((0, 20), "regression")
    speed = only(
        compare(base, new.assign(before_gbs=new["before_gbs"] * 1.1), rules(metric="before_gbs", tolerance="1 %"))
    )
    assert speed.change is not None and speed.change.value == pytest.approx(1.1)
    assert (speed.change.base_n, speed.base.n) == (8, 8)


def test_a_repeat_without_a_counterpart_is_in_no_pair_and_told(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    fewer = new[new["repeat"] < 3]
    finding = only(compare(base, fewer, rules(metric="after_gbs", tolerance="5 %", systems=["balance"]), paired=True))
    assert cells(finding)[5] == "4, 3 (3 pairs)"


@pytest.mark.parametrize(
    ("factor", "tolerance", "conclusion"),
    [
        (0.80, "5 %", "regression"),
        (0.80, "30 %", "worse, not beyond the tolerance"),
        (1.25, "5 %", "better"),
        (1.00, "5 %", "no difference shown"),
    ],
)
def test_a_change_is_what_its_interval_says(
    frames: tuple[pd.DataFrame, pd.DataFrame], factor: float, tolerance: str, conclusion: str
) -> None:
    base, new = frames
    changed = new.assign(after_gbs=new["after_gbs"] * factor)
    rule = rules(metric="after_gbs", tolerance=tolerance, systems=["balance"])
    finding = only(compare(base, changed, rule))
    assert finding.conclusion == conclusion
    assert finding.change is not None
    assert finding.change.value == pytest.approx(factor, rel=0.02)
    assert finding.change.low < finding.change.value < finding.change.high


def test_worse_by_more_than_the_tolerance_perhaps_is_not_called_within_it(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    base, new = frames
    factors = new["repeat"].map(lambda repeat: (0.90, 0.96, 0.93, 0.91)[repeat])
    scattered = new.assign(after_gbs=new["after_gbs"] * factors)
    finding = only(compare(base, scattered, rules(metric="after_gbs", tolerance="5 %", systems=["balance"])))
    assert finding.change is not None and finding.change.low < 0.95 < finding.change.high < 1
    assert finding.conclusion == "worse, not shown to be beyond it"


def test_a_measure_that_some_trials_do_not_have_leaves_no_gap(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = (frame.assign(replayed_chunks=3.0) for frame in frames)
    # A fault between two chunks makes none come again.
    found = compare(base, new.assign(replayed_chunks=float("nan")), rules(metric="replayed_chunks", tolerance="5"))
    assert {finding.conclusion for finding in found} == {"not measured in NEW"} and not any(f.unknown for f in found)
    # What BASE has under the same fault, NEW should have, as in bounds.
    found = compare(base, new.assign(stall_ms=float("nan")), rules(metric="stall_ms", tolerance="50 ms"))
    assert {finding.conclusion for finding in found} == {"not measured in NEW"} and all(f.unknown for f in found)
    failed = new.assign(stall_ms=float("nan"), status="failed")
    assert {f.conclusion for f in compare(base, failed, rules(metric="stall_ms", tolerance="50 ms"))} == {"regression"}


def test_none_wrong_where_nothing_was_compared_is_not_the_same(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    rule = rules(metric="wrong", tolerance=0, systems=["balance"])
    unchecked = {"wrong": float("nan"), "checked": 0}
    assert only(compare(base, new.assign(**unchecked), rule)).conclusion == "not measured in NEW"
    assert compare(base.assign(**unchecked), new.assign(**unchecked), rule) == []


def test_what_no_simulated_trial_has_is_in_the_metrics_record(
    frames: tuple[pd.DataFrame, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was known by the name of one metric."""
    base, new = frames[0], frames[1].assign(source="simulated", return_ms=np.nan)
    asked = rules(metric="return_ms", tolerance="5 %")
    base = base.assign(return_ms=1.0)
    assert {finding.conclusion for finding in compare(base, new, asked)} == {"not measured in NEW"}
    monkeypatch.setitem(METRICS, "return_ms", replace(METRICS["return_ms"], simulated=False))  # type: ignore[index]
    assert {finding.conclusion for finding in compare(base, new, asked)} == {"not simulated in NEW"}
    assert not METRICS["wrong"].simulated


def test_counts_of_unequal_numbers_of_repeats_are_worse_only_for_sure() -> None:
    rule = rules(metric="wrong", tolerance=0).rules[0]

    def judged(base: list[int], new: list[int]) -> str:
        return _counts(rule, *({i: float(n) for i, n in enumerate(side)} for side in (base, new)))

    assert judged([4, 0, 0], [4, 0]) == "worse, not shown to be beyond it", "the one that is missing may be good"
    assert judged([4, 0], [4, 0, 0]) == "no difference shown"
    assert judged([0, 0, 0], [1, 0]) == judged([0, 0], [0, 0, 1]) == judged([1, 0], [1, 1, 1, 0]) == "regression"
    assert judged([1, 1, 1], [1, 1]) == "no difference shown" and judged([0, 0, 0], [0, 0]) == "same"
    assert judged([4, 4], [1, 0, 0]) == judged([4, 4, 4], [1, 0]) == "better"


def test_a_comparison_without_a_ratio_is_told(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    negative = base.assign(stall_ms=-base["stall_ms"])
    lines = told(compare(negative, new, rules(metric="stall_ms", tolerance="5 %", systems=["balance"])), [])
    assert any("1 comparison has values without a ratio" in line for line in lines), lines


def test_noise_as_large_as_the_change_is_no_regression(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    noisy = new.assign(after_gbs=new["after_gbs"] * np.tile([0.5, 1.2], len(new) // 2))
    finding = only(compare(base, noisy, rules(metric="after_gbs", tolerance="5 %", systems=["balance"])))
    assert finding.conclusion == "no difference shown"


def test_a_system_that_stops_now_is_a_regression(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    lacks = new.assign(after_gbs=new["after_gbs"].where(new["system"] != "balance"))
    stopped = lacks.assign(status=new["status"].where(new["system"] != "balance", "failed"))
    rule = rules(metric="after_gbs", tolerance="5 %", systems=["balance"])
    assert only(compare(base, stopped, rule)).conclusion == "regression"
    assert told(compare(base, stopped, rule), [])[0].startswith("1 of 1 comparison is a regression (first: after_gbs")
    assert only(compare(base, new[new["system"] != "balance"], rule)).conclusion == "not run in NEW"
    assert only(compare(stopped, new, rule)).conclusion == "stopped in BASE"
    assert only(compare(base[base["system"] != "balance"], new, rule)).conclusion == "not run in BASE"
    unmeasured = compare(base, lacks, rule)
    assert only(unmeasured).conclusion == "not measured in NEW"
    assert regressions(unmeasured) == [] and is_open(unmeasured)
    once = lacks.assign(status=["failed" if at == lacks.index[0] else "ok" for at in lacks.index])
    assert only(compare(base, once, rule)).conclusion == "not measured in NEW"


def test_only_what_both_sides_have_is_counted_as_compared(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    slower = new[new["system"] != "hot_repair"].assign(after_gbs=new["after_gbs"] / 2)
    found = compare(base[base["system"] != "failstop"], slower, DEFAULT)
    rows = [finding.conclusion for finding in found]
    both = sum(bool(finding.base.n and finding.new.n) for finding in found)
    assert 0 < both < len(found)
    *_, first, _, left_out = told(found, [])
    assert first.startswith(f"{rows.count('regression')} of {both} comparisons ")
    assert left_out == (
        f"{len(found) - both} more measures could not be compared: {rows.count('not run in NEW')} not run in NEW, "
        f"{rows.count('not run in BASE')} not run in BASE."
    )
    values = json.loads(as_json("a", "b", found, []))
    assert (values["regressions"], values["compared"]) == (rows.count("regression"), both)


def test_wrong_elements_and_unexpected_ends_are_counted(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    worse = new.assign(wrong=[1, *[0] * (len(new) - 1)], unexpected=[1, *[0] * (len(new) - 1)])
    found = {(f.metric, f.conclusion) for f in compare(base, worse, DEFAULT) if f.system == new["system"].iloc[0]}
    assert {("wrong", "regression"), ("unexpected", "regression")} <= found


def test_a_single_repeat_says_nothing(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = (frame[frame["repeat"] == 0] for frame in frames)
    worse = new.assign(after_gbs=new["after_gbs"] / 2)
    rule = rules(metric="after_gbs", tolerance="5 %", systems=["balance"])
    assert only(compare(base, worse, rule)).conclusion == "too few repeats"


def test_repeats_that_stood_still_until_the_repair_in_new_leave_it_unknown(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    """No line told them, and the repeats that went on were compared as if they were all."""
    base, new = frames
    lost = (new["system"] == "balance") & (new["repeat"] >= 2)
    still = new.assign(until_repair=lost, slowdown=new["slowdown"].mask(lost), after_ms=new["after_ms"].mask(lost))
    rule = rules(metric="slowdown", tolerance="500 %", systems=["balance"])
    found = only(compare(base, still, rule))
    assert (found.new.n, found.held_up, found.regressed) == (2, 2, False)
    assert is_open([found]) and not is_open(compare(base, new, rule)) and not is_open(compare(still, new, rule))
    why = "as what was hit lasted until the repair. They may be the worse ones."
    assert f"NEW lacks 2 repeats of BASE for slowdown of balance at 1MiB, {why}" in told([found], [])
    assert [f["held_up"] for f in json.loads(as_json("a", "b", [found], []))["findings"]] == [2]


@pytest.mark.parametrize("side", ["BASE", "NEW"])
@pytest.mark.parametrize("why", [{"disturbed_slowdown": True}, {"status": "inconclusive"}])
def test_a_repeat_that_ran_and_is_not_known_is_not_a_missing_one(
    frames: tuple[pd.DataFrame, pd.DataFrame], side: str, why: dict[str, str | bool]
) -> None:
    base, new = (frame[frame["repeat"] < 3] for frame in frames)
    frame = base if side == "BASE" else new
    unknown = frame.assign(**why, slowdown=float("nan"))
    part = pd.concat([frame[frame["repeat"] < 2], unknown[unknown["repeat"] == 2]])
    sides = (part, new) if side == "BASE" else (base, part)
    rule = rules(metric="slowdown", tolerance="5 %", systems=["balance"])
    found = compare(*sides, rule, paired=True)
    which = "conclusive repeats" if "status" in why else "known repeats"
    assert only(found).conclusion == f"too few {which}"
    lines = told(found, [])
    what = "conclusive repeats" if "status" in why else "repeats whose value is known"
    assert f"1 comparison has too few {what} to show one" in lines[-2]
    assert lines[-1].startswith("Whether NEW is worse is unknown (exit status 3)")
    fewer = [frame[frame["repeat"] < 2] for frame in (base, new)]
    assert only(compare(*fewer, rule, paired=True)).conclusion == "too few repeats"


def test_repeats_that_are_inconclusive_in_new_leave_it_unknown(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    """Those that could not be concluded may be the worse ones. It was fine, and no line told them."""
    base, new = frames

    def without(frame: pd.DataFrame) -> pd.DataFrame:
        lost = (frame["system"] == "balance") & (frame["repeat"] >= 2)
        status = frame["status"].mask(lost, "inconclusive")
        return frame.assign(status=status, before_gbs=frame["before_gbs"].mask(lost), wrong=frame["wrong"].mask(lost))

    rule = {"metric": "before_gbs", "tolerance": "50 %", "systems": ["balance"]}
    both = Rules.model_validate({"rule": [rule, {"metric": "wrong", "tolerance": 0, "systems": ["balance"]}]})
    found = compare(base, without(new), both)
    assert [(f.base.n, f.new.n, f.inconclusive, f.judged) for f in found] == [(4, 2, 2, True)] * 2
    assert regressions(found) == [] and is_open(found)
    told_of = [line for line in told(found, []) if "inconclusive" in line]
    where = "before_gbs of balance at 1MiB"
    assert told_of == [f"2 repeats of BASE are inconclusive in NEW ({where}), and may be the worse ones there."]
    assert told(found, [])[-1].startswith("Whether NEW is worse is unknown (exit status 3)")
    assert [f["inconclusive"] for f in json.loads(as_json("a", "b", found, []))["findings"]] == [2, 2]
    # What BASE does not know either is no part of it.
    assert not is_open(compare(without(base), without(new), both)) and not is_open(compare(without(base), new, both))


def test_an_absolute_tolerance_is_in_the_metrics_unit(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    later = new.assign(stall_ms=new["stall_ms"] + 70)
    rule = rules(metric="stall_ms", tolerance="30 ms", systems=["balance"])
    finding = only(compare(base, later, rule))
    assert finding.conclusion == "regression"
    assert finding.change is not None
    assert finding.change.value == pytest.approx(70, abs=15)
    told = cells(replace(finding, change=Change(0.04, -1e-12, 70.25, 5, 5, True, 1.0, 1.04)))
    assert told[6:8] == ("+0.04", "0 to +70.2, pairs")
    negative = base.assign(stall_ms=-base["stall_ms"])
    ratio = rules(metric="stall_ms", tolerance="5 %", systems=["balance"])
    assert only(compare(negative, negative, ratio)).conclusion == "no ratio of such values"


def test_the_intervals_are_those_of_the_textbook() -> None:
    base, new = {0: 10.0, 1: 12.0, 2: 11.0}, {0: 13.0, 1: 15.0, 2: 17.0}
    welch = change(base, new, relative=False, paired=False)
    assert welch is not None
    assert welch.value == pytest.approx(4.0)
    # Variances 1 and 4, three of each: 2.94 degrees of freedom, of which only whole ones are in the table.
    assert welch.high - welch.value == pytest.approx(4.303 * (5 / 3) ** 0.5)
    pairs = change(base, new, relative=False, paired=True)
    assert pairs is not None
    assert pairs.high - pairs.value == pytest.approx(4.303 * 3**0.5 / 3**0.5)
    ratio = change(base, new, relative=True, paired=True)
    back = change(new, base, relative=True, paired=True)
    assert ratio is not None
    assert back is not None
    assert ratio.value == pytest.approx(1 / back.value)


def test_json_reads_back_and_knows_no_nan(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    found = compare(base[base["repeat"] == 0], new, DEFAULT)
    values = json.loads(as_json("a", "b", found, []), parse_constant=lambda name: pytest.fail(name))
    assert values["regressions"] == 0
    assert len(values["findings"]) == len(found)
    assert None in [f["change"]["low"] for f in values["findings"] if f["change"]]


BAD = {
    "no toml": ("rule = [", "not valid TOML"),
    "no rule": ("schema = 1", "rule: is missing; add it"),
    "unknown metric": ('[[rule]]\nmetric = "after_gb"\ntolerance = "5 %"', "rule[0].metric: unknown metric 'after_gb'"),
    "nearest": ('[[rule]]\nmetric = "after_gb"\ntolerance = "5 %"', "did you mean 'after_gbs'?"),
    "unknown key": ('[[rule]]\nmetric = "wrong"\ntolerence = 0', "did you mean 'tolerance'?"),
    "wrong unit": ('[[rule]]\nmetric = "after_gbs"\ntolerance = "5 ms"', "is in GB/s or in %"),
    "share of a count": ('[[rule]]\nmetric = "wrong"\ntolerance = "5 %"', "wrong is counted"),
    "negative": ('[[rule]]\nmetric = "wrong"\ntolerance = -1', "must be 0 or more"),
    "not a number": ('[[rule]]\nmetric = "wrong"\ntolerance = "few"', "is not a tolerance"),
    "direction": ('[[rule]]\nmetric = "wrong"\ntolerance = 0\ndirection = "up"', "rule[0].direction"),
    "size": ('[[rule]]\nmetric = "wrong"\ntolerance = 0\nsizes = ["big"]', "'big' is not a size"),
    "newer": ('schema = 2\n[[rule]]\nmetric = "wrong"\ntolerance = 0', "schema"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_rules_file_with_a_mistake_is_one_line(tmp_path: Path, case: str) -> None:
    text, expected = BAD[case]
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(ReportError) as refused:
        load_rules(path)
    assert expected in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_rules_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(
        'schema = 1\n[[rule]]\nmetric = "slowdown"\ndirection = "lower"\ntolerance = "3 %"\nsizes = ["64MiB"]\n'
    )
    (rule,) = load_rules(path).rules
    assert (rule.tolerance.amount, rule.tolerance.relative, rule.sizes) == (0.03, True, (64 << 20,))
    assert not rule.applies("balance", 1 << 20, "all_reduce", "nic_down")


def test_every_metric_is_a_column(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    assert set(METRICS) <= set(frames[0].columns)


def test_no_difference_says_how_many_repeats_would_show_one(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, _ = frames
    spread = base.assign(slowdown=base["slowdown"] * (1 + 0.1 * base["repeat"]))
    findings = compare(spread, spread, rules(metric="slowdown", tolerance="5 %", systems=["balance"]))
    (said,) = [line for line in told(findings, []) if line.startswith("No difference is shown")]
    assert re.search(r"about \d+ repeats would show the tolerated one of slowdown of balance", said), said


def test_repeats_that_do_not_vary_need_no_more_of_them(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    two = frames[0][frames[0]["repeat"] < 2].assign(slowdown=1.5)
    findings = compare(two, two, rules(metric="slowdown", tolerance="5 %", systems=["balance"]))
    assert {finding.conclusion for finding in findings} == {"no difference shown"}
    assert not [line for line in told(findings, []) if "would show" in line]


def test_a_regression_is_not_seen_only_because_the_low_costs_are_not_known(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    base = frames[0][(frames[0]["system"] == "balance") & (frames[0]["repeat"] < 3)]
    low = base["repeat"] == 0
    base = base.assign(lost_ms=20.0 + base["repeat"])
    new = base.assign(lost_ms=(base["lost_ms"] + 1).mask(low), disturbed=low.map({True: "slowed", False: ""}))
    (found,) = compare(base, new.assign(reads_low=low), rules(metric="lost_ms", tolerance="1 ms"))[:1]
    assert (found.new.n, found.new.median, found.conclusion) == (2, 22.5, "no difference shown")


def with_low(frame: pd.DataFrame, lost_ms: list[float | None]) -> pd.DataFrame:
    """A trial for each value; None: too low to be known."""
    own = pd.concat([frame[frame["system"] == "balance"].head(1)] * len(lost_ms), ignore_index=True)
    low = pd.Series([value is None for value in lost_ms])
    values = pd.Series(lost_ms, dtype=float)
    planned = [f"nic_down, {repeat}" for repeat in range(len(lost_ms))]
    return own.assign(lost_ms=values, reads_low=low, disturbed=low.map({True: "slowed", False: ""}), planned=planned)


@pytest.mark.parametrize(
    ("values", "repeats"), [([None, None, None], "0 of 3 known"), ([20.0, None, None], "1 of 3 known")]
)
def test_a_side_whose_median_is_not_known_says_how_many_of_its_repeats_are(
    frames: tuple[pd.DataFrame, pd.DataFrame], values: list[float | None], repeats: str
) -> None:
    """A bare 0 would read as if none had run."""
    tolerated, known = rules(metric="lost_ms", tolerance="1 ms"), with_low(frames[0], [20.0, 20.1, 20.2])
    for sides, told_repeats in (
        ((known, with_low(frames[1], values)), f"3, {repeats}"),
        ((with_low(frames[0], values), known), f"{repeats}, 3"),
    ):
        found = only(compare(*sides, tolerated))
        assert (cells(found)[5], found.change) == (told_repeats, None)
        assert found.conclusion.startswith("not known in")


@pytest.mark.parametrize(
    ("base", "new", "repeats", "change"),
    [
        ([20.0, 20.1, None], [None, 30.0, 30.1], "2 of 3 known, 2 of 3 known (1 pair)", "+9.9"),
        ([20.0, 20.1, None, None, 20.2], [None, None, 30.0, 30.1, 30.2], "3 of 5 known, 3 of 5 known (1 pair)", "+10"),
    ],
)
def test_values_that_are_not_known_make_no_pair(
    frames: tuple[pd.DataFrame, pd.DataFrame],
    base: list[float | None],
    new: list[float | None],
    repeats: str,
    change: str,
) -> None:
    sides = (with_low(frame, values) for frame, values in zip(frames, (base, new), strict=True))
    found = only(compare(*sides, rules(metric="lost_ms", tolerance="1 ms"), paired=True))
    told_cells = cells(found)
    assert (told_cells[5:8], found.conclusion) == ((repeats, change, "-"), "too few known repeats")
    assert json.loads(as_json("a", "b", [found], []))["findings"][0]["not_known"] == list(found.not_known)
    assert any(line.startswith("Repeats that are not known, because") for line in told([found], []))


def test_values_that_are_not_known_narrow_no_interval(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, rule = [20.0, 20.5, 21.0, 21.5], rules(metric="lost_ms", tolerance="1 ms")
    known, filled = (
        only(compare(with_low(frames[0], base), with_low(frames[1], new), rule)).change
        for new in ([21.0, 22.0, 23.0, 24.0], [21.0, 22.0, 23.0, 24.0, None])
    )
    assert known is not None and filled == known


def test_a_regression_that_values_too_low_to_be_known_would_undo_is_not_told(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    rule = rules(metric="lost_ms", tolerance="9.7 ms")
    base = with_low(frames[0], [20.0, 20.1, 20.2, 20.3, 20.4])
    fewer = [29.0, 30.2, 30.3, 30.4, 30.5, 30.6, 30.7, 30.8, 30.9]
    (known, doubtful) = (
        only(compare(base, with_low(frames[1], [*fewer, *[None] * low]), rule)).conclusion for low in (0, 8)
    )
    assert (known, doubtful) == ("regression", "worse, not shown to be beyond it")


def test_the_first_regression_names_its_case_where_there_are_several(frames: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    base, new = frames
    rule = rules(metric="after_gbs", tolerance="5 %", systems=["balance"])
    slower = new.assign(after_gbs=new["after_gbs"] / 2)
    assert "(first: after_gbs of balance at 1MiB)." in told(compare(base, slower, rule), [])[-1]
    both = [pd.concat([frame.assign(case="all_gather, nic_down"), frame]) for frame in (base, slower)]
    findings = compare(*both, rule)
    assert "(first: after_gbs of balance at 1MiB (all_gather, nic_down))." in told(findings, [])[-1]


def test_every_mistake_of_a_rules_file_is_told_and_no_trial_is_judged_twice(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rule]]\nmetric = "slodown"\ntolerance = "5 %"\n[[rule]]\nmetric = "lost_ms"\ntolerance = "x"\n')
    with pytest.raises(ReportError) as refused:
        load_rules(path)
    first, second = str(refused.value).splitlines()
    assert "rule[0].metric: unknown metric" in first and "rule[1].tolerance: 'x' is not a tolerance" in second
    twice = '[[rule]]\nmetric = "after_gbs"\ntolerance = "%s %%"\n%s\n'
    path.write_text(twice % (5, "") + twice % (50, ""))
    with pytest.raises(ReportError, match=r"rule\[1\] and rule\[0\] are both for after_gbs of the same trials"):
        load_rules(path)
    path.write_text(twice % (5, "") + twice % (50, 'systems = ["balance"]'))
    assert len(load_rules(path).rules) == 2


@pytest.mark.parametrize(
    ("base", "new", "conclusion", "interval"),
    [
        ((0.0, 2.0), (0.0, 5.0), "not known closely enough", "-2 to +5"),
        ((0.0, 5.0), (0.0, 2.0), "not known closely enough", "-5 to +2"),
        ((0.0, 5.0), (10.0, 12.0), "worse, not shown to be beyond it", "+5 to +12"),
        ((0.0, 5.0), (30.0, 31.0), "regression", "+25 to +31"),
        ((30.0, 31.0), (0.0, 5.0), "better", "-31 to -25"),
    ],
)
def test_a_change_that_the_ends_of_the_values_leave_open_is_not_told(
    frames: tuple[pd.DataFrame, pd.DataFrame],
    base: tuple[float, float],
    new: tuple[float, float],
    conclusion: str,
    interval: str,
) -> None:
    """A change of +0, and surely none, was told between trials known only to 2 and to 5 ms."""
    sides = [
        frame[frame["system"] == "balance"].assign(recover_ms=least, recover_most_ms=most, by_mean=False)
        for frame, (least, most) in zip(frames, (base, new), strict=True)
    ]
    found = only(compare(*sides, rules(metric="recover_ms", tolerance="6 ms")))
    assert found.conclusion == conclusion
    assert cells(found)[7].replace("\N{MINUS SIGN}", "-") == f"{interval}, unpaired"
    why = "A trial says of recover_ms only between which values it lies, recover_most_ms at most: "
    assert any(line.startswith(why) for line in told([found], []))
    is_loose = conclusion == "not known closely enough"
    assert is_open([found]) == is_loose
    assert ("more repeats do not tell what each trial leaves open of recover_ms" in told([found], [])[-1]) == is_loose
    few = [side.head(1) for side in sides]
    assert only(compare(*few, rules(metric="recover_ms", tolerance="6 ms"))).conclusion == "too few repeats"


LATE = [4000.0, 4100.0, 4050.0, 4020.0]


@pytest.mark.parametrize(
    ("base", "new", "better", "conclusion", "interval"),
    [
        ([4, 5, 4, 5], [None] * 4, None, "regression", "or more"),
        ([4, 5, 4, 5], [4, None, None, None], None, "not known in NEW", ""),  # no change is shown by 4 and 4000
        ([None] * 4, [4, 5, 4, 5], None, "better", "or less"),
        ([4, 5, 4, 5], [None] * 4, "higher", "better", "or more"),
        ([None] * 4, [4, 5, 4, 5], "higher", "regression", "or less"),
        ([9000, 9100, 9000, 9100], [None] * 4, None, "not known in NEW", ""),  # it may be less or more
        ([None] * 4, [9000, 9100, 9000, 9100], None, "not known in BASE", ""),
        ([None] * 4, [None] * 4, None, "not known in NEW", ""),
        ([3000, 3100, 3000, 3100], [None] * 4, None, "worse, not shown to be beyond it", "or more"),
    ],
)
@pytest.mark.parametrize("tolerance", ["50 %", "1500 ms"])
def test_trials_that_ended_before_a_value_was_known_are_judged_by_what_it_is_more_than(
    frames: tuple[pd.DataFrame, pd.DataFrame],
    base: list[float | None],
    new: list[float | None],
    better: str | None,
    conclusion: str,
    interval: str,
    tolerance: str,
) -> None:
    """A NIC that never carried again in NEW, and after 4 ms in BASE, was *not known in NEW*."""

    def side(frame: pd.DataFrame, values: list[float | None]) -> pd.DataFrame:
        own = frame[(frame["system"] == "balance") & (frame["scenario"] != "healthy")].head(4)
        exceeds = [{"return_ms": late} if value is None else {} for value, late in zip(values, LATE, strict=True)]
        return own.assign(return_ms=pd.Series(values, own.index, dtype=float), exceeds=exceeds)

    frames_ = tuple(side(frame, values) for frame, values in zip(frames, (base, new), strict=True))
    asked = rules(metric="return_ms", tolerance=tolerance, **({"direction": better} if better else {}))
    found = only(compare(*frames_, asked))
    assert found.conclusion == conclusion
    assert interval in cells(found)[7]
    assert is_open([found]) == conclusion.startswith("not known")
    lines = "\n".join(told([found], []))
    assert "are in no change" not in lines
    assert ("That decides nothing of return_ms of balance" in lines) == (not interval)
    record = json.loads(as_json("a", "b", [found], []))["findings"][0]
    if None in base:
        assert (cells(found)[3], record["base_at_least"]) == ("4035 or more", 4035)
    if new == [None] * 4:
        assert (cells(found)[4], record["new_at_least"]) == ("4035 or more", 4035)


@pytest.mark.parametrize(
    ("cut", "conclusion", "shown"),
    [
        ((), "regression", ("100", "300")),
        (("new",), "regression", ("100", "300 or more")),
        (("base",), "not known in BASE", ("100 or more", "300")),  # it may have been 300 as well
        (("base", "new"), "not known in NEW", ("100 or more", "300 or more")),
    ],
)
def test_time_lost_of_which_trials_saw_a_part_is_at_least_that(
    frames: tuple[pd.DataFrame, pd.DataFrame], cut: tuple[str, ...], conclusion: str, shown: tuple[str, str]
) -> None:
    sides = []
    for frame, name, lost_ms in zip(frames, ("base", "new"), (100.0, 300.0), strict=True):
        own = frame[(frame["system"] == "balance") & (frame["scenario"] != "healthy")].head(4)
        around = [lost_ms - 1, lost_ms + 1, lost_ms - 1, lost_ms + 1]
        sides.append(own.assign(lost_ms=pd.Series(around, own.index), cost_goes_on=name in cut))
    found = only(compare(*sides, rules(metric="lost_ms", tolerance="50 ms")))
    assert (found.conclusion, cells(found)[3:5]) == (conclusion, shown)
    assert is_open([found]) == (conclusion == "not known in NEW")


def test_what_neither_side_knows_is_told_and_leaves_a_written_rule_open(
    frames: tuple[pd.DataFrame, pd.DataFrame],
) -> None:
    """It vanished: a rule that could not be judged in any cell but one passed by that one."""
    lost = [frame.assign(slowdown=float("nan")).assign(disturbed_slowdown=frame["faulted"]) for frame in frames]
    some = [
        pd.concat([frame[frame["system"] == "hot_repair"], none[none["system"] == "balance"]])
        for frame, none in zip(frames, lost, strict=True)
    ]
    rule = rules(metric="slowdown", tolerance="50 %")
    found = compare(*some, rule)
    assert {each.system: each.conclusion for each in found}["balance"] == "known in neither"
    text = told(found, [])
    assert text[-1].startswith("1 more measure could not be compared: 1 known in neither (slowdown of balance at 1MiB")
    assert not is_open(found), "no rule was written about it"
    values = json.loads(as_json("A", "B", found, []))
    assert values["known_in_neither"] == 1
    assert [each["system"] for each in values["findings"] if each["conclusion"] == "known in neither"] == ["balance"]
    asked = compare(*some, rule, asked=True)
    assert is_open(asked) and "exit status 3" in told(asked, [])[-1]
    stopped = [frame[frame["system"] == "failstop"] for frame in frames]
    assert compare(*stopped, rule, asked=True) == [], "it does not apply to trials that stopped"
