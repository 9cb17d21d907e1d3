"""Whole sweeps with real processes and no network: the noop backend on this machine's noop hosts."""

import errno
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.base import Target
from harness.cluster.base import Cluster
from harness.cluster.noop import NoopCluster
from harness.cluster.spec import ClusterSpec, NoopSpec
from harness.errors import ExitCode, SweepError, UnreachableError
from harness.experiment.file import read
from harness.hosts import watch
from harness.hosts.base import Nic
from harness.hosts.noop import NoopHost
from harness.hosts.session import source_of
from harness.sweep import breakage as breakage_module
from harness.sweep import injecting
from harness.sweep import trial as trial_module
from harness.sweep.breakage import Breakage
from harness.sweep.owner import BusyError
from harness.sweep.plan import Trial, parse_only, plan, select
from harness.sweep.progress import SilentProgress
from harness.sweep.run_folder import RunFolder
from harness.sweep.scenario import Injection
from harness.sweep.still_moving import Received
from harness.sweep.summary import last_attempts
from harness.sweep.sweep import Request, open_folder, run_sweep
from harness.sweep.trial import run_trial
from reports import trial as stored
from reports.report import write_report

EXPERIMENT: dict[str, Any] = {
    "name": "tiny",
    "cluster": {"kind": "noop", "hosts": 2, "nics": 1, "rate": "1 Gbit/s"},
    "workload": {"backend": "noop", "sizes": ["8MiB"], "iterations": 4},
    "system": [{"name": "a", "mode": 2}, {"name": "b", "mode": 1}],
    "fault": [{"kind": "noop", "host": "host1", "nic": "eth0", "at_iteration": 1}],
    "sweep": {"retries": 5, "order": "listed", "limits": {"ready": "10 s", "iteration": "5 s"}},
}


class Recording(SilentProgress):
    """Remembers what ran; stops like Ctrl-C before the trial named `stop_at`."""

    def __init__(self, stop_at: str | None = None) -> None:
        self.ran: list[str] = []
        self.notes: list[str] = []
        self.stop_at = stop_at

    def trial(self, trial: Trial, attempt: int) -> None:
        if trial.trial_id == self.stop_at:
            raise KeyboardInterrupt
        self.ran.append(trial.trial_id)

    def note(self, text: str) -> None:
        self.notes.append(text)


class HostTestbed:
    """One experiment with its runs folder and what was published."""

    def __init__(self, runs: Path, only: str = "", **tables: Mapping[str, Any]) -> None:
        document = EXPERIMENT | {
            name: [more] if name == "fault" else {**EXPERIMENT[name], **more} for name, more in tables.items()
        }
        experiment, kept = read(document, "tiny.toml"), parse_only([only] if only else [])
        self.request = Request(experiment, "", select(plan(experiment), kept), runs, kept)
        self.published: list[Path] = []
        self.folder: RunFolder | None = None

    def sweep(self, progress: SilentProgress) -> ExitCode:
        self.folder, _ = open_folder(self.request, progress)
        return run_sweep(self.request, self.folder, self.cluster, self.publish, progress)

    def publish(self, folder: Path) -> None:
        self.published.append(folder)

    def cluster(self, spec: ClusterSpec) -> Cluster:
        assert isinstance(spec, NoopSpec)
        return NoopCluster(spec)

    def records(self) -> list[stored.Trial]:
        assert self.folder is not None
        return self.folder.records()

    def judgements(self) -> list[stored.Trial]:
        """The last attempt of each trial: on a busy machine a fault may miss once."""
        return list(last_attempts(self.records()).values())


def test_a_sweep_runs_every_trial_and_publishes(tmp_path: Path) -> None:
    testbed = HostTestbed(tmp_path)
    assert testbed.sweep(Recording()) is ExitCode.OK
    assert [r.status for r in testbed.judgements()] == ["ok", "ok"]
    assert testbed.folder is not None
    assert testbed.published == [testbed.folder.path]
    first = testbed.judgements()[0]
    struck = first.evidence.struck_iteration
    assert struck is not None and struck >= 1, "on a busy machine the next one may be hit"
    phases = {i.iteration: i.phase for i in first.iterations if i.phase != "warmup"}
    assert len(phases) == 4 < len(first.iterations)
    assert phases == {n: "before" if n < struck else "hit" if n == struck else "after" for n in phases}
    run = testbed.folder.run()
    assert run.finished is not None
    assert run.provenance["cluster"]["kind"] == "noop"
    assert (
        run.provenance["cluster"]["congestion_control"]
        == Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    )


