"""RDMA for real: collectives between virtual machines with Soft-RoCE, every element checked, while RDMA is lost.

    pytest -m vms tests/native/test_verbs_vms.py

Guests may be translated and starved: limits are wide, and what is awaited is a condition, never a time.
"""

import itertools
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import guests
import pytest
from gpu_stand_in import build_stand_in
from plugin_build import BUILDS, SOURCE, build_plugin, build_program, must

from harness.backends.perftest_text import parse
from harness.sweep.testbed import HostTestbed

LIMIT_S = 300
PATIENCE = {
    "NCCL_IB_TIMEOUT": "16",
    "R2CC_CONNECT_TIMEOUT_MS": "20000",
    "R2CC_FAILOVER_TIMEOUT_MS": "4000",
    "R2CC_FAILOVER_GIVE_UP_MS": "60000",
}
ZERO_COPY = {"R2CC_ZERO_COPY_BYTES": "16384"}
GHOST = Path(__file__).with_name("ghost.py")
EVERY = Path(__file__).with_name("every_collective.py")
NUMBERS = itertools.count()
LATE_S = 12
"""How late packets are in the ghost test: later than the time in which starved guests give a path up."""

pytestmark = [pytest.mark.vms, pytest.mark.timeout(900)]
needs_perftest = pytest.mark.skipif(
    shutil.which("ib_write_bw") is None, reason="perftest is missing (on Debian: apt install perftest)"
)


@pytest.fixture(scope="module")
def testbed() -> Iterator[HostTestbed]:
    with guests.made('hosts=2, nics=2, rdma="rxe", mtu=4200, rate="200 Mbit/s"') as made:
        yield made


class Running:
    """A program of two ranks, one in each guest, until `stop`; `more` is in the environment of rank 1 alone."""

    def __init__(
        self,
        testbed: HostTestbed,
        program: Path,
        settings: Mapping[str, str],
        more: Mapping[str, str] | None = None,
        words: str = "",
    ) -> None:
        self.testbed, self.pool = testbed, ThreadPoolExecutor(2)
        number = next(NUMBERS)
        self.folder = f"/tmp/running-{number}"
        self.port = 29500 + number
        root = f"{testbed.host('host0').address}:{self.port}"
        env = {
            **PATIENCE, "R2CC_SIZE": "2", "R2CC_ROOT": root, "R2CC_SOCKET_IFNAME": "=eth0,eth1",
            "R2CC_STATUS_DIR": self.folder, **settings,
        }  # fmt: skip
        self.program, self.words = program, words
        self.ranks: list[Future[str]] = [
            self.pool.submit(
                self._rank, rank, self.command(rank), {**env, "R2CC_RANK": str(rank), **((more or {}) if rank else {})}
            )
            for rank in range(2)
        ]

    def command(self, rank: int) -> str:
        return f"{sys.executable} {self.program} {self.folder}/stop {self.words}"

    def _rank(self, rank: int, command: str, env: Mapping[str, str]) -> str:
        variables = " ".join(f"{name}={value}" for name, value in env.items())
        line = f"mkdir -p {self.folder}; {variables} {command}; echo exit $?"
        done = self.testbed.host(f"host{rank}").run(["sh", "-c", line], timeout_s=LIMIT_S, check=False)
        return done.stdout + done.stderr

    def nics(self, rank: int) -> list[dict[str, Any]]:
        """What the rank's process says of its NICs; nothing while it does not run."""
        text = self.testbed.host(f"host{rank}").run(["sh", "-c", f"cat {self.folder}/*.json"], check=False).stdout
        try:
            return list(json.loads(text)["nics"])
        except ValueError:
            return []

    def until(self, condition: Callable[[list[dict[str, Any]]], bool], rank: int = 0) -> None:
        """Until it is true of the rank's NICs."""
        deadline = time.monotonic() + LIMIT_S
        while not ((nics := self.nics(rank)) and condition(nics)):
            assert time.monotonic() < deadline, f"it has not come true: {nics}"
            assert not any(rank.done() for rank in self.ranks), [rank.result() for rank in self.ranks if rank.done()]
            time.sleep(0.5)

    def under_way(self, how: str = "rdma_sent_bytes") -> None:
        """Until both NICs have sent by RDMA."""
        self.until(lambda nics: all(nic[how] > 1 << 18 for nic in nics))

    def stop(self) -> None:
        for host in self.testbed.hosts:
            host.run(["sh", "-c", f"mkdir -p {self.folder} && touch {self.folder}/stop"])

    def end(self) -> list[str]:
        """What the ranks said."""
        return [rank.result() for rank in self.ranks]

    def right(self) -> None:
        """Stops every_collective.py: all went well, and every element was right."""
        self.stop()
        for said in self.end():
            print(said)
            assert "exit 0" in said, said
            assert re.search(r"calls [1-9]\d* wrong 0 ", said), said

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves no rank behind, whatever has failed."""
        self.stop()
        self.pool.shutdown()


def collectives(testbed: HostTestbed, transport: str, zero_copy: bool, **settings: str) -> Running:
    """Every collective of the Communicator, again and again."""
    return Running(testbed, EVERY, {"R2CC_TRANSPORT": transport, **(ZERO_COPY if zero_copy else {}), **settings})


class GpuMemory(Running):
    """NCCL's two sides of the plugin, one in each guest, with GPU memory of the stand-in's."""

    def command(self, rank: int) -> str:
        line = f"--side {rank} {self.testbed.host('host0').address} {self.port}"
        return f"{self.program} {build_plugin('plain')} {self.words} --until {self.folder}/stop {line}"


def packets(testbed: HostTestbed, host: str) -> int:
    """That the guest's RDMA devices have sent."""
    line = "cat /sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"
    return sum(int(word) for word in testbed.host(host).run(["sh", "-c", line]).stdout.split())


