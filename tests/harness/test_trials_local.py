"""Failures in trials of a real sweep: several at once, again and again, by chance, by bytes, and without effect."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults.base import Order, Recipe, Target
from faults.blackhole import Blackhole
from faults.nic_down import NicDown
from harness.cluster import rights
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment.file import load
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.load import LoadedRun, counters, load_folder
from reports.measures import views
from reports.trial import Trial

TRIALS = Path(__file__).with_name("trials.toml")

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


def swept(runs: Path, *settings: str) -> tuple[ExitCode, LoadedRun]:
    experiment = load(TRIALS, settings)
    request = Request(experiment, "", plan(experiment), runs)
    folder, _ = open_folder(request, SilentProgress())
    status = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())
    return status, load_folder(folder.path)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedRun]:
    status, loaded = swept(tmp_path_factory.mktemp("runs"))
    assert status is ExitCode.OK, [(t.trial_id, t.status, t.reason) for t in loaded.trials]
    yield loaded


@pytest.fixture
def trial(run: LoadedRun) -> Callable[[str], Trial]:
    """The last attempt at the trial with that fault."""
    return lambda name: [t for t in run.trials if t.trial_id.startswith(f"balance-4MiB-{name}-r0")][-1]


def phases(trial: Trial) -> list[str]:
    """Those of the timed iterations, each as often as it comes anew."""
    timed = [i.phase for i in sorted(trial.iterations, key=lambda i: i.iteration) if i.phase != "warmup"]
    return timed[:1] + [now for was, now in pairwise(timed) if was != now]


def proven(trial: Trial) -> bool:
    injections = trial.evidence.strikes
    return bool(injections) and all(s["missing"] == [] and s["left"] == [] for s in injections)


def events(trial: Trial, kind: str) -> list[Mapping[str, Any]]:
    return [event for core in trial.core.values() for event in core["events"] if event["kind"] == kind]


def test_failures_that_overlap_are_each_proven_and_healed(trial: Callable[[str], Trial]) -> None:
    made = trial("overlapping")
    assert made.status == "ok" and proven(made) and made.fault is not None
    (other,) = made.further_faults
    assert (other.kind, other.host, other.nic) == ("blackhole", "host2", "eth1")
    assert made.fault.heal_ns is not None
    assert made.fault.t_after_ns + 100_000_000 <= other.t_after_ns < made.fault.heal_ns, "not at the same time"
    assert phases(made)[:2] == ["before", "hit"]


def test_a_failure_comes_again_and_again(trial: Callable[[str], Trial]) -> None:
    made = trial("twice")
    assert made.status == "ok" and proven(made) and made.fault is not None
    (again,) = made.further_faults
    assert 450e6 < again.t_after_ns - made.fault.t_after_ns < 1500e6
    for fault in (made.fault, again):
        assert fault.heal_ns is not None and fault.heal_ns - fault.t_after_ns > 200e6
    assert phases(made)[:3] in (["before", "hit", "repaired"], ["before", "hit", "after"])
    assert "repaired" in phases(made)


def test_failures_by_chance_are_survived(trial: Callable[[str], Trial]) -> None:
    made = trial("chance")
    assert made.status == "ok" and proven(made)
    assert made.further_faults


def test_a_failure_by_bytes_comes_at_its_share(run: LoadedRun, trial: Callable[[str], Trial]) -> None:
    made = trial("after_bytes")
    assert made.status == "ok" and proven(made)
    taken = counters(run, made)
    assert not isinstance(taken, str)
    of_nic = taken[(taken["host"] == "host1") & (taken["nic"] == "eth1")].sort_values("t_ns")
    moved = of_nic["rx_bytes"] + of_nic["tx_bytes"]

    def by(t_ns: int) -> float:
        return float(np.interp(t_ns, of_nic["t_ns"].to_numpy(), moved.to_numpy()))

    begins = {i.iteration: i.t_ns for i in made.iterations}
    whole = (by(begins[5]) - by(begins[2])) / 3
    # Never before its share; how long after it depends on when a busy machine runs the command.
    assert 0.4 < (float(moved.iloc[-1]) - by(begins[5])) / whole < 0.85


def test_the_busiest_nic_is_one_that_moved_the_most(run: LoadedRun, trial: Callable[[str], Trial]) -> None:
    made = trial("busiest")
    assert made.status == "ok" and proven(made) and made.fault is not None
    assert made.fault.nic in ("eth0", "eth1")
    taken = counters(run, made)
    assert not isinstance(taken, str)
    until = taken[(taken["host"] == "host1") & (taken["t_ns"] < made.fault.t_before_ns)]
    moved = until.groupby("nic").apply(lambda nic: (nic["rx_bytes"] + nic["tx_bytes"]).agg(lambda v: v.max() - v.min()))
    assert moved[made.fault.nic] > 0.9 * moved.max()


@pytest.mark.parametrize("name", ["overlapping", "after_bytes", "busiest"])
def test_a_fault_has_close_samples_right_before_it(run: LoadedRun, trial: Callable[[str], Trial], name: str) -> None:
    """Those of a busiest NIC began once it was chosen, often too late to know which pauses are usual."""
    made = trial(name)
    taken = counters(run, made, apart_ns=0)
    assert not isinstance(taken, str) and made.fault is not None
    at = taken["t_ns"][(taken["host"] == "host1") & (taken["nic"] == "eth0")]
    just_before = at.between(made.fault.t_before_ns - 200_000_000, made.fault.t_before_ns)
    assert just_before.sum() > 50, "20 are those of every 10 ms"
    (view,) = (view for view in views(run) if view.trial.trial_id == made.trial_id)
    assert view.recovery is None or not view.recovery.by_mean


def test_after_a_killed_rank_all_others_say_so_and_end(run: LoadedRun, trial: Callable[[str], Trial]) -> None:
    made = trial("process_kill")
    assert made.status == "failed" and made.expected and made.error is not None
    assert made.error.rank in (0, 2) and "rank 1" in made.error.message
    assert made.error.after_fault_ns is not None and 0 <= made.error.after_fault_ns < 2e9
    for rank in (0, 2):
        log = (run.trial_folder(made) / f"rank{rank}.log").read_text()
        assert "rank 1 is gone" in log or "rank 1" in log.splitlines()[-1]


def test_nobody_fails_over_because_a_rank_is_paused(trial: Callable[[str], Trial]) -> None:
    made = trial("process_pause")
    assert made.status == "ok" and proven(made)
    assert phases(made) == ["before", "hit", "repaired"]
    assert all(nic["paths_down"] == 0 for core in made.core.values() for nic in core["nics"])
    assert events(made, "path_down") == []
    assert all(core["replayed_chunks"] == 0 for core in made.core.values())
    hit = [i.duration_ns for i in made.iterations if i.phase == "hit"]
    assert max(hit) > 300e6


def test_a_host_without_any_nic_comes_back(trial: Callable[[str], Trial]) -> None:
    made = trial("host_isolate")
    assert made.status == "ok" and proven(made)
    assert made.evidence.strikes[0]["signs"] == 6
    assert max(i.duration_ns for i in made.iterations if i.phase == "hit") > 500e6
    assert phases(made) == ["before", "hit", "repaired"]


def test_a_whole_rail_may_go(run: LoadedRun, trial: Callable[[str], Trial]) -> None:
    made = trial("switch_outage")
    assert made.status == "ok" and proven(made) and made.fault is not None
    assert made.evidence.strikes[0]["signs"] == 9
    taken = counters(run, made)
    assert not isinstance(taken, str)
    after = taken[(taken["nic"] == "eth1") & (taken["t_ns"] > made.fault.t_after_ns) & ~taken["up"].astype(bool)]
    assert set(after["host"]) == {"host0", "host1", "host2"}


SLOW = [
    "fault=[{name='slow', at_iteration=2, host='host1', kind='rate_limit', nic='eth0', parameters={rate='4 Mbit/s'}, "
    "also=[{kind='rate_limit', host='host1', nic='eth1', parameters={rate='4 Mbit/s'}}]}]",
    "system.mode=1", "sweep.limits.iteration=1 s", "sweep.retries=0",
]  # fmt: skip
"""Neither NIC of the host goes at its rate, so there is none to move to: an iteration takes 6 s, the limit is 1 s."""


def test_a_slow_iteration_that_a_limit_ended_is_no_failure(tmp_path: Path) -> None:
    status, loaded = swept(tmp_path, *SLOW)
    (made,) = loaded.trials
    assert (status, made.status) == (ExitCode.INCONCLUSIVE, "inconclusive"), made.reason
    # The NICs received for all of that time, unless the machine had its processors elsewhere.
    assert "no rank said anything for 1 s, " in made.reason and made.error is None
    assert "raise sweep.limits.iteration" in made.reason


def without_effect(self: object, target: Target) -> Recipe:
    return Recipe((Order(target.host, ("true",)),), (Order(target.host, ("true",)),))


def unhealed(self: object, target: Target) -> Recipe:
    down = ("ip", "link", "set", "dev", target.nic, "down")
    return Recipe((Order(target.host, down),), (Order(target.host, ("true",)),))


def test_a_fault_without_effect_or_heal_proves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = 'host="host1", nic="eth1", at_iteration=3'
    faults = f'[{{kind="blackhole", {where}}}, {{kind="nic_down", {where}}}]'
    monkeypatch.setattr(Blackhole, "recipe", without_effect)
    monkeypatch.setattr(NicDown, "recipe", unhealed)
    monkeypatch.setattr("harness.sweep.trial.SAME_S", 0.3)
    status, loaded = swept(tmp_path, f"fault={faults}", "sweep.retries=0", "workload.iterations=6")
    assert status is ExitCode.INCONCLUSIVE
    reasons = {trial.trial_id: trial.reason for trial in loaded.trials}
    assert {trial.status for trial in loaded.trials} == {"inconclusive"}
    assert "no 'pref" in reasons["balance-4MiB-blackhole-r0"]
    assert "did not heal" in reasons["balance-4MiB-nic_down-r0"]
