"""RDMA for real: collectives of three virtual machines with Soft-RoCE, every element checked, while RDMA is lost.

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

LIMIT_S = 600
PATIENCE = {
    "NCCL_IB_TIMEOUT": "16",
    "R2CC_CONNECT_TIMEOUT_MS": "20000",
    "R2CC_FAILOVER_TIMEOUT_MS": "4000",
    "R2CC_FAILOVER_GIVE_UP_MS": "60000",
}
BY_RINGS = {"R2CC_ZERO_COPY_BYTES": "0"}
GUESTS = 3
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
    with guests.made(f'hosts={GUESTS}, nics=2, rdma="rxe", mtu=4200, rate="200 Mbit/s"') as made:
        yield made


class Running:
    """A program of some ranks, one in each guest, until `stop`; `more` is in the environments of single ranks."""

    def __init__(
        self,
        testbed: HostTestbed,
        program: Path,
        settings: Mapping[str, str],
        more: Mapping[int, Mapping[str, str]] | None = None,
        words: str = "",
        size: int = 2,
    ) -> None:
        self.testbed, self.size, self.pool = testbed, size, ThreadPoolExecutor(size)
        self.how = "rdma_sent_bytes" if settings.items() >= BY_RINGS.items() else "rdma_written_bytes"
        number = next(NUMBERS)
        self.folder = f"/tmp/running-{number}"
        self.port = 29500 + number
        root = f"{testbed.host('host0').address}:{self.port}"
        env = {
            **PATIENCE, "R2CC_SIZE": f"{size}", "R2CC_ROOT": root, "R2CC_SOCKET_IFNAME": "=eth0,eth1",
            "R2CC_STATUS_DIR": self.folder, **settings,
        }  # fmt: skip
        self.program, self.words = program, words
        self.ranks: list[Future[str]] = [
            self.pool.submit(
                self._rank, rank, self.command(rank), {**env, "R2CC_RANK": f"{rank}", **(more or {}).get(rank, {})}
            )
            for rank in range(size)
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
        said = self.testbed.host(f"host{rank}").run(["sh", "-c", f"cat {self.folder}/*.json"], check=False).stdout
        try:
            return list(json.loads(said)["nics"])
        except ValueError:
            return []

    def is_told(self, words: str) -> None:
        """Until all ranks have ended for want of a path, and one of them says why."""
        said = self.end()
        assert any(words in one for one in said), said
        assert "PeerLostError" in said[0], said[0]

    def until(self, condition: Callable[[list[dict[str, Any]]], bool], rank: int = 0) -> None:
        """Until it is true of the rank's NICs."""
        deadline = time.monotonic() + LIMIT_S
        while not ((nics := self.nics(rank)) and condition(nics)):
            assert time.monotonic() < deadline, f"it has not come true: {nics}"
            assert not any(rank.done() for rank in self.ranks), [rank.result() for rank in self.ranks if rank.done()]
            time.sleep(0.5)

    def under_way(self) -> None:
        """Until both NICs of each rank have sent by RDMA, by writes where there is zero copy."""
        for rank in range(self.size):
            self.until(lambda nics: all(nic[self.how] > 1 << 18 for nic in nics), rank)

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


def collectives(
    testbed: HostTestbed,
    transport: str,
    zero_copy: bool = True,
    more: Mapping[int, Mapping[str, str]] | None = None,
    **settings: str,
) -> Running:
    """Every collective of the Communicator, again and again, by a rank in each guest."""
    env = {"R2CC_TRANSPORT": transport, **({} if zero_copy else BY_RINGS), **settings}
    return Running(testbed, EVERY, env, more, size=GUESTS)


class GpuMemory(Running):
    """NCCL's two sides of the plugin, one in each guest, with GPU memory of the stand-in's."""

    def command(self, rank: int) -> str:
        line = f"--side {rank} {self.testbed.host('host0').address} {self.port}"
        return f"{self.program} {build_plugin('plain')} {self.words} --until {self.folder}/stop {line}"


