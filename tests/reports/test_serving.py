"""Serving in reports: latencies by phase, who was hurt, and answers held against the run without failures."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from served_trials import ANSWERS, trial
from synthetic_run import stored_run

from reports.bounds import held
from reports.compare import compare, regressions
from reports.figures import overview
from reports.headline import headline
from reports.load import frame, load_folders
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.report import write_report
from reports.rules import DEFAULT


def test_latencies_by_phase_and_who_was_hurt(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "serving", trial("healthy_before", ANSWERS), trial("transfer", ANSWERS))
    row = trial_frame(load_folders([folder])).set_index("scenario").loc["transfer"]
    assert row["before_ttft_p50_ms"] == pytest.approx(210) and row["during_ttft_p99_ms"] == pytest.approx(300)
    assert row["after_ttft_p50_ms"] == pytest.approx(207.5) and row["after_tpot_p99_ms"] == pytest.approx(5)
    assert row[["requests_hurt", "requests_again", "in_transfer", "in_decode"]].tolist() == [0, 1, 1, 0]
    assert row["served_tokens_s"] == pytest.approx(5 * 40 / 2.4)
    assert row["answers_differ"] == 0
    # Requests 3 and 4 began after it.
    assert row["after_ttft_over"] == pytest.approx(0.0) and row["after_tpot_over"] == pytest.approx(0.0)
    assert re.search(r"\d+ requests(, after \d+ warm-ups?)?</summary>", write_report(folder).read_text())


def test_a_system_that_stopped_is_judged_over_the_time_that_the_trial_would_have_had(tmp_path: Path) -> None:
    """Its span ended with the stop, so that what it answered until then looked healthy."""

    def throughput(name: str, *healthy: Any) -> float:
        stopped = trial("transfer", ANSWERS[:3], status="failed")
        frame = trial_frame(load_folders([stored_run(tmp_path / name, "serving", *healthy, stopped)]))
        return float(frame.set_index("scenario").loc["transfer", "served_tokens_s"])

    assert throughput("beside", trial("healthy_before", ANSWERS)) == pytest.approx(3 * 40 / 2.4)
    assert math.isnan(throughput("alone")), "nothing says how long it would have lasted"
    nothing = trial("transfer", [], status="failed")
    run = stored_run(tmp_path / "none", "serving", trial("healthy_before", ANSWERS), nothing)
    assert trial_frame(load_folders([run])).set_index("scenario").loc["transfer", "served_tokens_s"] == 0


def test_each_request_is_compared_with_itself_in_the_healthy_trials_around_it(tmp_path: Path) -> None:
    trials = [
        *(trial("healthy_before", ANSWERS, factor, repeat=r, trial_id=f"b{r}") for r, factor in enumerate((0.9, 2.0))),
        *(trial("healthy_after", ANSWERS, factor, repeat=r, trial_id=f"a{r}") for r, factor in enumerate((1.1, 2.0))),
        *(trial("transfer", ANSWERS, 1.2, repeat=r, trial_id=f"t{r}") for r in range(2)),
    ]
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", *trials)]))
    struck = frame[frame["scenario"] == "transfer"].set_index("repeat")
    # Its own repeat's only: 1.2 over the mean of 0.9 and 1.1, and over 2.0, whatever other requests take.
    for phase in ("before", "during", "after"):
        assert struck[f"{phase}_ttft_over"].tolist() == pytest.approx([0.2, -0.4])
        assert struck[f"{phase}_tpot_over"].tolist() == pytest.approx([0.0, 0.0])
    assert struck["requests_hurt"].tolist() == [1, 0]  # 360 ms, where none of 330 ms is among the healthy
    assert frame[frame["scenario"] == "healthy"]["requests_hurt"].isna().all()


def test_requests_after_the_repair_are_the_full_mark_where_none_began_before_it(tmp_path: Path) -> None:
    faulted = trial("transfer", ANSWERS, factor=2.0)
    assert faulted.fault is not None
    hit, late = faulted.iterations[3], [one.model_copy(update={"phase": "repaired"}) for one in faulted.iterations[4:]]
    healed = faulted.fault.model_copy(update={"heal_ns": hit.t_ns + hit.duration_ns - 1})
    changed = faulted.model_copy(update={"fault": healed, "iterations": (*faulted.iterations[:4], *late)})
    folder = stored_run(tmp_path, "serving", trial("healthy_before", ANSWERS), changed)
    lines = headline(trial_frame(load_folders([folder])))
    assert overview.result(lines) == (
        "balance, transfer: time to first token, over healthy: +100 % during, +100 % after, "
        "time per later token, over healthy: 0 % during, 0 % after."
    )
    assert [text.get_text() for text in overview.draw(lines).axes[0].texts] == []


def test_repeats_without_healthy_trials_of_their_own_take_all(tmp_path: Path) -> None:
    trials = [
        trial("healthy_before", ANSWERS, 0.9), trial("healthy_after", ANSWERS, 1.1),
        trial("transfer", ANSWERS, 1.2, repeat=3, trial_id="t3"),
    ]  # fmt: skip
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", *trials)])).set_index("scenario")
    assert frame.loc["transfer", "after_ttft_over"] == pytest.approx(0.2)


def test_requests_queue_so_those_after_a_fault_are_not_held_against_those_before(tmp_path: Path) -> None:
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", trial("transfer", ANSWERS))]))
    for name in ("slowdown", "lost_ms", "lost_share", "hit_cost_ms", "stall_ms"):
        assert math.isnan(frame.loc[0, name]) and METRICS[name].is_of("training"), name


def test_another_and_a_missing_answer_are_counted_apart(tmp_path: Path) -> None:
    other = stored_run(
        tmp_path, "serving", trial("healthy_before", ANSWERS), trial("transfer", [11.0, 12.5, 13.0, 14.0])
    )
    row = trial_frame(load_folders([other])).set_index("scenario").loc["transfer"]
    assert row[["answers_differ", "requests_unanswered"]].tolist() == [1, 1]


@pytest.mark.parametrize("name", ["ttft_ms", "tpot_ms", "sent_from_ms"])
def test_a_request_without_what_every_one_has_leaves_its_trial_out(tmp_path: Path, name: str) -> None:
    folder = stored_run(tmp_path, "serving", trial("healthy_before", ANSWERS), trial("transfer", ANSWERS))
    path = folder / "trials" / "balance-transfer-r0" / "trial.json"
    values = json.loads(path.read_text())
    values["iterations"][3]["measures"].pop(name)
    path.write_text(json.dumps(values))
    (run,) = load_folders([folder])
    assert [t.scenario for t in run.trials] == ["healthy_before"]
    (problem,) = run.problems
    assert f"iterations.3.measures: {name} is missing; the file is damaged or was edited" in problem
    assert len(trial_frame([run])) == 1


def test_the_rows_hold_what_the_metrics_are_made_of(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "serving", trial("healthy_before", ANSWERS), trial("transfer", ANSWERS))
    rows = frame([folder])
    own = rows[rows["scenario"] == "transfer"].set_index("iteration")
    names = ["ttft_ms", "tpot_ms", "tokens", "answer", "again"]
    assert own.loc[2, names].tolist() == [300, 5, 40, 13, 1]
    assert (
        own["trial_after_ttft_p50_ms"].iloc[0] == own.loc[own["phase"].isin(["after", "repaired"]), "ttft_ms"].median()
    )
    assert rows["loss"].isna().all()


def test_later_tokens_and_other_answers_are_regressions(tmp_path: Path) -> None:
    def run(name: str, factor: float = 1.0, answers: list[float] = ANSWERS, again: float = 0) -> Any:
        own = [
            trial(
                "transfer", answers, factor * (1 + repeat / 1000), trial_id=f"balance-transfer-r{repeat}", repeat=repeat
            )
            for repeat in range(3)
        ]
        for one in own:
            one.iterations[-1].measures["again"] += again
        return trial_frame(
            load_folders([stored_run(tmp_path / name, "serving", trial("healthy_before", ANSWERS), *own)])
        )

    def worse(new: Any) -> set[str]:
        return {finding.metric for finding in regressions(compare(base, new, DEFAULT))}

    base = run("base")
    assert worse(run("same")) == set()
    late = {f"{phase}_ttft_p{q}_ms" for phase in ("before", "during", "after") for q in (50, 99)}
    assert worse(run("late", 3.0)) == late, "of three requests, two more that are hurt are tolerated"
    assert worse(run("again", again=1)) == {"requests_again"}
    assert worse(run("other", answers=[*ANSWERS[:4], 1.0])) == {"answers_differ"}
    assert "requests_unanswered" in worse(run("unanswered", answers=ANSWERS[:4]))


@pytest.mark.parametrize(("more", "regressed"), [(2, False), (3, True)])
def test_a_few_more_hurt_requests_are_chance(tmp_path: Path, more: int, regressed: bool) -> None:
    trials = [trial("transfer", ANSWERS, repeat=r, trial_id=f"t{r}") for r in range(3)]
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", trial("healthy_before", ANSWERS), *trials)]))
    worse = compare(frame, frame.assign(requests_hurt=frame["requests_hurt"] + more), DEFAULT)
    assert [finding.metric for finding in regressions(worse)] == ["requests_hurt"] * regressed


def test_without_a_run_without_failures_nothing_is_claimed(tmp_path: Path) -> None:
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", trial("transfer", ANSWERS))]))
    assert math.isnan(frame.loc[0, "answers_differ"])
    alone = trial_frame(load_folders([stored_run(tmp_path, "alone", trial("healthy_before", ANSWERS))]))
    assert math.isnan(alone.loc[0, "answers_differ"]), "it is not compared with itself"
    assert METRICS["answers_differ"].is_of("serving") and not METRICS["answers_differ"].is_of("training")


@pytest.mark.parametrize("metric", ["during_ttft_p50_ms", "after_tpot_p99_ms"])
def test_a_healthy_trial_lacks_nothing_that_only_a_fault_brings(tmp_path: Path, metric: str) -> None:
    unwatched = trial("healthy_before", ANSWERS, status="inconclusive", expected=False)
    frame = trial_frame(load_folders([stored_run(tmp_path, "serving", unwatched, trial("transfer", ANSWERS))]))
    for of in ("median", "worst"):
        (found,) = held(frame, {"bound": [{"metric": metric, "max": 1e9, "of": of}]})
        assert found.met, found.line
    (without,) = held(frame, {"bound": [{"metric": "before_ttft_p50_ms", "max": 1e9, "of": "worst"}]})
    assert without.met is None, "that it should have"
