"""Training in reports: what is held bit for bit against the run without failures, and how it is told."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console
from synthetic_run import stored_run

from harness.sweep.console import ConsoleProgress
from harness.sweep.summary import table
from reports.bounds import held
from reports.compare import compare, regressions
from reports.figures import overview as figure
from reports.figures import slowdown
from reports.headline import headline
from reports.load import load_folders
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.metrics.training import held_against
from reports.overview import overview
from reports.page import measures
from reports.report import write_report
from reports.rules import DEFAULT
from reports.screens import screen_of
from reports.setting import setting_of
from reports.summary import scope, sentences
from reports.trial import SCHEMA, Trial

LOSSES = [5.5, 5.25, 5.125, 5.0, 4.75, 4.5]


def trial(scenario: str, losses: list[float], weights: str = "aa", **more: Any) -> Trial:
    healthy = scenario.startswith("healthy")
    phases = ["before"] * len(losses) if healthy else ["before", "before", "hit", "after", "after", "repaired"]
    steps = [
        {
            "iteration": i,
            "phase": phase,
            "t_ns": 1_000_000_000 + 100_000_000 * i,
            "duration_ns": 150_000_000 if phase in ("hit", "after") else 100_000_000,
            "measures": {"loss": loss, "tokens": 1000.0, "forward_ms": 30.0},
        }
        for i, (phase, loss) in enumerate(zip(phases, losses, strict=False))
    ]
    fault = {
        "kind": "nic_down",
        "host": "host1",
        "nic": "eth0",
        "t_before_ns": 1_250_000_000,
        "t_after_ns": 1_251_000_000,
    }
    values: dict[str, Any] = {
        "schema": SCHEMA,
        "trial_id": f"balance-{scenario}-r0",
        "system": "balance",
        "mode": 2,
        "workload": "training",
        "operation": "training of a GPT",
        "counts": "steps",
        "scenario": scenario,
        "repeat": 0,
        "attempt": 1,
        "status": "ok",
        "expected": True,
        "iterations": steps,
        "fault": None if healthy else fault,
        "result": {"weights": weights},
    }
    return Trial.model_validate_json(json.dumps(values | more))


def told(folder: Path) -> tuple[Any, str]:
    frame = trial_frame(load_folders([folder]))
    return frame.set_index("scenario"), " ".join(sentences(frame, []))


def test_the_same_bits_are_said_to_be_so(tmp_path: Path) -> None:
    healthy = [trial("healthy_before", LOSSES), trial("healthy_after", LOSSES)]
    frame, text = told(stored_run(tmp_path, "training", *healthy, trial("dies", LOSSES)))
    assert frame.loc["dies", ["steps_differ", "weights_differ", "steps_lost", "in_backward"]].tolist() == [0, 0, 0, 1]
    assert frame.loc["dies", "before_tokens_s"] == pytest.approx(10_000)
    assert frame.loc["dies", "after_tokens_s"] == pytest.approx(1000 / 0.15)
    assert math.isnan(frame.loc["dies", "before_gbs"]) and frame.loc["dies", "lost_ms"] == pytest.approx(150)
    assert "bit for bit the same in its 2 trials" in text
    assert "balance under dies: struck in mid-backward in 1 of 1 trial; no step lost, 0.15 s lost" in text
    assert "every loss and the final weights are bit for bit those of the run without failures" in text
    assert frame.loc["dies", "during_tokens_s"] == pytest.approx(1000 / 0.15)
    assert "tokens per second: 10000 before, 6667 in the step that was hit" in text
    assert "element" not in text


def test_time_lost_that_was_seen_in_part_is_said_to_be_so(tmp_path: Path) -> None:
    """The sentence on the system said so, and the one on its training gave the number alone."""
    healthy = [trial("healthy_before", LOSSES), trial("healthy_after", LOSSES)]
    frame = trial_frame(load_folders([stored_run(tmp_path, "training", *healthy, trial("dies", LOSSES))]))
    dies = frame["scenario"] == "dies"
    text = " ".join(sentences(frame.assign(cost_goes_on=dies, to_be_repaired=dies), []))
    assert "no step lost, 0.15 s lost (1 of 1 trial ended before the cost was over), tokens" in text


def test_layouts_are_told_apart_by_their_axis_not_by_a_long_description(tmp_path: Path) -> None:
    trials = []
    for layout in ("tp2", "pp2"):
        of_it: dict[str, Any] = {
            "axes": {"layout": layout},
            "operation": f"training of a GPT with 10 M parameters (8 layers of 320, {layout}, 8 x 256 bytes)",
        }
        for scenario in ("healthy_before", "healthy_after", "dies"):
            trials.append(trial(scenario, LOSSES, trial_id=f"balance-{scenario}-layout={layout}-r0", **of_it))
    folders = load_folders([stored_run(tmp_path, "training", *trials)])
    frame = trial_frame(folders)
    rows = figure.shown(headline(frame))
    assert figure.names(rows) == ["pp2", "tp2"]
    text = " ".join(sentences(frame, [scope(frame, setting_of(folders[0].run))]))
    assert "6 trials of training of a GPT with 10 M parameters, in 2 forms over" in text
    assert "weights of balance (layout tp2) are bit for bit the same in its 2 trials" in text
    assert "balance under dies (layout pp2): struck" in text


def test_one_bit_of_one_loss_is_seen(tmp_path: Path) -> None:
    other = [*LOSSES[:3], math.nextafter(LOSSES[3], 9), *LOSSES[4:]]
    frame, text = told(stored_run(tmp_path, "training", trial("healthy_before", LOSSES), trial("dies", other)))
    assert frame.loc["dies", ["steps_differ", "weights_differ"]].tolist() == [1, 0]
    assert "NOT those of the run without failures: 1 step with another loss" in text


def test_other_weights_and_lost_steps_are_seen_and_bounds_catch_them(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "training", trial("healthy_before", LOSSES), trial("dies", LOSSES[:5], "bb"))
    frame, text = told(folder)
    assert frame.loc["dies", ["steps_differ", "weights_differ", "steps_lost"]].tolist() == [0, 1, 1]
    assert "1 step lost" in text and "failures: 1 trial with other weights." in text
    bound = {"metric": "weights_differ", "system": "balance", "max": 0}
    assert [b.met for b in held(trial_frame(load_folders([folder])), {"bound": [bound]})] == [False]


def test_slower_steps_and_other_results_are_regressions(tmp_path: Path) -> None:
    def run(name: str, *, slower: int = 1, losses: list[float] = LOSSES, weights: str = "aa") -> Any:
        struck = [trial("dies", losses, weights, trial_id=f"balance-dies-r{r}", repeat=r) for r in range(3)]
        longer = [
            one.model_copy(
                update={
                    "iterations": tuple(
                        i.model_copy(update={"duration_ns": slower * i.duration_ns + one.repeat})
                        for i in one.iterations
                    )
                }
            )
            for one in struck
        ]
        return trial_frame(
            load_folders([stored_run(tmp_path / name, "training", trial("healthy_before", LOSSES), *longer)])
        )

    def worse(new: Any) -> set[str]:
        return {finding.metric for finding in regressions(compare(base, new, DEFAULT))}

    base = run("base")
    assert worse(run("same")) == set()
    assert worse(run("slow", slower=3)) >= {"before_tokens_s", "after_tokens_s", "mean_ms"}
    assert worse(run("losses", losses=[*LOSSES[:5], 4.25])) == {"steps_differ"}
    assert worse(run("weights", weights="bb")) == {"weights_differ"}
    assert "steps_lost" in worse(run("lost", losses=LOSSES[:5]))


def test_healthy_weights_are_held_against_those_of_the_other_run(tmp_path: Path) -> None:
    def run(name: str, *weights: str) -> Any:
        ends = ("healthy_before", "healthy_after")
        healthy = [trial(end, LOSSES, own) for end, own in zip(ends, weights, strict=True)]
        return trial_frame(
            load_folders([stored_run(tmp_path / name, "training", *healthy, trial("dies", LOSSES, "cc"))])
        )

    def differing(frame: Any) -> list[float]:
        return list(frame[frame["scenario"] == "healthy"]["weights_differ"])

    base, alike, changed, once = (
        run("base", "aa", "aa"),
        run("alike", "aa", "aa"),
        run("b", "bb", "bb"),
        run("c", "aa", "bb"),
    )
    assert [differing(held_against(base, new)[1]) for new in (alike, changed)] == [[0, 0], [1, 1]]
    assert sorted(differing(held_against(base, once)[1])) == [0, 1]
    assert differing(held_against(base, changed)[0]) == [0, 0]
    (found,) = regressions(compare(*held_against(base, changed), DEFAULT))
    assert (found.metric, found.told) == ("weights_differ", (0, 2)) and "healthy" in found.case
    assert not regressions(compare(*held_against(base, alike), DEFAULT))
    assert differing(held_against(once, changed)[1]) == pytest.approx(differing(changed), nan_ok=True)


def test_a_run_without_failures_is_not_held_against_itself(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "training", trial("healthy_before", LOSSES))
    frame, _ = told(folder)
    assert frame.loc["healthy", ["steps_differ", "weights_differ", "steps_lost"]].isna().all()
    bound = {"metric": "weights_differ", "system": "balance", "max": 0}
    assert [b.met for b in held(trial_frame(load_folders([folder])), {"bound": [bound]})] == [None]


def test_without_a_run_without_failures_nothing_is_claimed(tmp_path: Path) -> None:
    _, text = told(stored_run(tmp_path, "training", trial("dies", LOSSES)))
    assert "no run without failures to hold losses and weights against" in text


def test_a_trial_that_ended_says_after_how_many_steps(tmp_path: Path) -> None:
    error = {"rank": 1, "message": "gone", "t_ns": 2_250_000_000, "after_fault_ns": 1_000_000_000}
    stopped = trial("dies", LOSSES[:2], "", status="failed", error=error, result={})
    _, text = told(stored_run(tmp_path, "training", trial("healthy_before", LOSSES), stopped))
    assert "training ended with an error in each of 1 trial, 1000 ms after the fault (4 steps lost)" in text


def stops(after: int, **more: Any) -> Trial:
    """A trial that ends with an error after so many steps, and so has no final weights."""
    error = {"rank": 1, "message": "gone", "t_ns": 2_250_000_000, "after_fault_ns": 1_000_000_000}
    return trial("dies", LOSSES[:after], status="failed", **{"error": error, "result": {}} | more)


def test_the_first_screen_says_how_many_steps_a_stopped_system_lost(tmp_path: Path) -> None:
    def after(*trials: Trial, name: str) -> Any:
        folder = stored_run(tmp_path / name, "training", trial("healthy_before", LOSSES), *trials)
        (row,) = overview(headline(trial_frame(load_folders([folder]))))
        return row["after"]

    one = after(stops(3), name="one")
    assert one.text == "stopped" and one.caveat.splitlines() == ["lost 3 steps"]
    both = after(stops(3), stops(2, trial_id="balance-dies-r1", repeat=1), name="both")
    assert both.caveat.splitlines() == ["lost 7 steps in 2 trials"]
    lasting = trial("slow", LOSSES, trial_id="balance-slow-r0")
    assert after(stops(3), lasting, name="some").caveat.splitlines() == ["stopped: dies", "lost 3 steps"]
    assert not after(lasting, name="none").caveat


def test_steps_that_were_not_done_have_no_other_loss_and_no_weights_are_no_other_weights(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "training", trial("healthy_before", LOSSES), stops(3))
    frame, _ = told(folder)
    assert frame.loc["dies", ["steps_differ", "steps_lost"]].tolist() == [0, 3]
    assert math.isnan(frame.loc["dies", "weights_differ"])
    bounds = [{"metric": name, "max": 0} for name in ("steps_differ", "weights_differ")]
    assert [b.met for b in held(trial_frame(load_folders([folder])), {"bound": bounds})] == [True, None]


def test_a_step_that_was_left_out_shifts_no_other(tmp_path: Path) -> None:
    short = trial("dies", LOSSES)
    short = short.model_copy(update={"iterations": (*short.iterations[:3], *short.iterations[4:])})
    frame, _ = told(stored_run(tmp_path, "training", trial("healthy_before", LOSSES), short))
    assert frame.loc["dies", ["steps_differ", "steps_lost"]].tolist() == [0, 1]


def test_what_is_known_of_some_trials_is_not_told_of_all(tmp_path: Path) -> None:
    before = {"error": {"rank": 1, "message": "gone", "t_ns": None, "after_fault_ns": None}}
    both = [stops(2, trial_id="balance-dies-r0"), stops(3, trial_id="balance-dies-r1", repeat=1, **before)]
    _, text = told(stored_run(tmp_path / "stopped", "training", trial("healthy_before", LOSSES), *both))
    assert "each of 2 trials, 1000 ms after the fault (known in 1 of 2 trials) (3.5 steps lost)" in text
    mixed = [trial("dies", LOSSES), stops(2, trial_id="balance-dies-r1", repeat=1)]
    _, text = told(stored_run(tmp_path / "mixed", "training", trial("healthy_before", LOSSES), *mixed))
    assert "struck in mid-backward in 1 of 1 trial (1 not known); 4 steps lost, 0.15 s lost (known in 1 of 2" in text
    same = "every loss and the final weights (known in 1 of 2 trials) are bit for bit those of the run without failures"
    assert f"{same}; 1 of 2 trials ended with an error" in text


def test_speeds_of_a_fault_that_comes_and_goes_are_of_all_steps_until_the_repair(tmp_path: Path) -> None:
    flap = {"evidence": {"comes_and_goes": True}}
    folders = [
        stored_run(tmp_path / n, "training", trial("dies", LOSSES, **more)) for n, more in (("a", {}), ("b", flap))
    ]
    lasting, flapping = (told(folder)[1] for folder in folders)
    assert "while it lasted" in lasting and "while it lasted" not in flapping
    assert "over all steps while it came and went" in flapping


def test_a_speed_after_the_repair_without_the_nic_says_so(tmp_path: Path) -> None:
    dies = trial("dies", LOSSES)
    assert dies.fault is not None
    lost = {"t_ns": 1_260_000_000, "kind": "path_down", "nic": "eth0"}
    healed = dies.fault.model_copy(update={"heal_ns": 1_499_000_000})
    out = dies.model_copy(update={"fault": healed, "core": {"0": {"events": [lost]}}})
    assert "10000 after the repair (NIC not back in 1 of 1)" in told(stored_run(tmp_path / "out", "training", out))[1]
    assert "NIC not back" not in told(stored_run(tmp_path / "unhealed", "training", dies))[1]


def test_what_a_step_costs_is_not_known_where_t_over_t0_is_not(tmp_path: Path) -> None:
    noisy = trial("dies", LOSSES, evidence={"comes_and_goes": True})
    phases = ["before"] * 4 + ["hit"] + ["after"] * 3
    steps = [
        noisy.iterations[0].model_copy(
            update={"iteration": i, "phase": phase, "t_ns": i, "duration_ns": ms * 1_000_000}
        )
        for i, (phase, ms) in enumerate(zip(phases, [100, 500, 100, 100, 300, 200, 200, 200], strict=True))
    ]
    frame, text = told(stored_run(tmp_path, "training", noisy.model_copy(update={"iterations": tuple(steps)})))
    assert frame.loc["dies", ["slowdown", "overhead"]].isna().all()
    assert "A step after" not in text


def test_a_restart_from_a_checkpoint_is_told_part_by_part(tmp_path: Path) -> None:
    stopped = trial("dies", LOSSES)
    hit = stopped.iterations[2]
    took = {"failed_after_ms": 250.0, "restart_ms": 4000.0, "reload_ms": 30.0, "redo_ms": 300.0, "steps_again": 2.0}
    hit.measures.update(took)
    frame, text = told(stored_run(tmp_path, "training", trial("healthy_before", LOSSES), stopped))
    assert frame.loc["dies", "noticed_ms"] == pytest.approx(250 - 50)
    assert frame.loc["dies", ["restart_ms", "reload_ms", "redo_ms", "steps_again"]].tolist() == [4000, 30, 300, 2]
    halves = [stopped, stopped.model_copy(update={"trial_id": "balance-dies-r1", "repeat": 1})]
    halves[1] = halves[1].model_copy(
        update={
            "iterations": tuple(
                i.model_copy(update={"measures": {**i.measures, "steps_again": 1.0}}) if i.phase == "hit" else i
                for i in stopped.iterations
            )
        }
    )
    _, both = told(stored_run(tmp_path / "both", "training", trial("healthy_before", LOSSES), *halves))
    assert "to do 1.5 steps again" in both
    parts = "0.2 s to notice, 4 s to start again, 0.03 s to read the checkpoint, 0.3 s to do 2 steps again"
    assert parts in text


def test_the_page_is_made_and_names_steps(tmp_path: Path) -> None:
    page = write_report(
        stored_run(tmp_path, "training", trial("healthy_before", LOSSES), trial("dies", LOSSES))
    ).read_text()
    assert "6 steps</summary>" in page and "loss 5.5" in page and "tokens/s" in page
    assert "nccl-tests" not in page, "no bus bandwidth is in its tables"
    assert measures({"forward_ms": 17.334, "loss": 5.5}) == "forward 17.334 ms, loss 5.5"
    assert measures({"answer": 2_611_425_246.0}) == "answer 2611425246", "as rows.csv has it"


@pytest.mark.parametrize(("last", "bad"), [(LOSSES[-1], False), (4.25, True)])
def test_the_first_screen_counts_steps_with_another_loss_and_marks_them(tmp_path: Path, last: float, bad: bool) -> None:
    struck = trial("dies", [*LOSSES[:-1], last])
    folder = stored_run(tmp_path, "training", trial("healthy_before", LOSSES), struck)
    lines = headline(trial_frame(load_folders([folder])))
    (row,) = overview(lines)
    assert (row["wrong"].text, row["wrong"].bad) == (str(int(bad)), bad)
    screen = screen_of(lines)
    assert (screen.columns[-1].heading, screen.columns[-1].under) == ("other losses", "steps")
    assert "rounds otherwise after a fault" in screen.terms["Other losses"]
    first = write_report(folder).read_text().partition('<table class="overview')[2].partition("</table>")[0]
    assert ('class="n bad"' in first) == bad and "elements" not in first


def test_other_weights_alone_are_seen_on_the_first_screen_and_on_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trials = [trial("healthy_before", LOSSES), trial("dies", LOSSES, "bb")]
    folder = stored_run(tmp_path, "training", *trials)
    (row,) = overview(headline(trial_frame(load_folders([folder]))))
    assert (row["wrong"].text, row["wrong"].bad) == ("0 steps, 1 trial", True)
    assert "trials with other final weights" in row["wrong"].caveat
    own = {line.points: line.values for line in table(trials)}
    assert (own["dies"]["steps_differ"], own["dies"]["weights_differ"]) == (0, 1)
    ConsoleProgress(Console(width=160, force_terminal=False))._print_summary(table(trials))
    shown = capsys.readouterr().out
    assert "losses" in shown and "weights" in shown and "T/T0" in shown
    assert re.search(r"\n +before +after +T/T0", shown), "the unit of the speed before is no heading"


def test_metrics_of_training_are_no_collective_s() -> None:
    assert METRICS["steps_differ"].is_of("training") and not METRICS["steps_differ"].is_of("collective")
    assert not METRICS["before_gbs"].is_of("training") and METRICS["lost_ms"].is_of("training")


def test_what_a_step_costs_is_told_of_all_systems_side_by_side(tmp_path: Path) -> None:
    measured = [trial("dies", LOSSES, trial_id=f"balance-r{r}", repeat=r) for r in range(5)]
    modelled = trial("dies", LOSSES, trial_id="model-r0", system="balance_model", evidence={"simulated": {}})
    frame = trial_frame(load_folders([stored_run(tmp_path, "training", *measured, modelled)]))
    assert frame["overhead"].tolist() == pytest.approx([0.5] * 6)
    text = " ".join(sentences(frame, []))
    assert "A step after dies takes longer than one before it by: balance 50 %, balance_model (simulated) 50 %." in text


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ([0.5, None], "balance (not known in 1 of 2 trials, 50 % in the other)"),
        ([0.5, 0.9, None, None], "balance (not known in 2 of 4 trials, at worst 90 % in the others)"),
        ([None, None], "balance (not known in 2 of 2 trials)"),
        ([0.5, 0.51, 0.52, None], "balance 51 % (range 50 to 52, known in 3 of 4 trials)"),
    ],
)
def test_what_a_step_costs_is_told_with_the_trials_in_which_it_is_not_known(
    tmp_path: Path, known: list[float | None], told: str
) -> None:
    trials = [trial("dies", LOSSES, trial_id=f"balance-r{r}", repeat=r) for r in range(len(known))]
    other = trial("dies", LOSSES, trial_id="other-r0", system="other")
    frame = trial_frame(load_folders([stored_run(tmp_path, "training", *trials, other)]))
    own = frame["system"] == "balance"
    frame.loc[own, "overhead"] = pd.Series(known, index=frame.index[own], dtype=float)
    frame.loc[own, "disturbed_slowdown"] = frame.loc[own, "overhead"].isna()
    assert f"longer than one before it by: {told}, other 50 %." in " ".join(sentences(frame, []))


def test_the_speed_is_in_tokens_even_where_none_is_known_before_the_fault(tmp_path: Path) -> None:
    struck = trial("dies", LOSSES)
    late = [i.model_copy(update={"phase": "hit"}) if i.phase == "before" else i for i in struck.iterations]
    folder = stored_run(tmp_path, "training", struck.model_copy(update={"iterations": tuple(late)}))
    lines = headline(trial_frame(load_folders([folder])))
    assert screen_of(lines).unit == "tokens/s"
    (row,) = overview(lines)
    assert row["healthy"].text == "\N{EN DASH}" and row["after"].text != "\N{EN DASH}"


def test_a_remedy_names_the_key_of_training(tmp_path: Path) -> None:
    struck = trial("dies", LOSSES)
    only = [i.model_copy(update={"phase": "hit"}) for i in struck.iterations if i.phase != "repaired"]
    folder = stored_run(tmp_path, "training", struck.model_copy(update={"iterations": tuple(only)}))
    text = " ".join(sentences(trial_frame(load_folders([folder])), []))
    assert "no trial has steps both before and after the fault" in text and "raise workload.steps)" in text


def test_a_figure_of_training_has_no_axis_of_sizes(tmp_path: Path) -> None:
    folder = stored_run(tmp_path, "training", trial("healthy_before", LOSSES), trial("dies", LOSSES))
    frame = trial_frame(load_folders([folder]))
    (ax,) = slowdown.draw(frame[frame["scenario"] == "dies"]).axes
    assert ax.get_xlabel() == "by system, as in the legend" and not len(ax.get_xticks())