def test_counters_are_sampled_closely_before_the_busiest_nic_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is known only after an iteration, and arming the fault takes time: most trials had too few such samples to
    know which pauses are usual."""
    asked: list[str] = []
    closely = NoopHost.sample_closely

    def sample_closely(host: NoopHost) -> None:
        asked.append("closely")
        closely(host)

    def moved_by_then(host: NoopHost) -> dict[str, int]:
        asked.append("busiest")
        return {"eth0": 1}

    monkeypatch.setattr(NoopHost, "sample_closely", sample_closely)
    monkeypatch.setattr(NoopHost, "moved", moved_by_then)
    testbed = HostTestbed(
        tmp_path, only="system=a", fault={"kind": "noop", "host": "host1", "nic": "busiest", "at_iteration": 3}
    )
    assert testbed.sweep(Recording()) is ExitCode.OK
    assert asked[:2] == ["closely", "busiest"]


def test_a_fault_on_the_busiest_nic_is_armed_on_all_before_the_ranks_start_and_fires_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Armed once the NIC was known, it came 12 to 32 iterations late, and its repeats half a second."""
    came: list[str] = []
    arm, fire, start = Breakage.arm, Breakage.fire, NoopHost.sample_start

    def armed(breakage: Breakage, *given: Any) -> None:
        came.append(f"arm {breakage.injection.nic}")
        arm(breakage, *given)

    def fired(breakage: Breakage, *given: Any) -> None:
        came.append(f"fire {breakage.injection.nic}")
        fire(breakage, *given)

    def started(host: NoopHost, interval_s: float) -> None:
        came.append("start")
        start(host, interval_s)

    most = iter([{"eth0": 1, "eth1": 2}, {"eth0": 4, "eth1": 3}])
    monkeypatch.setattr(Breakage, "arm", armed)
    monkeypatch.setattr(Breakage, "fire", fired)
    monkeypatch.setattr(NoopHost, "sample_start", started)
    monkeypatch.setattr(NoopHost, "moved", lambda host: next(most))
    nics = tuple(Nic(f"eth{rail}", rail, "") for rail in range(2))
    monkeypatch.setattr("harness.sweep.testbed.HostTestbed.data_nics", {"host0": nics, "host1": nics})
    monkeypatch.setattr(trial_module, "_states", lambda run: {})
    monkeypatch.setattr(breakage_module, "asked", lambda injection, *given: [Target(injection.host, injection.nic)])
    again = {"at_iteration": 8, "lasts": "150 ms", "times": 2, "every": "300 ms"}
    testbed = HostTestbed(
        tmp_path,
        only="system=a",
        fault={"kind": "noop", "host": "host1", "nic": "busiest"} | again,
        sweep={"retries": 0},
        workload={"iterations": 60},
    )
    assert testbed.sweep(Recording()) is ExitCode.OK
    of_trial = came[came.index("arm eth0") :]  # counters are read before the first trial, too
    assert of_trial == [*["arm eth0", "arm eth1"] * 2, "start", "start", "fire eth1", "fire eth0"]
    (record,) = testbed.records()
    assert [fault.nic for fault in record.faults] == ["eth1", "eth0"]
    assert all(strike["late_ns"] is not None for strike in record.evidence.strikes), "aimed ones, too"


def test_a_watch_that_could_not_start_is_told_with_the_trial_and_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = 'raise TypeError("unsupported operand")'
    monkeypatch.setattr(watch, "source_of", lambda name: old if name == "watcher" else source_of(name))
    heard: list[str] = []

    class Heard(Recording):
        def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
            heard.extend(remarks)

    testbed = HostTestbed(tmp_path, only="system=a")
    assert testbed.sweep(Heard()) is ExitCode.OK
    (record,) = testbed.judgements()
    reason = "the watch told nothing: TypeError: unsupported operand"
    assert record.evidence.unwatched == {"host0": reason, "host1": reason}
    told = f"Some hosts were not watched in 1 trial, so their state is not shown: host0: {reason}; host1: {reason}."
    assert told in heard
    write_report([testbed.published[0]], tmp_path / "report")
    assert "Some hosts were not watched in 1 trial" in (tmp_path / "report" / "report.html").read_text()


