"""Simulated trials: the experiment files for real hosts, without hosts; faults on the simulator's own topology."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.backends.simulate import calibrated, cost_of
from harness.cluster.base import Cluster
from harness.cluster.spec import ClusterSpec
from harness.errors import ExitCode
from harness.experiment.file import load, read
from harness.publish import publish
from harness.sweep.plan import Only, plan, select
from harness.sweep.preflight import preflight
from harness.sweep.progress import SilentProgress
from harness.sweep.simulated import is_simulated, simulated_record
from harness.sweep.sweep import Request, open_folder, run_sweep
from harness.workloads.training import SHAPES, TrainingWorkload
from r2ccl_core.errors import UsageError
from r2ccl_core.model.schedule import Schedule
from r2ccl_core.planning.bound import bound_s, fault_free_ring_s
from r2ccl_core.planning.simulate import Timing, simulate
from r2ccl_core.schedules import ring
from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import trial as stored
from reports.load import load_folder
from reports.measures import trial_frame
from reports.rows import rows_table

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FAULT = {"kind": "nic_down", "host": "host1", "rail": 1, "at_iteration": 2, "into": 0.5}
DOCUMENT: dict[str, Any] = {
    "name": "small",
    "cluster": {"kind": "local", "hosts": 3, "nics": 3, "rate": "500 Mbit/s"},
    "workload": {"backend": "simulate", "sizes": ["8MiB"], "iterations": 5, "warmup": 1},
    "system": [{"use": "balance"}],
    "fault": [FAULT],
    "sweep": {"repeats": 1},
}


def record(system: Mapping[str, Any] | None = None, fault: Mapping[str, Any] | None = None, **tables: Any) -> Any:
    """The only trial of the small experiment, changed by keys of its tables."""
    document = {**DOCUMENT, **{key: {**DOCUMENT[key], **more} for key, more in tables.items()}}
    document |= {"system": [system]} if system else {}
    document |= {"fault": [fault]} if fault else {}
    return simulated_record(plan(read(document, "small.toml"))[0], 1)


def ms(trial: stored.Trial, phase: str) -> list[float]:
    return [i.duration_ns / 1e6 for i in trial.iterations if i.phase == phase]


def test_a_trial_says_what_its_scenario_is() -> None:
    """Also one that stops after the first of its failures is judged as the others of its cell."""
    told = record().evidence
    assert (told.several, told.comes_and_goes, told.lasts_s) == (False, False, None)
    again = FAULT | {"times": 2, "every": "2 s", "lasts": "1 s"}
    stopped = record({"use": "failstop"}, again)
    assert (stopped.status, len(stopped.faults)) == ("failed", 1)
    told = stopped.evidence
    assert (told.several, told.comes_and_goes, told.lasts_s) == (True, True, 1.0)


def sweep(path: Path, runs: Path, only: Only, *settings: str) -> tuple[ExitCode, Path]:
    def none(spec: ClusterSpec) -> Cluster:
        raise AssertionError("a simulated sweep needs no cluster")

    experiment = load(path, ["workload.backend=simulate", *settings])
    preflight(experiment, str(path))
    request = Request(experiment, path.read_text(), select(plan(experiment), only), runs, only)
    folder, _ = open_folder(request, SilentProgress())
    return run_sweep(request, folder, none, publish, SilentProgress()), folder.path


def test_a_lost_nic_costs_the_ring_its_share_and_the_hit_iteration_half_of_that() -> None:
    trial = record()
    assert (trial.status, trial.expected, trial.evidence.struck_iteration) == ("ok", True, 2)
    assert trial.evidence.timed_whole
    (before, *_), (hit,), (after, *_) = ms(trial, "before"), ms(trial, "hit"), ms(trial, "after")
    assert before == pytest.approx(fault_free_ring_s(3, 3 * 500e6 / 8 * 0.956, 8 << 20) * 1e3, rel=1e-3)
    assert after / before == pytest.approx(1.5, rel=1e-3)
    assert hit / before == pytest.approx(1.25, rel=0.02)


@pytest.mark.parametrize(
    ("system", "ratio"),
    [
        ({"use": "hot_repair"}, 2.0),
        ({"use": "r2cc", "env": {"R2CC_AR_MIN_BYTES": "1MiB"}}, predicted_ratio(3, 1 / 3, 4)),
        ({"use": "forest"}, 1.125),
        ({"use": "auto"}, 1.125),
    ],
)
def test_after_the_loss_every_system_runs_what_the_runtime_would_run(system: dict[str, Any], ratio: float) -> None:
    trial = record(system, workload={"sizes": ["64MiB"]})
    assert ms(trial, "after")[0] / ms(trial, "before")[0] == pytest.approx(ratio, rel=0.04)
    assert trial.simulated is not None
    assert trial.simulated["bound_s"] <= ms(trial, "after")[0] / 1e3


@pytest.mark.parametrize(
    ("system", "ratio"),
    [
        ({"use": "balance"}, 1.5),
        ({"use": "hot_repair"}, 2.0),
        ({"use": "r2cc", "env": {"R2CC_AR_MIN_BYTES": "1MiB"}}, predicted_ratio(6, 1 / 3, 4)),
    ],
)
def test_with_two_ranks_a_host_the_ring_has_them_all(system: dict[str, Any], ratio: float) -> None:
    """The published cluster: six ranks on three hosts."""
    trial = record(system, workload={"sizes": ["64MiB"], "gpus": 2})
    before_ms = ms(trial, "before")[0]
    assert before_ms == pytest.approx(fault_free_ring_s(6, 3 * 500e6 / 8 * 0.956, 64 << 20) * 1e3, rel=1e-3)
    assert ms(trial, "after")[0] / before_ms == pytest.approx(ratio, rel=0.01)
    busbw = next(i.busbw_gbs for i in trial.iterations if i.phase == "before")
    assert busbw == pytest.approx(3 * 500e6 / 8 * 0.956 / 1e9, rel=1e-3)


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall"])
def test_every_collective_runs_on_two_ranks_a_host(collective: str) -> None:
    trial = record(
        workload={"collective": collective, "sizes": ["8MiB"], "gpus": 2, "root": 5 * (collective[0] in "br")}
    )
    assert (trial.status, trial.expected) == ("ok", True)
    assert trial.simulated is not None
    assert ms(trial, "after")[0] > ms(trial, "before")[0] > 0


TRAINING: dict[str, Any] = {
    "kind": "training",
    "backend": "simulate",
    "steps": 6,
    "warmup": 1,
    "simulation": {"compute": "30 ms"},
}


def step(system: Mapping[str, Any] | None = None, **workload: Any) -> Any:
    """The only trial of a small training, 3 hosts with 3 NICs of 500 Mbit/s each."""
    document = {**DOCUMENT, "workload": {**TRAINING, **workload}}
    return simulated_record(plan(read(document | ({"system": [system]} if system else {}), "small.toml"))[0], 1)


GRADIENTS_S = 4 / 3 * 4 * SHAPES["1M"].parameters(64) / (3 * 500e6 / 8 * 0.956)
"""A ring's time for all of them."""