def resources(testbed: HostTestbed, host: str) -> str:
    """What processes of the guest hold of its RDMA devices: the kernel's own queue pair is always there."""
    said = testbed.host(host).run(["rdma", "resource", "show"]).stdout
    return " ".join(word for word in said.split() if not word.startswith("rxe"))


@pytest.mark.parametrize("zero_copy", [False, True])
def test_every_collective_goes_by_rdma_alone_and_leaves_nothing(testbed: HostTestbed, zero_copy: bool) -> None:
    before = {host: (packets(testbed, host), resources(testbed, host)) for host in ("host0", "host1")}
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way("rdma_written_bytes" if zero_copy else "rdma_sent_bytes")
        running.right()
    for host, (sent, held) in before.items():
        # Each of ten collectives sends half a MiB or more; a packet carries 4096 bytes.
        assert packets(testbed, host) - sent > 10 * 128
        assert resources(testbed, host) == held


@pytest.mark.parametrize("fence", [True, False])
def test_no_late_write_reaches_a_buffer_that_the_program_has_back(testbed: HostTestbed, fence: bool) -> None:
    """The ghost test. Packets of one rail are late, the transfer ends over the other, the program overwrites its
    buffers, then what is late comes in. Without the fence of the receiving end a buffer is destroyed.
    """
    # Its own requests, whose answers are late, too, must not end the receiving queue pair before anything comes.
    more = {"NCCL_IB_TIMEOUT": "20"} | ({} if fence else without_fence())
    settings = {"R2CC_TRANSPORT": "verbs", **ZERO_COPY}
    with Running(testbed, GHOST, settings, more, str(3 * LATE_S)) as running:
        running.under_way("rdma_written_bytes")
        with guests.struck(testbed, "delay", "host0", "eth0", delay=f"{LATE_S} s"):
            running.until(lambda nics: nics[0]["state"] == "down")
            running.stop()
            sender, receiver = running.end()
    assert "exit 0" in sender, sender
    assert "exit 0" in receiver, receiver
    said = re.search(r"rounds (\d+) wrong (\d+) destroyed (\d+)", receiver)
    assert said is not None, receiver
    rounds, wrong, destroyed = map(int, said.groups())
    print(f"fence {fence}: {rounds} rounds, {wrong} wrong, {destroyed} buffers destroyed; {sender.split()}")
    assert wrong == 0
    assert (destroyed == 0) == fence, receiver


def without_fence() -> dict[str, str]:
    """The environment of a process whose libibverbs fences nothing."""
    library = BUILDS / "unfenced_verbs.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = SOURCE / "tests" / "unfenced_verbs.c"
    must("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", source, "-ldl", "-o", library)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("zero_copy", [False, True])
