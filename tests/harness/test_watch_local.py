"""The watch on a local cluster: what it sees of a real collective, and of loss on a NIC that cannot keep up."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from harness.cluster import rights, sshd
from harness.cluster.factory import make_cluster
from harness.cluster.local import LocalCluster
from harness.cluster.spec import LocalSpec
from harness.errors import ExitCode
from harness.experiment.file import load
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.load import counters, load_folder, log_events, watched
from reports.recovery import throughput

SMOKE = Path(__file__).parents[2] / "experiments" / "smoke.toml"

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
    pytest.mark.skipif(shutil.which("sshd", path=sshd.PATH) is None, reason="sshd is missing"),
]


LOST_IN_SOCKETS = 512 << 10
"""Two chunks of 128 KiB and what the kernel may keep besides (TCP_NOTSENT_LOWAT, 256 KiB)."""


@pytest.mark.slow
def test_what_is_seen_of_a_collective_is_what_it_moved(tmp_path: Path) -> None:
    settings = ['workload.sizes=["8MiB"]', 'cluster.rate="200 Mbit/s"', "workload.iterations=5", "sweep.retries=5"]
    experiment = load(SMOKE, settings)
    trials = [t for t in plan(experiment) if t.system.name == "balance"]
    request = Request(experiment, "", trials, tmp_path)
    folder, _ = open_folder(request, SilentProgress())
    spec = experiment.cluster
    assert run_sweep(request, folder, lambda _: make_cluster(spec), lambda _: None, SilentProgress()) is ExitCode.OK

    loaded = load_folder(folder.path)
    trial = next(t for t in loaded.final_trials if t.status == "ok")
    samples, seen, told = counters(loaded, trial), watched(loaded, trial), log_events(loaded, trial)
    assert not isinstance(samples, str) and not isinstance(seen, str) and not isinstance(told, str)
    for rank, core in trial.core.items():
        own = samples[samples["host"] == f"host{rank}"].groupby("nic")
        for way in ("rx", "tx"):
            column = own[f"{way}_bytes"]
            counted = int((column.last() - column.first()).sum())
            moved = sum(nic[f"{way}_bytes"] for nic in core["nics"])
            # TCP, IP and Ethernet add 66 bytes to 1448 at most, as the kernel cuts large pieces late, and the other
            # way's acknowledgements 2 %. What a path had in its socket when it was lost was sent and went nowhere.
            in_sockets = LOST_IN_SOCKETS if way == "tx" else 0
            assert moved - in_sockets <= counted < 1.08 * moved
    rates = throughput(samples)
    rates = rates[rates["host"] == "host0"].assign(lasted=rates["end_ns"] - rates["start_ns"])
    before = [i for i in trial.iterations if i.phase == "before" and i.iteration >= 0]
    seen_over_moved = []
    for iteration in before:
        end_ns = iteration.t_ns + iteration.duration_ns
        inside = rates[(rates["start_ns"] >= iteration.t_ns) & (rates["end_ns"] <= end_ns)]
        weighted = (inside["bit_s"] * inside["lasted"]).groupby(inside["nic"]).sum()
        sent_bit_s = float((weighted / inside.groupby("nic")["lasted"].sum()).sum())
        # Two ranks: each sends as many bytes as there are in the vector, and 4.5 % of headers.
        seen_over_moved.append(sent_bit_s / (8e9 * 1.045 * trial.size_bytes / iteration.duration_ns))
    # The samples at its two ends are left out, and an iteration ends with the slower NIC.
    assert median(seen_over_moved) == pytest.approx(1.0, abs=0.08)
    assert set(seen["host"]) == {"host0", "host1"}
    busy = seen[(seen["device"] == "rank0") & (seen["metric"] == "cpu_seconds")]["value"].dropna()
    assert busy.iloc[-2] > busy.iloc[0]
    lost = told[(told["source"] == "core") & (told["kind"] == "path_down")]
    assert trial.fault is not None
    assert 0 <= (lost["t_ns"].min() - trial.fault.t_before_ns) < 0.5e9
    effect = (trial.evidence.model_extra or {})["effects"][0]
    assert trial.fault.t_before_ns <= effect["t_ns"] <= trial.fault.t_after_ns
    clocks = loaded.run.provenance["clocks"]
    assert set(clocks) == {"host0", "host1", "switch"}
    assert all(clock["measurements"] >= 2 and clock["worst_error_ns"] < 50e6 for clock in clocks.values())


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(LocalSpec(name="watch", hosts=2, nics=2, rate="200 Mbit/s")) as cluster:
        yield cluster


RECEIVE = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
peer, got = server.accept()[0], 0
while data := peer.recv(1 << 16):
    got += len(data)
print(got, flush=True)
"""
SEND = "import socket,sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(bytes(int(sys.argv[3])))"


def resent(cluster: LocalCluster, address: str, size_bytes: int) -> float:
    """Segments that host0 sent again, as its watch saw it, while it sent so much to `address` on host1."""
    sender, receiver = cluster.hosts
    said: list[str] = []
    process = receiver.start(
        [sys.executable, "-c", RECEIVE, address], env={}, on_line=lambda stream, line: said.append(line)
    )
    deadline = time.monotonic() + 120
    while not said:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    sender.watch_start({}, 0.02)
    sender.run([sys.executable, "-c", SEND, address, said[0], str(size_bytes)])
    assert process.wait(60) == 0
    readings = sender.watch_stop()
    assert said[1] == str(size_bytes)
    counted = [r.value for r in readings if r.metric == "segments_retransmitted" and r.value is not None]
    return counted[-1] - counted[0] if counted else 0.0


def test_retransmissions_are_seen_where_a_switch_port_drops(cluster: LocalCluster) -> None:
    # At a port, not at the sender's own NIC, of whose drops TCP knows before it has anything to send again.
    [switch], port = cluster.switches, "h1r0"
    usual = json.loads(switch.run(["tc", "-j", "qdisc", "show", "dev", port]).stdout)
    [limit] = [qdisc for qdisc in usual if qdisc["kind"] == "tbf"]
    place = ["root"] if limit.get("root") else ["parent", limit["parent"]]
    starved = ["tbf", "rate", "40mbit", "burst", "3200", "limit", "6400"]
    switch.run(["tc", "qdisc", "replace", "dev", port, *place, *starved])
    # A busy machine makes TCP resend a few for nothing, and starts a watch when everything is sent.
    for _ in range(5):
        healthy, starving = resent(cluster, "10.101.0.2", 2 << 20), resent(cluster, "10.100.0.2", 2 << 20)
        if starving > 30 + 3 * healthy:
            return
    raise AssertionError(f"{starving} segments were sent again where the port drops, {healthy} where it does not")