def test_a_training_step_hides_what_ddp_hides() -> None:
    trial = step()
    assert (trial.status, trial.expected, trial.evidence.struck_iteration) == ("ok", True, 2)
    assert trial.iterations[0].measures["tokens"] == 3 * 4 * 64
    first_ready_s = 0.03 / 3 + 0.02 * step_buckets()[0] / sum(step_buckets())
    before, after = ms(trial, "before")[0] / 1e3, ms(trial, "after")[0] / 1e3
    assert before == pytest.approx(first_ready_s + GRADIENTS_S, rel=0.02)
    assert after == pytest.approx(first_ready_s + 1.5 * GRADIENTS_S, rel=0.02)
    alone = ms(step(simulation={"compute": "5 s"}), "before")[0] / 1e3
    last_s = GRADIENTS_S * step_buckets()[-1] / sum(step_buckets())
    assert alone == pytest.approx(5 + last_s, rel=0.001), "only the last bucket is left when backward is over"


def step_buckets() -> list[int]:
    return TrainingWorkload(kind="training").buckets()


def test_a_wrong_topology_or_a_dropped_bucket_is_outside_what_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of experiments/simulator_agrees_training.toml, which allows a tenth."""
    right = ms(step(), "before")[0]
    document = {**DOCUMENT, "workload": TRAINING, "cluster": {**DOCUMENT["cluster"], "nics": 2}}
    narrow = ms(simulated_record(plan(read(document, "small.toml"))[0], 1), "before")[0]
    assert narrow / right > 1.3
    buckets = step_buckets()
    monkeypatch.setattr(TrainingWorkload, "buckets", lambda self: buckets[1:])
    assert ms(step(), "before")[0] / right < 0.9


def test_a_wrong_topology_or_a_dropped_hop_is_outside_what_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control of experiments/simulator_agrees.toml, which allows a tenth."""
    right = ms(record(), "before")[0]
    assert ms(record(cluster={"nics": 2}), "before")[0] / right > 1.3

    def shorter(schedule: Schedule, *given: Any, **more: Any) -> Timing:
        return simulate(ring.all_reduce(3, slices=schedule.nchunks // 3, hops=3), *given, **more)

    monkeypatch.setattr("harness.sweep.simulated.simulate", shorter)
    assert ms(record(), "before")[0] / right < 0.9


def test_buckets_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    from harness.backends.gpt import Gpt

    workload = TrainingWorkload(kind="training")
    shape = SHAPES[workload.model]
    parameters = list(Gpt(*shape, workload.context).parameters())
    assert [p.numel() for p in parameters] == shape.tensors(workload.context)
    numbers, _ = torch.distributed._compute_bucket_assignment_by_size(parameters[::-1], [workload.bucket_bytes])
    assert [sum(4 * parameters[::-1][i].numel() for i in one) for one in numbers] == workload.buckets()


def test_a_run_tells_how_long_hosts_compute(tmp_path: Path) -> None:
    """Backward takes twice as long as the forward pass that its steps told."""
    trial = step()
    steps = [i.model_copy(update={"measures": {**i.measures, "forward_ms": 20.0}}) for i in trial.iterations]
    run = stored_run(tmp_path, trial.model_copy(update={"iterations": tuple(steps)}))
    assert ms(step(simulation={"calibration": str(run)}), "before") == pytest.approx(
        ms(step(simulation={"compute": "60 ms"}), "before")
    )
    with pytest.raises(UsageError, match=r"none of its trials reported a forward pass; name a run of kind = .training"):
        step(simulation={"calibration": str(stored_run(tmp_path / "other", trial))})


def stored_run(path: Path, trial: stored.Trial) -> Path:
    run = path / "run"
    (run / "trials" / trial.trial_id).mkdir(parents=True)
    stored.save(run / "run.json", stored.Run(experiment={}, started="2025-01-01T00:00:00Z"))
    stored.save(run / "trials" / trial.trial_id / "trial.json", trial)
    return run


def test_what_is_healed_in_mid_collective_counts_from_then_on() -> None:
    """400 MiB/s for 8 MiB: an iteration lasts 62 ms whole; the NIC is gone for 100 ms of it."""
    trial = record(fault={**FAULT, "lasts": "100 ms"}, workload={"iterations": 9})
    before, (first, second, *_) = ms(trial, "before")[0], ms(trial, "hit") + ms(trial, "after") + ms(trial, "repaired")
    assert first > before
    assert before < second < 1.5 * before
    assert ms(trial, "repaired")[-1] == pytest.approx(before)


def test_a_failure_stops_what_fails_stop_and_a_killed_rank_stops_all() -> None:
    stopped = record({"use": "failstop"})
    assert (stopped.status, stopped.expected, len(ms(stopped, "before"))) == ("failed", True, 2)
    assert stopped.error.after_fault_ns == 0
    killed = record(fault={"kind": "process_kill", "host": "host1", "at_iteration": 2})
    assert (killed.status, killed.expected) == ("failed", True)
    alone = record(fault={"kind": "host_isolate", "host": "host1", "at_iteration": 2})
    assert alone.status == "failed"


@pytest.mark.parametrize(
    ("use", "after", "status"),
    [("balance", "100 ms", "ok"), ("balance", "100 s", "inconclusive"), ("failstop", "100 s", "failed")],
)
def test_a_trial_that_ended_before_a_further_failure_is_none_of_its_scenario(use: str, after: str, status: str) -> None:
    trial = record({"use": use}, FAULT | {"also": [{"kind": "nic_down", "host": "host2", "rail": 2, "after": after}]})
    assert trial.status == status and len(trial.faults) == (2 if status == "ok" else 1)
    assert ("a longer workload.min_duration adds iterations" in trial.reason) == (status == "inconclusive")


def test_a_slow_nic_is_slow_and_not_lost() -> None:
    trial = record({"use": "auto"}, {**FAULT, "kind": "rate_limit", "parameters": {"share": 0.5}})
    assert ms(trial, "after")[0] / ms(trial, "before")[0] == pytest.approx(3 / 2.5, rel=0.02)
    assert trial.simulated is not None
    assert trial.simulated["schedules"] == ["from iteration -1: ring"]


def test_what_a_simulation_cannot_show_is_inconclusive() -> None:
    trial = record(fault={"kind": "process_pause", "host": "host1", "at_iteration": 2, "lasts": "90 ms"})
    assert (trial.status, trial.reason.split(":")[0]) == ("inconclusive", "the simulator knows bandwidths only")


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "broadcast", "reduce", "sendrecv", "alltoall"])
def test_every_collective_comes_near_its_bound(collective: str) -> None:
    trial = record(workload={"collective": collective, "sizes": ["64MiB"]})
    assert trial.simulated is not None
    assert 1 - 1e-6 <= ms(trial, "after")[0] / 1e3 / trial.simulated["bound_s"] < 1.1