def packets(testbed: HostTestbed, host: str, device: str = "*") -> int:
    """That the guest's RDMA devices have sent."""
    line = f"cat /sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts"
    return sum(int(word) for word in testbed.host(host).run(["sh", "-c", line]).stdout.split())


def resources(testbed: HostTestbed, host: str) -> str:
    """What processes of the guest hold of its RDMA devices: the kernel's own queue pair is always there."""
    said = testbed.host(host).run(["rdma", "resource", "show"]).stdout
    return " ".join(word for word in said.split() if not word.startswith("rxe"))


def all_resources(testbed: HostTestbed) -> list[str]:
    return [resources(testbed, host.name) for host in testbed.hosts]


@pytest.mark.parametrize("zero_copy", [False, True])
def test_every_collective_goes_by_rdma_alone_and_leaves_nothing(testbed: HostTestbed, zero_copy: bool) -> None:
    before = [(packets(testbed, host.name), resources(testbed, host.name)) for host in testbed.hosts]
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        if not zero_copy:
            assert all(nic["rdma_written_bytes"] == 0 for rank in range(GUESTS) for nic in running.nics(rank))
        running.right()
    for host, (sent, held) in zip(testbed.hosts, before, strict=True):
        # Each of ten collectives sends a third of a MiB or more; a packet carries 4096 bytes.
        assert packets(testbed, host.name) - sent > 10 * 85
        assert resources(testbed, host.name) == held


@pytest.mark.parametrize("fence", [True, False])
def test_no_late_write_reaches_a_buffer_that_the_program_has_back(testbed: HostTestbed, fence: bool) -> None:
    """The ghost test. Packets of one rail are late, the transfer ends over the other, the program overwrites its
    buffers, then what is late comes in. Without the fence of the receiving end a buffer is destroyed.
    """
    rounds = wrong = destroyed = 0
    # Without the fence it takes a strike in the middle of a write.
    for _ in range(1 if fence else 4):
        found = haunted(testbed, fence)
        rounds, wrong, destroyed = rounds + found[0], wrong + found[1], destroyed + found[2]
        if destroyed > 0:
            break
    print(f"fence {fence}: {rounds} rounds, {wrong} wrong, {destroyed} buffers destroyed")
    assert wrong == 0
    assert (destroyed == 0) == fence


def haunted(testbed: HostTestbed, fence: bool) -> tuple[int, int, int]:
    """Rounds, wrong messages and destroyed buffers of the receiving end, in whose middle packets were late."""
    # Its own requests, whose answers are late, too, must not end the receiving queue pair before anything comes.
    more = {"NCCL_IB_TIMEOUT": "20"} | ({} if fence else preloaded("unfenced_verbs"))
    settings = {"R2CC_TRANSPORT": "verbs", "R2CC_ZERO_COPY_BYTES": "16384"}  # on slow NICs pieces are small
    with Running(testbed, GHOST, settings, {1: more}, str(3 * LATE_S)) as running:
        running.until(lambda nics: all(nic["rdma_written_bytes"] > 1 << 18 for nic in nics))
        with guests.struck(testbed, "delay", "host0", "eth0", delay=f"{LATE_S} s"):
            running.until(lambda nics: nics[0]["state"] == "down")
            running.stop()
            sender, receiver = running.end()
    assert "exit 0" in sender, sender
    assert "exit 0" in receiver, receiver
    said = re.search(r"rounds (\d+) wrong (\d+) destroyed (\d+)", receiver)
    assert said is not None, receiver
    rounds, wrong, destroyed = map(int, said.groups())
    return rounds, wrong, destroyed


def preloaded(name: str) -> dict[str, str]:
    """The environment of a process whose libibverbs does what that file of C says: it fences nothing, or calls its
    ports InfiniBand's.
    """
    library = BUILDS / f"{name}.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = SOURCE / "tests" / f"{name}.c"
    must("gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", source, "-ldl", "-o", library)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("zero_copy", [False, True])
