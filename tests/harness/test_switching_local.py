"""Schedules that follow a NIC which really goes down, on the local cluster, every element checked."""

from pathlib import Path
from statistics import median

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment.file import load, read
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.simulated import simulated_record
from harness.sweep.sweep import Request, open_folder, run_sweep
from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports.load import load_folder
from reports.measures import trial_frame
from reports.trial import Trial

TWO_RANKS_A_HOST = {
    "name": "two_ranks",
    "cluster": {"kind": "local", "hosts": 3, "nics": 2, "rate": "400 Mbit/s"},
    "workload": {"sizes": ["4MiB"], "iterations": 16, "gpus": 2},
    "system": [{"use": "r2cc", "env": {"R2CC_AR_MIN_BYTES": "1MiB"}}],
    "fault": [{"kind": "nic_down", "host": "host1", "rail": 1, "at_iteration": 4}],
    "sweep": {"repeats": 1, "retries": 9},
}
OPTCC = Path(__file__).parents[2] / "experiments" / "optcc.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def _durations_ns(trial: Trial, phase: str) -> list[int]:
    return [i.duration_ns for i in trial.iterations if i.phase == phase]


def test_every_schedule_takes_over_after_the_loss(tmp_path: Path) -> None:
    # Its bound on bandwidth is a matter of measurement, which a busy machine may miss.
    settings = ['workload.sizes=["4MiB"]', "workload.iterations=30", "sweep.repeats=1", "bound=[]"]
    experiment = load(OPTCC, settings)
    simulated = {trial.trial_id: trial for trial in plan(load(OPTCC, [*settings, "workload.backend=simulate"]))}
    request = Request(experiment, "", plan(experiment), tmp_path)
    folder, _ = open_folder(request, SilentProgress())

    status = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())

    assert status is ExitCode.OK
    for record in folder.records():
        if record.status == "inconclusive":
            continue
        assert record.status == "ok"
        # A busy machine may be slower than the simulator, which knows no processors; nothing is faster, but for what
        # the rate limits let pass at once after a pause.
        model = simulated_record(simulated[record.cell_id], 1)
        for phase in ("before", "after"):
            measured_ns, model_ns = (median(_durations_ns(trial, phase)) for trial in (record, model))
            assert measured_ns > 0.85 * model_ns
        switched = {
            rank: [event for event in core["events"] if event["kind"] == "switched"]
            for rank, core in record.core.items()
        }
        assert len(switched) == 3
        for events in switched.values():
            assert bool(events) is (record.system != "balance")
            assert all("rank 1 lost NIC 1" in event["detail"] for event in events)


def test_all_ranks_of_a_host_lose_its_nic_and_change_over_together(tmp_path: Path) -> None:
    experiment = read(TWO_RANKS_A_HOST, "two_ranks.toml")
    request = Request(experiment, "", plan(experiment), tmp_path)
    folder, _ = open_folder(request, SilentProgress())

    status = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())

    assert status is ExitCode.OK
    record = next(record for record in folder.records() if record.status != "inconclusive")
    assert (record.status, len(record.iterations)) == ("ok", 17)
    assert {host: core["ranks"] for host, core in record.core.items()} == {"0": [0, 1], "1": [2, 3], "2": [4, 5]}
    assert {nic["name"] for core in record.core.values() for nic in core["nics"]} == {"eth0", "eth1"}
    switched = [e for core in record.core.values() for e in core["events"] if e["kind"] == "switched"]
    assert len(switched) == 6
    assert all("r2cc_all_reduce" in event["detail"] and "host 1 lost NIC 1" in event["detail"] for event in switched)
    row = trial_frame([load_folder(folder.path)]).iloc[-1]
    assert (row["hosts"], row["ranks"], row["model"]) == (3, 6, pytest.approx(predicted_ratio(6, 1 / 2, 4)))
    first = record.iterations[0]
    assert first.busbw_gbs == pytest.approx(first.algbw_gbs * 5 / 3)