def test_a_message_costs_what_is_said_or_what_was_measured(tmp_path: Path) -> None:
    dear, free = (record(workload={"simulation": {"alpha": alpha}}) for alpha in ("1 ms", "0 s"))
    assert ms(dear, "before")[0] > ms(free, "before")[0] + 4
    measured = free.model_copy(update={"core": {"0": {"cost": {"alpha_s": 2e-4, "nic_bytes_s": 5e7}}}})
    run = stored_run(tmp_path, measured)
    workload = {**DOCUMENT["workload"], "simulation": {"calibration": str(run)}}
    unlimited = {"kind": "local", "hosts": 3, "nics": 3}
    cost = cost_of(read({**DOCUMENT, "workload": workload, "cluster": unlimited}, "small.toml"))
    assert (cost.alpha_s, cost.nic_bytes_s) == (2e-4, 500e6 / 8 * 0.956)  # 500 Mbit/s is a local cluster's default
    stored.save(run / "trials" / free.trial_id / "trial.json", free)
    calibrated.cache_clear()
    with pytest.raises(UsageError, match=r"calibration.*none of its trials measured"):
        cost_of(read({**DOCUMENT, "workload": workload}, "small.toml"))


@pytest.mark.parametrize("name", ["optcc", "k_sweep", "cloudlab_r7525", "schedules", "schedules_six_hosts"])
def test_the_files_for_real_hosts_are_simulated_with_one_setting(name: str) -> None:
    experiment = load(EXPERIMENTS / f"{name}.toml", ["workload.backend=simulate"])
    trials = [t for t in plan(experiment) if t.size_bytes == experiment.workload.sizes_bytes[-1] and t.repeat == 0]
    assert all(map(is_simulated, trials))
    healthy = [ms(simulated_record(trial, 1), "before")[0] for trial in trials]
    assert max(healthy) / min(healthy) == pytest.approx(1, rel=0.02)