def test_a_nic_that_was_held_back_after_its_heal_is_told_in_the_end(tmp_path: Path) -> None:
    heard: list[str] = []

    class Heard(Recording):
        def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
            heard.extend(remarks)

    class Held(HostTestbed):
        def publish(self, folder: Path) -> None:
            (file,) = (folder / "trials").glob("a-*/trial.json")
            trial = json.loads(file.read_text())
            healed_ns = trial["fault"]["t_before_ns"] + 1_000_000
            trial["fault"]["heal_ns"] = healed_ns
            events = [(1, "path_held"), (30, "path_returned")]
            trial["core"]["9"] = {  # no host's, so that no clock shifts it
                "events": [
                    {"t_ns": healed_ns + ms * 1_000_000, "kind": kind, "nic": "eth0", "cause": "flapping"}
                    for ms, kind in events
                ]
            }
            file.write_text(json.dumps(trial))

    Held(tmp_path, only="system=a").sweep(Heard())
    held = [text for text in heard if text.startswith("Held back after its heal")]
    assert [text.partition(". ")[0].partition(": ")[2] for text in held] == ["host1 eth0 by a in 1 trial for 30 ms"]


def test_a_trial_that_cannot_be_read_in_the_end_is_told_and_leaves_the_sweep_unknown(tmp_path: Path) -> None:
    heard: list[str] = []

    class Heard(Recording):
        def closed(self, status: ExitCode, remarks: Sequence[str]) -> None:
            heard.extend([status.name, *remarks])

    class Damaged(HostTestbed):
        def publish(self, folder: Path) -> None:
            next((folder / "trials").glob("a-*/trial.json")).write_text("{")

    testbed = Damaged(tmp_path)
    assert testbed.sweep(Heard()) is ExitCode.INCONCLUSIVE
    assert heard[:2] == ["INCONCLUSIVE", "1 of 2 trials is missing from the folder or cannot be read"]
    assert testbed.folder is not None and testbed.folder.run().tags["ran"] == 2


