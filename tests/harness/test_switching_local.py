"""Schedules that follow a NIC which really goes down, on the local cluster, every element checked."""

from pathlib import Path
from statistics import median

import pytest

from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment_file import load
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.simulated import simulated_record
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.trial import Trial

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
    settings = ['workload.sizes=["4MiB"]', "workload.iterations=60", "sweep.repeats=1", "bound=[]"]
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