def test_rdma_that_is_dropped_leaves_the_nic_to_tcp_and_comes_back(testbed: HostTestbed, zero_copy: bool) -> None:
    with collectives(testbed, "auto", zero_copy) as running:
        running.under_way()
        with guests.struck(testbed, "roce_drop", "host1", "eth1"):
            running.until(lambda nics: nics[1]["rdma_paths"] == 0, 1)
            by_tcp = [nic["sent_bytes"] - nic["rdma_sent_bytes"] for nic in running.nics(1)]
            running.until(lambda nics: nics[1]["sent_bytes"] - nics[1]["rdma_sent_bytes"] > by_tcp[1] + (1 << 20), 1)
        running.until(lambda nics: nics[1]["rdma_paths"] > 0, 1)
        running.right()


@pytest.mark.parametrize(
    ("kind", "zero_copy"), [("ib_port_down", False), ("ib_port_down", True), ("gid_removed", True)]
)
def test_a_nic_that_is_lost_is_survived_by_rdma_alone(testbed: HostTestbed, kind: str, zero_copy: bool) -> None:
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        with guests.struck(testbed, kind, "host1", "eth1"):
            running.until(lambda nics: nics[1]["state"] == "down", 1)
        running.until(lambda nics: nics[1]["state"] != "down" and nics[1]["rdma_paths"] > 0, 1)
        running.right()


@pytest.mark.parametrize("zero_copy", [False, True])
def test_packets_that_are_lost_are_sent_again_by_the_device(testbed: HostTestbed, zero_copy: bool) -> None:
    """RC repairs it: counters of the devices tell, and the NIC goes on by RDMA meanwhile."""
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        before = repairs(testbed, "host1")
        with guests.struck(testbed, "loss", "host1", "eth1", percent=1):
            (_, sent) = (nic[running.how] for nic in running.nics(1))
            running.until(lambda nics: nics[1][running.how] > sent + (1 << 20), 1)
            guests.until(lambda: repairs(testbed, "host1") > before, LIMIT_S)
        running.right()


def repairs(testbed: HostTestbed, host: str) -> int:
    """What the devices of the guest have seen twice, missed, or sent again."""
    counters = " ".join(
        f"/sys/class/infiniband/*/ports/1/hw_counters/{name}"
        for name in ("duplicate_request", "rcvd_seq_err", "out_of_seq_request", "completer_retry_err")
    )
    line = f"cat {counters} 2>/dev/null || true"
    return sum(int(word) for word in testbed.host(host).run(["sh", "-c", line]).stdout.split())


@pytest.mark.parametrize("zero_copy", [False, True])
def test_kill_9_is_an_error_at_the_other_end_and_gives_everything_back(testbed: HostTestbed, zero_copy: bool) -> None:
    before = all_resources(testbed)
    with collectives(testbed, "verbs", zero_copy) as running:
        running.under_way()
        testbed.host("host1").run(["sh", "-c", "kill -9 $(pgrep -f every_collectiv[e] | tail -n 1)"])
        killed_s = time.monotonic()
        first, second, third = running.end()
        print(f"an error after {time.monotonic() - killed_s:.1f} s: {first} {third}")
    assert "PeerLostError" in first, first
    assert "exit 137" in second, second
    assert "PeerLostError" in third, third
    assert time.monotonic() - killed_s < float(PATIENCE["R2CC_FAILOVER_GIVE_UP_MS"]) / 1000
    assert all_resources(testbed) == before


def test_the_loss_of_all_rails_is_an_error_within_the_limit(testbed: HostTestbed) -> None:
    before = all_resources(testbed)
    limit_s = 20
    with collectives(testbed, "verbs", R2CC_FAILOVER_GIVE_UP_MS=f"{1000 * limit_s}") as running:
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
    assert all_resources(testbed) == before