def test_an_interrupted_sweep_keeps_its_trials_and_goes_on(tmp_path: Path) -> None:
    testbed = HostTestbed(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        testbed.sweep(Recording(stop_at="b-8MiB-noop-r0"))
    first = testbed.folder
    assert first is not None
    assert testbed.published == [first.path]
    cluster = first.run().provenance["cluster"]
    own = cluster["congestion_control"]
    first.add_provenance({"cluster": cluster | {"congestion_control": "vegas"}})
    again = Recording()
    assert testbed.sweep(again) is ExitCode.OK
    assert set(again.ran) == {"b-8MiB-noop-r0"}
    assert testbed.folder is not None
    assert testbed.folder.path == first.path
    assert len(testbed.judgements()) == 2
    assert first.run().provenance["cluster"]["congestion_control"] == f"vegas, later {own}"


def test_an_interrupt_while_it_is_published_leaves_only_that_to_do(tmp_path: Path) -> None:
    testbed = HostTestbed(tmp_path)

    def interrupted(path: Path) -> None:
        raise KeyboardInterrupt

    folder, _ = open_folder(testbed.request, SilentProgress())
    with pytest.raises(KeyboardInterrupt):
        run_sweep(testbed.request, folder, testbed.cluster, interrupted, SilentProgress())
    assert folder.run().finished is None
    again = Recording()
    assert testbed.sweep(again) is ExitCode.OK
    assert again.ran == [] and testbed.published == [folder.path]
    assert folder.run().finished is not None


def test_a_kill_while_it_is_published_leaves_only_that_to_do(tmp_path: Path) -> None:
    class KilledError(BaseException):
        """Nothing catches it, as nothing catches a kill -9."""

    testbed = HostTestbed(tmp_path)

    def killed(path: Path) -> None:
        assert folder.run().finished is not None, "the report of a finished run says so"
        raise KilledError

    folder, _ = open_folder(testbed.request, SilentProgress())
    with pytest.raises(KilledError):
        run_sweep(testbed.request, folder, testbed.cluster, killed, SilentProgress())
    again, anew = Recording(), Recording()
    assert testbed.sweep(again) is ExitCode.OK
    assert again.ran == [] and testbed.published == [folder.path]
    assert testbed.sweep(anew) is ExitCode.OK
    assert anew.ran and testbed.published[-1] != folder.path


def test_a_finished_run_or_another_selection_starts_anew(tmp_path: Path) -> None:
    whole, part = HostTestbed(tmp_path), HostTestbed(tmp_path, only="system=a")
    for testbed in (whole, part, whole):
        assert testbed.sweep(Recording()) is ExitCode.OK
    assert len(list(tmp_path.iterdir())) == 3
    assert [r.system for r in part.judgements()] == ["a"]


def test_an_interrupt_before_the_first_judgement_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        HostTestbed(tmp_path).sweep(Recording(stop_at="a-8MiB-noop-r0"))
    assert list(tmp_path.iterdir()) == []


class Removing(Recording):
    """Takes something away before the trial named `stop_at` is written."""

    def __init__(self, stop_at: str, take_away: Callable[[], object]) -> None:
        super().__init__()
        self.last, self.take_away = stop_at, take_away

    def trial(self, trial: Trial, attempt: int) -> None:
        super().trial(trial, attempt)
        if trial.trial_id == self.last:
            self.take_away()


@pytest.mark.parametrize("last", ["a-8MiB-noop-r0", "b-8MiB-noop-r0"])
@pytest.mark.parametrize("what", ["", "run.json"])
def test_a_folder_that_is_removed_ends_the_sweep_and_is_not_made_again(tmp_path: Path, last: str, what: str) -> None:
    testbed = HostTestbed(tmp_path)

    def take_away() -> None:
        (folder,) = tmp_path.iterdir()
        (folder / what).unlink() if what else shutil.rmtree(folder)

    progress = Removing(last, take_away)
    with pytest.raises(
        SweepError, match=r"tiny-\d+-\d+: was removed while the sweep ran; the same command begins anew$"
    ):
        testbed.sweep(progress)
    assert progress.ran[-1] == last
    assert not list(tmp_path.glob("*/run.json")) and not testbed.published
    assert what or not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testbed = HostTestbed(tmp_path)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    with pytest.raises(SweepError, match=r"cannot be written \(Operation not permitted\); let it be written, and the "):
        testbed.sweep(Removing("a-8MiB-noop-r0", lambda: monkeypatch.setattr(Path, "mkdir", refuse)))


@pytest.mark.parametrize("times", [1, 2])
def test_a_cluster_that_loses_a_host_is_made_again_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    lost = iter([UnreachableError("host1", "its SSH session ended")] * times)

    def run(*arguments: Any) -> Any:
        for error in lost:
            raise error
        return run_trial(*arguments)

    monkeypatch.setattr("harness.sweep.sweep.run_trial", run)
    testbed, progress = HostTestbed(tmp_path), Recording()
    if times == 1:
        assert testbed.sweep(progress) is ExitCode.OK
        assert "host1: its SSH session ended; the cluster is made again" in progress.notes
        assert len([note for note in progress.notes if note.startswith("bringing up")]) == 2
    else:
        with pytest.raises(SweepError, match="its SSH session ended; trials that ended are kept"):
            testbed.sweep(progress)


def test_a_program_that_cannot_run_is_a_failed_trial(tmp_path: Path) -> None:
    testbed = HostTestbed(tmp_path, only="system=a", cluster={"python": "/bin/false"})
    assert testbed.sweep(Recording()) is ExitCode.WRONG
    (record,) = testbed.records()
    assert (record.status, record.expected) == ("failed", False)
    assert "ended early with exit status 1" in record.reason


def test_ranks_that_are_silent_before_anything_is_broken_prove_nothing(tmp_path: Path) -> None:
    quiet = tmp_path / "quiet"
    quiet.write_text("#!/bin/sh\nexec sleep 60\n")
    quiet.chmod(0o755)
    limits = {"retries": 0, "limits": {"ready": "200 ms", "iteration": "200 ms"}}
    testbed = HostTestbed(tmp_path / "runs", only="system=a", cluster={"python": str(quiet)}, sweep=limits)
    assert testbed.sweep(Recording()) is ExitCode.INCONCLUSIVE
    (record,) = testbed.records()
    silence = "rank 0 (host0), 1 (host1) not ready after 0.2 s, though nothing was broken yet"
    assert record.reason == f"{silence}: raise sweep.limits.ready if healthy ranks may take that long"


@pytest.mark.parametrize(
    ("received", "least_s"),
    [(None, 1.0), (None, None), (Received(0.25, {("host0", "eth0"): 4.5e6}, 0.1e6), None)],
    ids=["hang", "too short for one", "slow"],
)
def test_silence_once_something_is_broken_is_a_hang_unless_it_is_short_or_nics_still_carry_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, received: Received | None, least_s: float | None
) -> None:
    if least_s is not None:
        monkeypatch.setattr("harness.sweep.trial.HANG_S", least_s)
    monkeypatch.setattr("harness.sweep.trial.still_moving", lambda *_: received)
    pids, python = tmp_path / "pids", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ >>{pids}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    limits = {"retries": 0, "limits": {"ready": "10 s", "iteration": "1 s"}}
    tables = {"cluster": {"python": str(python)}, "workload": {"iterations": 100}, "sweep": limits}
    testbed = HostTestbed(tmp_path / "runs", only="system=a", **tables)

    class Stopping(SilentProgress):
        """Stops the ranks once the fault has taken effect."""

        def told(self, event: str, fields: Mapping[str, Any]) -> None:
            if event == "fault":
                for pid in pids.read_text().split():
                    os.kill(int(pid), signal.SIGSTOP)

    status, (record,) = testbed.sweep(Stopping()), testbed.records()
    if received:
        slow = (
            f"no rank said anything for 1 s, but the NICs still received {received}: raise sweep.limits.iteration, "
            "unless it was others' traffic; then the ranks hang"
        )
        assert (status, record.status, record.reason) == (ExitCode.INCONCLUSIVE, "inconclusive", slow)
        assert record.error is None
    elif least_s is None:
        short = "no rank said anything for 1 s, too short to tell a hang: raise sweep.limits.iteration to 5 s or more"
        assert (status, record.status, record.reason) == (ExitCode.INCONCLUSIVE, "inconclusive", short)
    else:
        assert (status, record.status) == (ExitCode.WRONG, "failed")
        assert record.reason.startswith("hang: no rank said anything for 1 s (sweep.limits.iteration)")


