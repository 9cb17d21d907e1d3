"""Serving as a workload: what its table says, and requests on a local cluster while a rail dies."""

import re
from pathlib import Path

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import InvalidExperimentError
from harness.events import RankRecord
from harness.experiment.file import load, read, without_none
from harness.sweep.dry_run import lines
from harness.sweep.estimate import estimate_s
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from harness.workloads.serving import ServingWorkload, no_wrong_tokens

SERVING = Path(__file__).parents[2] / "experiments" / "serving.toml"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["cluster.hosts=1", "fault=[]"], "cluster.hosts: 1: one host computes prompts, others decode"),
        (["cluster.hosts=4"], "cluster.hosts: 4: 3 decode hosts cannot share the 4 heads of a 1M evenly"),
        (["workload.gpus=2"], "workload.gpus: 2: serving has one rank per host"),
        (["workload.prompt=500"], "workload.prompt: 500: with workload.generated more than workload.context, 512"),
        (["workload.trace=no.csv"], f"workload.trace: {SERVING.with_name('no.csv')}: cannot be read: No such file"),
        (["workload.corrupt=14"], "workload.corrupt: 14: requests go from 0 to 13"),
        (
            ["workload.requests=5"],
            "at_iteration: 6: the workload has only the requests 0 to 4; raise workload.requests",
        ),
        (["workload.requests=1"], "at_iteration: 6: the workload has only the request 0; raise workload.requests"),
        (["workload.speed=3"], "workload.speed: 3.0: is of a trace, and there is none; give workload.trace"),
        (["system[0].env.SERVE_ON_FAILURE='restrat'"], "SERVE_ON_FAILURE: restrat: no such policy; did you mean"),
        (["system[0].backend=perf"], "perf runs no serving"),
        (["workload.backend=simulate"], "simulate runs no serving; serve_r2ccl does"),
    ],
)
def test_what_is_wrong_with_a_serving_table_is_one_line(settings: list[str], line: str) -> None:
    with pytest.raises(InvalidExperimentError, match=re.escape(line)):
        load(SERVING, settings)


def test_a_trace_is_looked_for_beside_the_experiment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("asked", "elsewhere"):
        (tmp_path / folder).mkdir()
    trace = tmp_path / "asked" / "trace.csv"
    rows = "".join(f"2023-11-16 18:15:{second:02}.6805900,374,44\n" for second in range(14))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    asked = trace.with_name("serving.toml")
    asked.write_text(SERVING.read_text())
    monkeypatch.chdir(tmp_path)
    made = load(Path("asked/serving.toml"), ["workload.trace=trace.csv"])
    monkeypatch.chdir(tmp_path / "elsewhere")  # where somebody resumes it
    again = read(without_none(made.resolved()), "experiment.json")
    assert isinstance(again.workload, ServingWorkload)
    assert len(again.workload.arrivals()) == 14
    assert again.workload.trace == str(trace)


def test_the_estimate_waits_for_the_requests_to_come() -> None:
    """The dry run told 40 s for 18 such trials, which took 81 s: it summed the time of the requests, between which
    nobody waited for the next one."""
    load_of = ["workload.requests=8", "workload.arrivals_a_second=3.0", "workload.prompt=256", "workload.generated=24"]
    trials = plan(load(SERVING, [*load_of, "workload.warmup=1"]))
    assert 70 < estimate_s(trials[:18], 1) < 85
    serving = load(SERVING, [*load_of, "workload.arrivals_a_second=1000.0"])
    each_s = serving.expected_duration_s(0)
    assert serving.workload.timed_s(8, each_s) > 8 * (each_s - 24 * 0.001), "one prompt is computed after another"


def test_policies_are_systems_of_fail_stop_transport() -> None:
    experiment = load(SERVING)
    told = "\n".join(lines(experiment, plan(experiment)))
    for policy in ("transfer_again", "recompute", "reroute", "restart"):
        assert f"SERVE_ON_FAILURE={policy}" in told
    assert "-m harness.backends.serving.rank" in told
    assert {system.name: system.mode for system in experiment.systems}["restart"] == 0


def test_tokens_that_are_not_right_are_a_finding() -> None:
    ranks = [RankRecord(0), RankRecord(1)]
    ranks[0].take({"event": "done", "t_ns": 1, "result": {"answers": "a", "wrong_tokens": "0"}})
    assert no_wrong_tokens(ranks) == ""
    ranks[0].take({"event": "done", "t_ns": 1, "result": {"answers": "a", "wrong_tokens": "3"}})
    assert no_wrong_tokens(ranks) == "3 tokens differ from those that one host computes alone"


@pytest.mark.slow
@pytest.mark.netns
@pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces")
def test_a_rail_dies_and_the_answers_stay_and_a_spoilt_page_is_found(tmp_path: Path) -> None:
    small = ["workload.requests=4", "workload.warmup=0", "workload.prompt=96", "workload.generated=8"]
    small += ["workload.arrivals_a_second=20", "fault[0].at_iteration=1", "sweep.healthy=off", "bound=[]"]
    small += ["workload.prefill_at_least=50 ms", "workload.step_at_least=20 ms"]
    plain = load(SERVING, [*small, *(f"fault[{i}].at_iteration=1" for i in range(1, 4))])
    spoilt = load(SERVING, [*small, *(f"fault[{i}].at_iteration=1" for i in range(1, 4)), "workload.corrupt=2"])
    found = {}
    for name, experiment, system in (
        ("plain", plain, "balance"),
        ("again", plain, "recompute"),
        ("spoilt", spoilt, "balance"),
    ):
        trials = [t for t in plan(experiment) if t.system.name == system and t.scenario == "transfer"]
        folder, _ = open_folder(Request(experiment, "", trials, tmp_path / name), SilentProgress())
        run_sweep(
            Request(experiment, "", trials, tmp_path / name), folder, make_cluster, lambda _: None, SilentProgress()
        )
        found[name] = max(folder.records(), key=lambda record: record.attempt)
    # On a busy machine the fault may miss, which is another matter; what was answered must be right in any case.
    for name in ("plain", "again"):
        assert found[name].status in ("ok", "inconclusive"), found[name]
        assert found[name].result["wrong_tokens"] == "0"
    assert found["plain"].result == found["again"].result
    for request in found["plain"].iterations:
        assert request.measures["sent_from_ms"] >= 50, "a prompt takes the time of an accelerator"
    # A first token that a busy machine delays makes its request's steps look shorter.
    assert max(request.measures["tpot_ms"] for request in found["plain"].iterations) >= 19, "and so does a step"
    assert found["spoilt"].status == "wrong" and "wrong element" in found["spoilt"].reason
    assert int(found["spoilt"].result["wrong_tokens"]) > 0
    assert [i.iteration for i in found["spoilt"].iterations if i.wrong] == [2]
