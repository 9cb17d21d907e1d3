"""A real allocation: Slurm on three virtual machines; srun, an inventory of it, and a sweep inside it.

    apt-get install slurm-wlm munge
    pytest -m vms tests/harness/test_vms_slurm.py

This machine is the login node: it runs slurmctld, and munged as the guests do. Guests run slurmd; they have this
machine's files, so Slurm is installed once. All of Slurm lies in a folder of the test's own.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import guests
import pytest

from harness.cluster import state
from harness.cluster.spec import VmsSpec
from harness.cluster.vms.cluster import VmsCluster
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each

LIMIT_S = 900
PROGRAMS = ("slurmctld", "slurmd", "munged", "salloc", "srun", "unshare")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"
COMMAND = f'{sys.executable} -c "from harness.commands.cli import main; main()"'

SLURM = """\
ClusterName=guests
SlurmctldHost={here}({address})
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdTimeout=600
MessageTimeout=100
TCPTimeout=60
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
CGROUP = "CgroupPlugin=cgroup/v1\n"
START = """\
set -e
mount -t tmpfs cgroup /sys/fs/cgroup
mkdir /sys/fs/cgroup/freezer
mount -t cgroup -o freezer freezer /sys/fs/cgroup/freezer
mkdir -p {folder}/spool
{munged}
slurmd -f {folder}/slurm.conf -L {folder}/slurmd.log
"""
"""In a guest, which has no systemd: what Slurm 22.05 needs of control groups, then both daemons."""

EXPERIMENT = """\
schema = 1
name = "allocated"
description = "An AllReduce in an allocation, in which a NIC goes down"

[cluster]
kind = "inventory"
inventory = "hosts.toml"

[workload]
backend = "perf"
collective = "all_reduce"
sizes = ["1MiB"]
iterations = 12
check = true

[[system]]
name = "balance"
mode = 2

[[fault]]
kind = "nic_down"
host = "host1"
rail = 1
at_progress = 0.4

[sweep]
repeats = 1
retries = 2

[sweep.limits]
ready = "300 s"
iteration = "60 s"
trial = "600 s"
"""

pytestmark = [pytest.mark.vms, pytest.mark.timeout(3600)]


@dataclass(frozen=True)
class Allocation:
    """Where commands run in one."""

    folder: Path
    cluster: VmsCluster

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """A shell command on the login node, inside an allocation of all three hosts, which it knows by their names."""
        inside = f"mount --bind {self.folder}/hosts /etc/hosts && exec salloc -N3 sh -c '{command}'"
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", inside]
        env = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        done = subprocess.run(words, env=env, cwd=self.folder, capture_output=True, text=True, timeout=LIMIT_S)
        print(done.stdout, done.stderr)
        return done


@pytest.fixture(scope="module")
def allocation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Allocation]:
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing (on Debian: apt install slurm-wlm munge)")
    if os.getuid() != 0:
        pytest.skip("needs root, for munged and slurmctld")
    guests.needed()
    folder = Path("/tmp") / f"r2ccl-slurm-{os.getpid()}"
    with VmsCluster(VmsSpec(name="slurm", hosts=3, nics=2, rate="20 Mbit/s")) as cluster:
        shutil.rmtree(folder, ignore_errors=True)
        daemons: list[subprocess.Popen[bytes]] = []
        try:
            _write(folder, cluster)
            daemons.append(_daemon(_munged(folder), folder))
            until(lambda: (folder / "munge/socket").exists(), daemons)
            daemons.append(_daemon(["slurmctld", "-D", "-f", f"{folder}/slurm.conf"], folder))
            all_results(for_each(cluster.hosts, lambda host: _start_node(folder, host)))
            until(lambda: _idle(folder) == 3, daemons)
            yield Allocation(folder, cluster)
        finally:
            for daemon in daemons:
                daemon.terminate()
                daemon.wait()
            shutil.rmtree(folder)


def _write(folder: Path, cluster: VmsCluster) -> None:
    for name in ("state", "munge"):
        (folder / name).mkdir(parents=True)
        folder.chmod(0o755)
    assert cluster.layout is not None
    here = socket.gethostname()
    nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs=1 State=UNKNOWN" for host in cluster.layout.hosts]
    text = SLURM.format(here=here, address=cluster.layout.uplink_address, folder=folder, nodes="\n".join(nodes))
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(CGROUP)
    (folder / "key").write_bytes(os.urandom(128))
    (folder / "key").chmod(0o400)
    made = state.directory(cluster.tag)
    (folder / "hosts").write_text(f"{(made / 'hosts').read_text()}{cluster.layout.uplink_address} {here}\n")
    names = {host.address: host.name for host in cluster.layout.hosts}
    known = [line.split(" ", 1) for line in (made / "known_hosts").read_text().splitlines()]
    (folder / "known_hosts").write_text("".join(f"{names.get(at, at)} {key}\n" for at, key in known))


def _munged(folder: Path) -> list[str]:
    log, at = f"{folder}/munge/log", f"{folder}/munge"
    files = [f"--socket={at}/socket", f"--pid-file={at}/pid", f"--log-file={log}", f"--seed-file={at}/seed"]
    return ["munged", "--force", "--foreground", f"--key-file={folder}/key", *files]


def _daemon(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / f"{words[0]}.log").open("wb") as log:
        env = {**os.environ, "PATH": PATH}
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)


def _start_node(folder: Path, host: Host) -> None:
    munged = " ".join(word for word in _munged(folder) if word != "--foreground")
    host.run(["sh", "-c", START.format(folder=folder, munged=munged)], timeout_s=300)


def _idle(folder: Path) -> int:
    env = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    words = ["sinfo", "-h", "-N", "-o", "%T"]
    return subprocess.run(words, env=env, capture_output=True, text=True).stdout.split().count("idle")


def until(condition: Callable[[], bool], daemons: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert all(daemon.poll() is None for daemon in daemons), [daemon.args for daemon in daemons]
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.2)


def test_srun_reaches_every_guest(allocation: Allocation) -> None:
    done = allocation.run("srun hostname")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == ["host0", "host1", "host2"]


def test_a_sweep_inside_an_allocation_runs_to_its_end(allocation: Allocation) -> None:
    folder = allocation.folder
    (folder / "allocated.toml").write_text(EXPERIMENT)
    key = state.directory(allocation.cluster.tag) / "login"
    login = f"--user root --key {key} --known-hosts {folder}/known_hosts --python {sys.executable}"
    found = allocation.run(f"{COMMAND} cluster inventory --slurm {login} -o hosts.toml")
    assert found.returncode == 0, found.stderr
    assert "hosts.toml: 3 hosts, 2 rails" in found.stdout
    swept = allocation.run(f"{COMMAND} sweep allocated.toml --out runs")
    assert swept.returncode == 0, swept.stderr
    trials = [json.loads(path.read_text()) for path in folder.glob("runs/*/trials/*/trial.json")]
    struck = [trial for trial in trials if trial["fault"] is not None and trial["status"] == "ok"]
    assert len(struck) == 1 and struck[0]["evidence"]["in_flight"] and struck[0]["evidence"]["healed"], trials