def test_a_trial_that_its_limit_ended_is_told_with_the_key_and_blames_nobody(tmp_path: Path) -> None:
    limits = {"retries": 0, "limits": {"trial": "2 s"}}
    testbed = HostTestbed(tmp_path, only="system=a", workload={"iterations": 1000}, sweep=limits)
    assert testbed.sweep(Recording()) is ExitCode.INCONCLUSIVE
    (record,) = testbed.records()
    said = re.fullmatch(r"not over after 2 s, and ranks last said something ([\d.]+) s before: (.*)", record.reason)
    assert said is not None and said[2] == "raise sweep.limits.trial"
    assert float(said[1]) <= 2
    assert record.error is None and record.iterations


def test_a_fault_that_misses_is_tried_again_and_every_attempt_is_kept(tmp_path: Path) -> None:
    too_late = {"kind": "noop", "host": "host1", "nic": "eth0", "at_time": "100 s"}
    testbed = HostTestbed(tmp_path, only="system=a", fault=too_late, sweep={"retries": 1})
    assert testbed.sweep(Recording()) is ExitCode.INCONCLUSIVE
    assert [r.trial_id for r in testbed.records()] == ["a-8MiB-noop-r0", "a-8MiB-noop-r0-a2"]
    assert {r.reason for r in testbed.records()} == {
        "the fault was never injected: at_time is 100 s, and no iteration began so late; choose an earlier time"
    }


def test_chance_that_drew_no_failure_in_time_says_what_to_change(tmp_path: Path) -> None:
    rare = {"kind": "noop", "host": "host1", "nic": "eth0", "mtbf": "1000 s"}
    testbed = HostTestbed(tmp_path, only="system=a", fault=rare, sweep={"retries": 0})
    assert testbed.sweep(Recording()) is ExitCode.INCONCLUSIVE
    (record,) = testbed.records()
    told = "mtbf is 1000 s, and none came during the iterations; choose a shorter one, or more iterations"
    assert record.reason == f"the fault was never injected: {told}"