def test_rdma_that_is_dropped_leaves_the_nic_to_tcp_and_comes_back(testbed: HostTestbed, zero_copy: bool) -> None:
    with collectives(testbed, "auto", zero_copy) as running:
        running.under_way()
        with guests.struck(testbed, "roce_drop", "host1", "eth1"):
            running.until(lambda nics: nics[1]["rdma_paths"] == 0)
            by_tcp = [nic["sent_bytes"] - nic["rdma_sent_bytes"] for nic in running.nics(0)]
            running.until(lambda nics: nics[1]["sent_bytes"] - nics[1]["rdma_sent_bytes"] > by_tcp[1] + (1 << 20))
        running.until(lambda nics: nics[1]["rdma_paths"] > 0)
        running.right()


@pytest.mark.parametrize(
    ("kind", "zero_copy"), [("ib_port_down", False), ("ib_port_down", True), ("gid_removed", True)]
)
def test_a_nic_that_is_lost_is_survived_by_rdma_alone(testbed: HostTestbed, kind: str, zero_copy: bool) -> None:
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        with guests.struck(testbed, kind, "host1", "eth1"):
            running.until(lambda nics: nics[1]["state"] == "down")
        running.until(lambda nics: nics[1]["state"] != "down" and nics[1]["rdma_paths"] > 0)
        running.right()


@pytest.mark.parametrize("zero_copy", [False, True])
def test_kill_9_is_an_error_at_the_other_end_and_gives_everything_back(testbed: HostTestbed, zero_copy: bool) -> None:
    before = [resources(testbed, host) for host in ("host0", "host1")]
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        testbed.host("host1").run(["sh", "-c", "kill -9 $(pgrep -f every_collectiv[e] | tail -n 1)"])
        killed_s = time.monotonic()
        first, second = running.end()
        print(f"an error after {time.monotonic() - killed_s:.1f} s: {first}")
    assert "PeerLostError" in first, first
    assert "exit 137" in second, second
    assert time.monotonic() - killed_s < float(PATIENCE["R2CC_FAILOVER_GIVE_UP_MS"]) / 1000
    assert [resources(testbed, host) for host in ("host0", "host1")] == before


def test_the_loss_of_all_rails_is_an_error_within_the_limit(testbed: HostTestbed) -> None:
    before = [resources(testbed, host) for host in ("host0", "host1")]
    limit_s = 20
    with collectives(testbed, "verbs", True, R2CC_FAILOVER_GIVE_UP_MS=f"{1000 * limit_s}") as running:
        running.under_way()
        with (
            guests.struck(testbed, "ib_port_down", "host1", "eth0"),
            guests.struck(testbed, "ib_port_down", "host1", "eth1"),
        ):
            lost_s = time.monotonic()
            said = running.end()
            took_s = time.monotonic() - lost_s
    print(f"errors after {took_s:.1f} s: {said}")
    assert all("PeerLostError" in one for one in said), said
    assert took_s < limit_s + 20, "the end of the programs included"
    assert [resources(testbed, host) for host in ("host0", "host1")] == before


@pytest.mark.parametrize(("version", "zero_copy"), [(8, False), (12, False), (12, True)])
def test_the_plugins_tables_keep_their_contract_over_rdma(testbed: HostTestbed, version: int, zero_copy: bool) -> None:
    """Two processes of one guest, as NCCL drives them; RDMA goes from the device to itself."""
    plugin = build_plugin("plain")
    driver = build_program("plain", "plugin_driver.c", "plugin_peer.c", "plugin_tables.c")
    before, held = packets(testbed, "host0"), resources(testbed, "host0")
    env = {
        **PATIENCE,
        "R2CC_TRANSPORT": "verbs",
        "R2CC_SOCKET_IFNAME": "=eth0,eth1",
        **(ZERO_COPY if zero_copy else {}),
    }
    words = " ".join(f"{name}={value}" for name, value in env.items())
    line = f"{words} {driver} {plugin} {version} --nics --verbose; echo exit $?"
    done = testbed.host("host0").run(["sh", "-c", line], timeout_s=LIMIT_S, check=False)
    assert "exit 0" in done.stdout, done.stdout + done.stderr
    assert packets(testbed, "host0") - before > 1000
    assert resources(testbed, "host0") == held


