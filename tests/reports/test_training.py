"""Training in reports: what is held bit for bit against the run without failures, and how it is told."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from synthetic_run import stored_run

from reports.bounds import held
from reports.figures import overview as figure
from reports.headline import headline
from reports.load import load_folders
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.report import write_report
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
    assert sorted(figure.names(rows)) == ["pp2", "tp2"]
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
    assert frame.loc["dies", ["steps_differ", "weights_differ", "steps_lost"]].tolist() == [1, 1, 1]
    assert "1 step lost" in text and "1 trial with other weights" in text
    bound = {"metric": "weights_differ", "system": "balance", "max": 0}
    assert [b.met for b in held(trial_frame(load_folders([folder])), {"bound": [bound]})] == [False]


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


def test_a_restart_from_a_checkpoint_is_told_part_by_part(tmp_path: Path) -> None:
    stopped = trial("dies", LOSSES)
    hit = stopped.iterations[2]
    took = {"failed_after_ms": 250.0, "restart_ms": 4000.0, "reload_ms": 30.0, "redo_ms": 300.0, "steps_again": 2.0}
    hit.measures.update(took)
    frame, text = told(stored_run(tmp_path, "training", trial("healthy_before", LOSSES), stopped))
    assert frame.loc["dies", "noticed_ms"] == pytest.approx(250 - 50)
    assert frame.loc["dies", ["restart_ms", "reload_ms", "redo_ms", "steps_again"]].tolist() == [4000, 30, 300, 2]
    parts = "0.2 s to notice, 4 s to start again, 0.03 s to read the checkpoint, 0.3 s to do 2 steps again"
    assert parts in text


def test_the_page_is_made_and_names_steps(tmp_path: Path) -> None:
    page = write_report(
        stored_run(tmp_path, "training", trial("healthy_before", LOSSES), trial("dies", LOSSES))
    ).read_text()
    assert "6 steps</summary>" in page and "loss 5.5" in page and "tokens/s" in page


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