@pytest.mark.parametrize("arming_s", [0.01, 0.5])
def test_a_failure_that_comes_again_waits_until_it_is_healed_however_long_arming_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arming_s: float
) -> None:
    """A heal that comes after the next strike would undo that one, and the NIC would be blamed for what it carried."""
    came: list[str] = []

    def noted(name: str, takes_s: float = 0.0) -> None:
        usual = getattr(Breakage, name)

        def step(breakage: Breakage, *given: Any) -> None:
            if name != "heal" or breakage.heal_ns is None:
                came.append(f"{name} {breakage.arm_id[-1]}")
            time.sleep(takes_s)
            usual(breakage, *given)

        monkeypatch.setattr(Breakage, name, step)

    looked_up: list[Injection] = []

    def asked(injection: Injection, *given: Any) -> list[Target]:
        looked_up.append(injection)
        return [Target(injection.host, injection.nic)]

    monkeypatch.setattr(breakage_module, "asked", asked)
    monkeypatch.setattr(injecting, "AHEAD", 3 if arming_s < 0.1 else 1)
    noted("arm", arming_s)
    noted("fire")
    noted("heal")
    again = {"kind": "noop", "host": "host1", "nic": "eth0", "at_iteration": 8, "lasts": "150 ms", "times": 3}
    once, longer = {"retries": 0}, {"iterations": 60}
    testbed = HostTestbed(tmp_path, only="system=a", fault=again | {"every": "300 ms"}, sweep=once, workload=longer)
    status = testbed.sweep(Recording())
    assert [one for one in came if "arm" not in one][:5] == ["fire 0", "heal 0", "fire 1", "heal 1", "fire 2"]
    (record,) = testbed.records()
    late_ms = [(strike["late_ns"] or 0) / 1e6 for strike in record.evidence.strikes]
    if arming_s < 0.1:
        assert status is ExitCode.OK and max(late_ms) < 150
        assert len(looked_up) == 1, "armed ahead, all three have the same targets"
    else:
        assert late_ms[1] > 150 and record.status == "inconclusive"
        told = f"failure 2 (noop of host1 eth0), which should last 150 ms, came {late_ms[1]:.0f} ms late"
        assert record.reason.startswith(told)


@pytest.mark.parametrize(("outer_lasts", "stands"), [("2 s", True), ("300 ms", False)])
def test_a_failure_within_another_of_its_nic_is_armed_before_it_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outer_lasts: str, stands: bool
) -> None:
    """Arming looks at the NIC as it is, which stays so until then only if nothing is healed in between."""
    when: dict[str, dict[str, float]] = {"arm": {}, "fire": {}, "heal": {}}

    def noted(name: str, takes_s: float = 0.0) -> None:
        usual = getattr(Breakage, name)

        def step(breakage: Breakage, *given: Any) -> None:
            time.sleep(takes_s)
            usual(breakage, *given)
            when[name].setdefault(breakage.arm_id[-1], time.monotonic())

        monkeypatch.setattr(Breakage, name, step)

    monkeypatch.setattr(injecting, "AHEAD", 1)
    noted("arm", 0.25)
    noted("fire")
    noted("heal")
    monkeypatch.setattr(breakage_module, "asked", lambda one, *given: [Target(one.host, one.nic)])
    outer = {"kind": "noop", "host": "host1", "nic": "eth0", "at_iteration": 8, "lasts": outer_lasts}
    inner = {"kind": "noop", "host": "host1", "nic": "eth0", "after": "500 ms", "lasts": "200 ms"}
    longer = {"iterations": 60}
    testbed = HostTestbed(tmp_path, only="system=a", fault=outer | {"also": [inner]}, workload=longer)
    testbed.sweep(Recording())
    record = testbed.records()[0]
    assert len(record.evidence.strikes) == 2
    if stands:
        assert when["arm"]["1"] < when["fire"]["0"] + 0.5 and when["fire"]["1"] < when["heal"]["0"]
        assert (record.evidence.strikes[1]["late_ns"] or 0) < 250e6
    else:
        assert when["arm"]["1"] - 0.25 > when["heal"]["0"] - 0.01


def test_a_second_sweep_of_the_same_experiment_is_refused_with_who_has_it(tmp_path: Path) -> None:
    testbed, silent = HostTestbed(tmp_path), SilentProgress()
    folder, _ = open_folder(testbed.request, silent)
    with pytest.raises(BusyError, match=rf"process {os.getpid()} of .* since \d{{4}}-.* is running this; wait for it"):
        open_folder(testbed.request, silent)
    beside, resumed = open_folder(replace(testbed.request, fresh=True), silent)
    assert not resumed
    assert beside.path != folder.path


def test_a_sweep_that_waits_goes_on_once_the_other_has_left(tmp_path: Path) -> None:
    testbed = HostTestbed(tmp_path)
    folder, _ = open_folder(testbed.request, SilentProgress())

    class Leaving(SilentProgress):
        def note(self, text: str) -> None:
            assert text.startswith(f"waiting: {folder.path}: process {os.getpid()}")
            folder.release()

    again, resumed = open_folder(replace(testbed.request, wait=True), Leaving())
    assert resumed
    assert again.path == folder.path