@pytest.mark.parametrize("version", [8, 12])
def test_gpu_memory_goes_by_rdma_and_outlives_the_loss_of_a_nic(testbed: HostTestbed, version: int) -> None:
    """The device's address is one that Soft-RoCE can register; the GPU, GDRCopy and their driver are stand-ins."""
    program, env = build_stand_in()
    settings = {**env, "STAND_IN_READABLE": "1", "R2CC_TRANSPORT": "verbs"}
    held = [resources(testbed, host) for host in ("host0", "host1")]
    with GpuMemory(testbed, program, settings, None, f"{version}") as running:
        running.under_way("rdma_written_bytes")
        with guests.struck(testbed, "ib_port_down", "host1", "eth1"):
            running.until(lambda nics: nics[1]["state"] == "down")
        running.until(lambda nics: nics[1]["state"] != "down" and nics[1]["rdma_paths"] > 0)
        running.stop()
        for said in running.end():
            print(said)
            assert "exit 0" in said, said
            assert "pointers 3" in said, "GPU memory, and no dmabuf of Soft-RoCE"
            counted = re.search(r"(\d+) rounds, (\d+) flushed by a device", said)
            assert counted is not None, said
            assert int(counted[1]) > int(counted[2]) > 0, "small messages come by the processor"
    assert [resources(testbed, host) for host in ("host0", "host1")] == held


REFUSED = {
    "NCCL_IB_HCA=^rxe": "eth0: NCCL_IB_HCA=^rxe leaves out the RDMA device of eth0",
    "NCCL_IB_GID_INDEX=99": "eth0: rxe0 port 1 has no GID of index 99 (NCCL_IB_GID_INDEX)",
    "NCCL_IB_DISABLE=1": "NCCL_IB_DISABLE=1; unset it",
    "NCCL_IB_TIMEOUT=fast": "NCCL_IB_TIMEOUT=fast: give a whole number from 1 to 31",
    "ulimit -l 256; setpriv --bounding-set -ipc_lock": "the limit for locked memory is 256 KiB: raise it (`ulimit -l",
}


@pytest.mark.parametrize("before", REFUSED)
def test_what_is_missing_is_one_line_with_the_remedy(testbed: HostTestbed, before: str) -> None:
    host = testbed.host("host0")
    opened = f"_native.open_net(2, [('eth0', '{host.nics[0].address}')], {{'R2CC_TRANSPORT': 'verbs'}}, None)"
    script = f"from r2ccl_core import _native\ntry: {opened}\nexcept Exception as error: print(error)"
    said = host.run(["sh", "-c", f'{before} {sys.executable} -c "$0"', script], timeout_s=LIMIT_S).stdout
    (line,) = said.splitlines()
    assert line.startswith("R2CC_TRANSPORT=verbs: ")
    assert REFUSED[before] in line


@needs_perftest
def test_what_ib_write_bw_prints_is_read_in_either_unit(testbed: HostTestbed) -> None:
    """The user's program, from one port of a guest to itself. Its MB are 2^20 bytes."""
    host = testbed.host("host0")
    run = "ib_write_bw -d rxe0 -x 1 -F -N -s 65536 -n 20"
    shares = []
    for unit in ("", "--report_gbits"):
        line = f"{run} {unit} >/dev/null & until {run} {unit} 127.0.0.1; do sleep 0.2; done; wait"
        said = host.run(["sh", "-c", line], timeout_s=LIMIT_S).stdout
        result = parse(said[said.rindex("RDMA_Write BW Test") :])
        assert (result.message_bytes, result.messages) == (65536, 20)
        row = said.splitlines()[-2].split()
        shares.append(result.bytes_s / float(row[3]))
    assert shares == [1 << 20, 1e9 / 8]


@needs_perftest
def test_a_device_that_is_not_there_is_one_line_of_the_trial(testbed: HostTestbed) -> None:
    rank = f"{sys.executable} -m harness.backends.perftest_rank --size-bytes 1 --sent-bytes 1 --iterations 1"
    env = "R2CC_RANK=0 R2CC_SIZE=2 R2CC_ROOT=127.0.0.1:1 R2CC_SOCKET_IFNAME==eth0,eth1 PERFTEST_DEVICES=rxe0,rxe9"
    line = f"cd {SOURCE.parents[1]}; {env} {rank} --addresses 127.0.0.1; echo exit $?"
    done = testbed.host("host0").run(["sh", "-c", line], timeout_s=LIMIT_S)
    wanted = "PERFTEST_DEVICES: this host has no RDMA device rxe9; it has rxe0, rxe1 (see rdma link)"
    assert json.loads(done.stdout.splitlines()[0])["message"] == wanted
    assert done.stdout.endswith("exit 2\n")
    assert done.stderr.splitlines() == [wanted]