class Tables(Running):
    """The driver program of the plugin's tables between the guests: each is the first side of one pair, and the second
    of another, and each pair has a version of its own.
    """

    def __init__(self, testbed: HostTestbed, versions: tuple[int, ...], settings: Mapping[str, str]) -> None:
        self.versions = versions
        driver = build_program("plain", "plugin_driver.c", "plugin_peer.c", "plugin_tables.c")
        super().__init__(testbed, driver, settings, size=GUESTS)

    def command(self, rank: int) -> str:
        first, second = (self._side(pair, side) for pair, side in ((rank, 0), ((rank - 1) % GUESTS, 1)))
        return f"sh -c '{second} & {first}; code=$?; wait $! && exit $code'"

    def _side(self, pair: int, side: int) -> str:
        address = self.testbed.host(f"host{pair}").address
        words = f"{self.versions[pair]} --nics --side {side} {address} {self.port + 100 * (pair + 1)}"
        return f"{self.program} {build_plugin('plain')} {words}"

    def written(self, rank: int) -> int:
        """Bytes that the guest's two processes have written by RDMA, as long as they run."""
        line = f"cat {self.folder}/*.json 2>/dev/null || true"
        text = self.testbed.host(f"host{rank}").run(["sh", "-c", line]).stdout
        return sum(map(int, re.findall(r'"rdma_written_bytes": ?(\d+)', text)))


@pytest.mark.parametrize("zero_copy", [False, True])
@pytest.mark.parametrize("versions", [(8, 9, 10), (11, 12, 8)])
def test_the_plugins_tables_keep_their_contract_over_rdma(
    testbed: HostTestbed, versions: tuple[int, ...], zero_copy: bool
) -> None:
    before = [(packets(testbed, host.name), resources(testbed, host.name)) for host in testbed.hosts]
    written = [0] * GUESTS
    with Tables(testbed, versions, {"R2CC_TRANSPORT": "verbs", **({} if zero_copy else BY_RINGS)}) as running:
        while not all(rank.done() for rank in running.ranks):
            written = [max(most, running.written(rank)) for rank, most in enumerate(written)]
            time.sleep(0.5)
        for said in running.end():
            assert "exit 0" in said, said
    print(f"versions {versions}: bytes written {written}")
    assert [bytes_written > 0 for bytes_written in written] == [zero_copy] * GUESTS
    for host, (sent, held) in zip(testbed.hosts, before, strict=True):
        assert packets(testbed, host.name) - sent > 1000
        assert resources(testbed, host.name) == held


@pytest.mark.parametrize("version", [8, 12])
def test_gpu_memory_goes_by_rdma_and_outlives_the_loss_of_a_nic(testbed: HostTestbed, version: int) -> None:
    """The device's address is one that Soft-RoCE can register; the GPU, GDRCopy and their driver are stand-ins."""
    program, env = build_stand_in()
    settings = {**env, "STAND_IN_READABLE": "1", "R2CC_TRANSPORT": "verbs"}
    held = all_resources(testbed)
    with GpuMemory(testbed, program, settings, None, f"{version}") as running:
        running.under_way()
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
    assert all_resources(testbed) == held


REFUSED = {
    "NCCL_IB_HCA=^rxe": "eth0: NCCL_IB_HCA=^rxe leaves out the RDMA device of eth0",
    "NCCL_IB_GID_INDEX=99": "eth0: rxe0 port 1 has no GID of index 99 (NCCL_IB_GID_INDEX)",
    "NCCL_IB_DISABLE=1": "NCCL_IB_DISABLE=1; unset it",
    "NCCL_IB_TIMEOUT=fast": "NCCL_IB_TIMEOUT=fast: give a whole number from 1 to 31",
    "ulimit -l 256; setpriv --bounding-set -ipc_lock": "the limit for locked memory is 256 KiB: raise it (`ulimit -l",
}


def refusal(testbed: HostTestbed, host: str, before: str = "") -> str:
    """What a transport that may use RDMA alone says at its start."""
    at = testbed.host(host)
    opened = f"_native.open_net(2, [('eth0', '{at.nics[0].address}')], {{'R2CC_TRANSPORT': 'verbs'}}, None)"
    script = f"from r2ccl_core import _native\ntry: {opened}\nexcept Exception as error: print(error)"
    said = at.run(["sh", "-c", f'{before} {sys.executable} -c "$0"', script], timeout_s=LIMIT_S).stdout
    (line,) = said.splitlines()
    assert line.startswith("R2CC_TRANSPORT=verbs: ")
    return line


