"""What kill -9 leaves behind is found by its tag and removed, and nothing else is."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conditions import until

from harness.cluster import namespaces, netlink, processes, rights, sshd, state
from harness.cluster.clean import clean, living
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec

REPOSITORY = Path(__file__).parents[2]

OWNER = """
import sys, time
from harness.cluster.spec import LocalSpec
from harness.cluster.local import LocalCluster
from harness.hosts.base import Orders
cluster = LocalCluster(LocalSpec(name="doomed", hosts=2, nics=2))
cluster.up()
host = cluster.hosts[0]
LINK = ("ip", "link", "set", "dev", "eth1")
pids = []
host.start(["sh", "-c", "trap '' TERM HUP; sleep 1000 & echo $!; wait"], env={}, on_line=lambda _, l: pids.append(l))
host.prepare("f", Orders(((*LINK, "down"),), ((*LINK, "up"),)), 60)
host.fire("f")
while not pids:
    time.sleep(0.01)
print(cluster.tag, pids[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def _needs() -> None:
    if not rights.have() or shutil.which("sshd", path=sshd.PATH) is None:
        pytest.skip("needs the right to make network namespaces, and sshd")


@pytest.fixture
def owner(_needs: None) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    ) as popen:
        yield popen
        popen.kill()


def announced(owner: subprocess.Popen[str]) -> tuple[str, int]:
    assert owner.stdout is not None
    tag, pid = owner.stdout.readline().split()
    return tag, int(pid)


def named(tag: str) -> list[str]:
    return [n for n in [*namespaces.names(), *netlink.uplinks(), *state.tags()] if tag in n]


@pytest.mark.netns
def test_kill_9_is_cleaned_up_and_a_living_cluster_is_not(owner: subprocess.Popen[str]) -> None:
    tag, sleeper = announced(owner)
    with LocalCluster(LocalSpec(name="other", hosts=1, nics=1)) as other:
        assert not any(tag in line for line in clean())
        assert {tag, other.tag} <= set(living())
        owner.kill()
        owner.wait()
        until(lambda: processes.identify(sleeper) is None)
        assert named(tag)
        assert [line.split()[0] for line in clean() if tag in line] == ["doomed"]
        assert named(tag) == []
        assert other.hosts[0].run(["true"]).returncode == 0
    assert not any(tag in line for line in clean())


@pytest.mark.netns
def test_even_the_keeper_may_be_killed(owner: subprocess.Popen[str]) -> None:
    tag, _ = announced(owner)
    record = state.read(tag)
    assert record is not None and len(record.processes) == 4
    doomed = (record.owner, *record.processes[:2])
    for process in doomed:  # or the keeper would end the others, and itself, as soon as the owner is gone
        os.kill(process.pid, signal.SIGSTOP)
    for process in doomed:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    owner.wait()
    clean()
    assert named(tag) == []
    assert not any(processes.alive(process) for process in record.processes)


@pytest.mark.netns
def test_a_crash_between_two_steps_is_cleaned_up(_needs: None) -> None:
    tag = state.new_tag()
    namespaces.create(f"r2ccl-{tag}-host0", lambda: None)
    foreign = f"foreign-{tag}"
    namespaces.create(foreign, lambda: None)
    try:
        assert any(tag in line for line in clean())
        assert named(tag) == [foreign]
    finally:
        namespaces.remove(foreign)


@pytest.mark.netns
def test_names_like_ours_with_strangers_inside_stay(_needs: None) -> None:
    tag = state.new_tag()
    name = f"r2ccl-{tag}-host0"
    namespaces.create(name, lambda: None)
    with namespaces.inside(name, lambda: subprocess.Popen(["sleep", "1000"])) as stranger:
        try:
            assert not any(tag in line for line in clean())
            assert named(tag) == [name]
        finally:
            stranger.kill()
    clean()
    assert named(tag) == []


def test_a_directory_of_another_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "root", lambda: tmp_path / "r2ccl")
    (tmp_path / "r2ccl").mkdir(mode=0o755)
    with pytest.raises(state.ClusterError, match="mode 0700"), state.lock():
        pass


def test_a_record_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state, "root", lambda: tmp_path / "r2ccl")
    owner = processes.identify(os.getpid())
    assert owner is not None
    record = state.Record("0123abcd", "x", "2026-01-01T00:00:00+00:00", ["harness"], owner, [owner])
    with state.lock():
        state.write(record)
    assert state.read("0123abcd") == record
    assert state.tags() == ["0123abcd"] and record.is_living()
    with state.lock():
        state.forget("0123abcd")
        state.forget("0123abcd")
    assert state.read("0123abcd") is None
    assert not (tmp_path / "r2ccl").exists()


def test_a_reused_process_number_is_not_the_owner() -> None:
    me = processes.identify(os.getpid())
    assert me is not None and processes.alive(me)
    other = me._replace(start=me.start + 1)
    assert not processes.alive(other)
    processes.kill([other])