def test_a_sweep_without_hosts_is_labelled_wherever_its_numbers_are_shown(tmp_path: Path) -> None:
    status, run = sweep(EXPERIMENTS / "optcc.toml", tmp_path, {"system": ("balance", "forest"), "repeat": ("0",)})
    assert status is ExitCode.OK
    loaded = load_folder(run)
    frame = trial_frame([loaded])
    assert set(frame["system"]) == {"balance (simulated)", "forest (simulated)"}
    assert set(rows_table(run.name, loaded.run, loaded.trials)["source"].to_pylist()) == {"simulated"}
    page = (run / "report.html").read_text()
    assert "SIMULATED, not measured: no byte was moved" in page
    assert "forest</td>" not in page.replace("forest (simulated)", "")


def test_the_gap_to_the_bound_is_drawn_over_hosts_and_bandwidth(tmp_path: Path) -> None:
    """The smallest clusters of the experiment; its own bound, 3 % for the planner's choice, is held."""
    few = "axis[0].values=[[3],[4]]", "workload.sizes=['256MiB']"
    only = {"system": ("best", "ring"), "x": ("0.5", "0.75")}
    status, run = sweep(EXPERIMENTS / "bound_gap.toml", tmp_path, only, *few)
    assert status is ExitCode.OK
    assert [path.name for path in (run / "figures").glob("*.svg")] == ["bound_gap.svg"]
    frame = trial_frame([load_folder(run)])
    ring = frame[(frame["system"] == "ring (simulated)") & (frame["hosts"] == 3) & (frame["remaining"] == 0.5)]
    assert float(ring["gap"].iloc[0]) == pytest.approx(8 / 3 / bound_s("all_reduce", [0.5, 1, 1], 1.0) - 1, rel=1e-3)