@pytest.mark.parametrize("before", REFUSED)
def test_what_is_missing_is_one_line_with_the_remedy(testbed: HostTestbed, before: str) -> None:
    assert REFUSED[before] in refusal(testbed, "host0", before)


def test_a_host_without_a_device_is_told_so_and_auto_gives_it_tcp(testbed: HostTestbed) -> None:
    """Of three peers two have RDMA: they use it with each other, and TCP with the third."""
    host = testbed.host("host2")
    host.run(["sh", "-c", "rdma link delete rxe0; rdma link delete rxe1"])
    try:
        assert "this host has no RDMA device; load its driver, and see `rdma link`" in refusal(testbed, "host2")
        with collectives(testbed, "auto") as running:
            for rank in (0, 1):
                running.until(lambda nics: all(nic["rdma_written_bytes"] > 0 for nic in nics), rank)
                assert all(nic["rdma_paths"] > 0 for nic in running.nics(rank))
            running.until(lambda nics: all(nic["sent_bytes"] > 0 for nic in nics), 2)
            assert all(nic["rdma_paths"] == nic["rdma_sent_bytes"] == 0 for nic in running.nics(2))
            running.right()
        with collectives(
            testbed, "verbs", more={2: {"R2CC_TRANSPORT": "auto"}}, R2CC_FAILOVER_GIVE_UP_MS="5000"
        ) as one:
            one.is_told("the peer takes no RDMA on this rail")
    finally:
        add = "rdma link add rxe{0} type rxe netdev eth{0}"
        host.run(["sh", "-c", f"{add.format(0)} && {add.format(1)}"])


def test_a_port_that_is_down_at_the_start_joins_when_it_is_up(testbed: HostTestbed) -> None:
    with guests.struck(testbed, "ib_port_down", "host1", "eth1"):
        running = collectives(testbed, "verbs")
        try:
            running.until(lambda nics: nics[0]["rdma_written_bytes"] > 0, 1)
            assert running.nics(1)[1]["sent_bytes"] == 0
        except BaseException:
            running.stop()
            raise
    with running:
        running.under_way()
        running.right()


def test_a_smaller_mtu_at_one_end_is_used_by_both(testbed: HostTestbed) -> None:
    """The path's MTU is the smaller one's: 1024 instead of 4096."""
    host = testbed.host("host2")
    host.run(["ip", "link", "set", "eth1", "mtu", "1500"])
    try:
        before = packets(testbed, "host2", "rxe1")
        with collectives(testbed, "verbs") as running:
            running.under_way()
            sent = running.nics(2)[1]["rdma_sent_bytes"]
            assert packets(testbed, "host2", "rxe1") - before >= sent / 1024
            running.right()
    finally:
        host.run(["ip", "link", "set", "eth1", "mtu", "4200"])


@pytest.mark.parametrize("transport", ["auto", "verbs"])
def test_link_layers_that_differ_leave_tcp_or_one_line(testbed: HostTestbed, transport: str) -> None:
    """Rank 1 takes its ports for InfiniBand's."""
    other = {1: preloaded("infiniband_verbs")}
    with collectives(testbed, transport, more=other, R2CC_FAILOVER_GIVE_UP_MS="10000") as running:
        if transport == "verbs":
            running.is_told("the link layers differ: one end's port is InfiniBand, the other's Ethernet")
            return
        running.until(lambda nics: all(nic["rdma_written_bytes"] > 0 for nic in nics))
        running.until(lambda nics: all(nic["sent_bytes"] > 0 for nic in nics), 1)
        assert all(nic["rdma_paths"] == nic["rdma_sent_bytes"] == 0 for nic in running.nics(1))
        running.right()


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
    assert shares == pytest.approx([1 << 20, 1e9 / 8])


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
