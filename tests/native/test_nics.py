"""NICs that are made again, moved, renamed, or silent from the start, in network namespaces, every element checked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rails import Job, Rails, job, rails, sh, until

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="module")
def two() -> Iterator[Rails]:
    with rails(2, 3) as network:
        yield network


def await_state(running: Job, nic: int, *states: str) -> None:
    """Of the NIC in the eyes of host 1, whose NICs are what these tests handle."""
    until(lambda: running.status(1)["nics"][nic]["state"] in states, running.output)


def await_bytes(running: Job, nic: int) -> float:
    """Seconds until both ends have sent over the NIC again."""
    began = time.monotonic()
    before = [running.moved(rank, nic) for rank in range(2)]
    until(lambda: all(running.moved(rank, nic) > before[rank] for rank in range(2)), running.output)
    return time.monotonic() - began


def goes_and_comes_back(running: Job, nic: int, lose: Callable[[], None], give_back: Callable[[], None]) -> float:
    """The host's kernel says so, so nobody waits for a silence; and the NIC carries bytes again, both ways."""
    lose()
    await_state(running, nic, "down")
    running.moves(2 << 20)
    give_back()
    seconds = await_bytes(running, nic)
    until(lambda: running.status(1)["nics"][nic]["state"] == "up", running.output)
    name = running.status(1)["nics"][nic]["name"]
    downs = [event for event in running.events(1, "path_down") if event["nic"] == name]
    assert any("link down" in str(event["detail"]) for event in downs), running.output()
    return seconds


@pytest.mark.parametrize("mac", ["same", "new"])
def test_each_nic_in_turn_is_deleted_and_made_again(two: Rails, tmp_path: Path, mac: str) -> None:
    """Its index is another one each time. When the last was made again all of them work."""
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        for nic in range(3):
            before = two.mac(1, nic)
            goes_and_comes_back(
                running,
                nic,
                lambda nic=nic: two.unmake(1, nic),  # type: ignore[misc]
                lambda nic=nic, mac=before if mac == "same" else "": two.make(1, nic, mac=mac),  # type: ignore[misc]
            )
            assert (two.mac(1, nic) == before) == (mac == "same")


def test_all_nics_of_both_hosts_are_made_again_at_once(two: Rails, tmp_path: Path) -> None:
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        for nic in range(3):
            for host in range(2):
                two.unmake(host, nic)
        until(lambda: all(nic["paths_up"] == 0 for rank in range(2) for nic in running.status(rank)["nics"]), str)
        for nic in range(3):
            for host in range(2):
                two.make(host, nic)
        for nic in range(3):
            await_bytes(running, nic)


def test_a_nic_goes_to_another_namespace_and_comes_back(two: Rails, tmp_path: Path) -> None:
    """As a container takes it; its address is lost on the way, and it may keep its index or not."""
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:

        def give_back() -> None:
            sh("ip", "-n", two.switch, "link", "set", "eth1", "netns", two.place(1))
            two.ip(1, "link", "set", "eth1", "up")
            time.sleep(0.2)  # up, and without its address
            two.give_address(1, 1)

        goes_and_comes_back(running, 1, lambda: two.ip(1, "link", "set", "eth1", "netns", two.switch), give_back)


def test_a_nic_is_renamed(two: Rails, tmp_path: Path) -> None:
    """It keeps its index and address, so it is the same NIC, whatever it is called."""
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:

        def rename(old: str, new: str) -> None:
            two.ip(1, "link", "set", old, "down")
            two.ip(1, "link", "set", old, "name", new)
            two.ip(1, "link", "set", new, "up")

        rename("eth2", "odd2")
        await_bytes(running, 2)
        rename("odd2", "eth2")
        await_bytes(running, 2)


def test_an_address_goes_and_comes_back(two: Rails, tmp_path: Path) -> None:
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        goes_and_comes_back(running, 0, lambda: two.take_address(1, 0), lambda: two.give_address(1, 0))


def test_an_address_moves_to_another_interface(two: Rails, tmp_path: Path) -> None:
    """Onto a bridge above the NIC, as hosts of containers have it, and back. What is bound to the NIC follows."""
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        two.ip(1, "link", "add", "name", "br0", "type", "bridge", "forward_delay", 0)
        two.ip(1, "link", "set", "br0", "up")

        def onto_the_bridge() -> None:
            two.ip(1, "link", "set", "eth0", "master", "br0")
            two.give_address(1, 0, "br0")

        try:
            goes_and_comes_back(running, 0, lambda: two.take_address(1, 0), onto_the_bridge)
            assert any("br0" in str(event["detail"]) for event in running.events(1, "link_up")), running.output()
            goes_and_comes_back(
                running,
                0,
                lambda: two.take_address(1, 0, "br0"),
                lambda: (two.ip(1, "link", "set", "eth0", "nomaster"), two.give_address(1, 0))[1],
            )
        finally:
            two.ip(1, "link", "del", "br0")


def test_what_does_not_concern_a_nic_is_no_loss(two: Rails, tmp_path: Path) -> None:
    """Another MTU, other addresses, interfaces that come and go, and a port that leaves a bridge:
    that one's last message, of the bridge, reads as if the NIC were gone."""
    with job(two, tmp_path) as running:
        two.ip(1, "link", "set", "eth1", "mtu", 1400)
        two.ip(1, "link", "set", "eth1", "mtu", 1500)
        two.ip(1, "addr", "add", "10.78.0.77/24", "dev", "eth1")
        two.ip(1, "addr", "del", "10.78.0.77/24", "dev", "eth1")
        for _ in range(20):
            two.ip(1, "link", "add", "name", "odd0", "type", "veth", "peer", "name", "odd1")
            two.ip(1, "link", "add", "link", "eth2", "name", "odd7", "type", "macvlan")
            two.ip(1, "link", "del", "odd0")
            two.ip(1, "link", "del", "odd7")
        two.ip(1, "link", "add", "name", "br1", "type", "bridge")
        two.ip(1, "link", "set", "eth2", "master", "br1")
        two.ip(1, "link", "set", "eth2", "nomaster")
        two.ip(1, "link", "del", "br1")
        running.moves()
        assert running.events(1, "link_down") == [], running.output()
        until(lambda: running.status(1)["nics"][2]["state"] == "up", running.output)


def test_a_nic_above_another_is_a_nic_of_its_own(tmp_path: Path) -> None:
    """A MACVLAN, as a VLAN would be: it goes and comes back with another index while the one below stays."""
    with rails(2, 1) as network:

        def make(host: int) -> None:
            network.ip(host, "link", "add", "link", "eth0", "name", "eth0v", "type", "macvlan")
            network.ip(host, "addr", "add", f"10.99.9.{host + 1}/24", "dev", "eth0v")
            network.ip(host, "link", "set", "eth0v", "up")

        for host in range(2):
            # Else the NIC below answers for the address above it: both are on one wire.
            for setting in ("arp_ignore=1", "arp_announce=2"):
                sh(*network.inside(host, "sysctl", "-qw", f"net.ipv4.conf.all.{setting}"))
            make(host)
        with job(network, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
            goes_and_comes_back(running, 1, lambda: network.ip(1, "link", "del", "eth0v"), lambda: make(1))
            assert not any(event["nic"] == "eth0" for event in running.events(1, "link_down")), running.output()


def test_nics_are_made_again_while_the_job_begins(two: Rails, tmp_path: Path) -> None:
    """In the middle of opening, several times over, and none of it ends the job."""
    running = Job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0", R2CC_CONNECT_TIMEOUT_MS="300")
    try:
        until(lambda: bool(running.status(0)) and bool(running.status(1)), running.output)
        for _ in range(4):
            for host, nic in ((1, 1), (0, 2)):
                two.unmake(host, nic)
                two.make(host, nic)
        running.moves(1)
        for nic in range(3):
            await_bytes(running, nic)
        assert all(rank.poll() is None for rank in running.ranks), running.output()
    finally:
        running.stop()


def test_a_nic_is_made_again_while_the_kernels_words_are_lost(two: Rails, tmp_path: Path) -> None:
    """A process that is stopped hears nothing, and its queue of messages overflows: it asks for what it missed."""
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        os.kill(running.ranks[1].pid, signal.SIGSTOP)
        churn = "".join(f"addr {do} 10.200.0.1/32 dev eth2\n" for _ in range(1500) for do in ("add", "del"))
        (tmp_path / "churn").write_text(churn)
        two.ip(1, "-batch", tmp_path / "churn")
        sockets = sh(*two.inside(1, "cat", "/proc/net/netlink")).splitlines()[1:]
        assert any(int(line.split()[8]) > 0 for line in sockets), "some were dropped"
        before = two.ip(1, "-o", "link", "show", "eth1").split(":")[0]
        two.unmake(1, 1)
        two.make(1, 1)
        assert two.ip(1, "-o", "link", "show", "eth1").split(":")[0] != before
        os.kill(running.ranks[1].pid, signal.SIGCONT)
        await_bytes(running, 1)
        until(lambda: any(e["nic"] == "eth1" for e in running.events(1, "link_up")), running.output)
        assert not any(e["nic"] == "eth2" for e in running.events(1, "link_down")), running.output()


def test_a_secondary_address_is_a_nic_like_another(two: Rails, tmp_path: Path) -> None:
    """It is lost with the first address of its subnet, unless the kernel promotes it: then nothing happened."""
    sh(*two.inside(1, "sysctl", "-qw", "net.ipv4.conf.all.promote_secondaries=0"))
    first = ("10.78.0.99/24", "dev", "eth1")
    with job(two, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:

        def make_it_second() -> None:
            two.ip(1, "addr", "add", *first)
            two.give_address(1, 1)

        goes_and_comes_back(running, 1, lambda: two.take_address(1, 1), make_it_second)
        goes_and_comes_back(running, 1, lambda: two.ip(1, "addr", "del", *first), make_it_second)
        sh(*two.inside(1, "sysctl", "-qw", "net.ipv4.conf.eth1.promote_secondaries=1"))
        downs = len(running.events(1, "path_down"))
        two.ip(1, "addr", "del", *first)
        running.moves()
        await_bytes(running, 1)
        assert len(running.events(1, "path_down")) == downs, running.output()


def test_a_nic_that_is_silent_from_the_start_is_told_of(tmp_path: Path) -> None:
    """Three hosts; the cable of one NIC is dead before they begin. Nothing is lost, and everybody knows whose it is."""
    with rails(3, 2) as network:
        network.unplug_from_rail(1, 1)
        dead = network.address(1, 1)
        with job(network, tmp_path, R2CC_CONNECT_TIMEOUT_MS="300") as running:

            def standing(rank: int) -> set[tuple[str, str, str]]:
                return {(v["nic"], v["peer"], v["verdict"]) for v in running.status(rank)["verdicts"] if v["standing"]}

            others = {network.address(0, 1), network.address(2, 1)}
            until(lambda: {v for n, p, v in standing(1) if p in others} == {"local_nic"}, running.output)
            until(lambda: all(("eth1", dead, "remote_nic") in standing(rank) for rank in (0, 2)), running.output)
            for rank in range(3):
                told = running.events(rank, "path_never_up")
                assert {event["nic"] for event in told} == {"eth1"}, running.output()
                assert len({event["peer"] for event in told}) == len(told), "once for a NIC and a peer"
                assert running.events(rank, "path_down") == []
            nic = running.status(1)["nics"][1]
            assert (nic["state"], nic["paths_up"]) == ("down", 0) and nic["paths_never_up"] >= 2
            network.plug_into_rail(1, 1)
            until(lambda: running.status(1)["nics"][1]["state"] == "up", running.output)
            await_bytes(running, 1)
            assert running.status(1)["nics"][1]["paths_never_up"] == 0
            until(lambda: not any(standing(rank) for rank in range(3)), running.output)


def test_two_hosts_tell_of_a_silent_nic_whose_fault_they_cannot_know(tmp_path: Path) -> None:
    with rails(2, 2) as network:
        network.drop(1, 1)
        with job(network, tmp_path, R2CC_CONNECT_TIMEOUT_MS="300") as running:
            for rank in range(2):
                until(lambda rank=rank: bool(running.events(rank, "verdict")), running.output)  # type: ignore[misc]
                (told,) = running.events(rank, "path_never_up")
                assert told["detail"] in (
                    "no answer to connection requests",
                    "says the peer, which gets no answer there",
                )
                assert running.events(rank, "verdict")[0]["detail"].startswith("unknown")


def test_a_nic_whose_link_is_down_from_the_start_is_told_of_at_once(tmp_path: Path) -> None:
    with rails(2, 2) as network:
        network.port(1, 1, "down")
        with job(network, tmp_path, R2CC_CONNECT_TIMEOUT_MS="300") as running:
            until(lambda: bool(running.events(1, "verdict")), running.output)
            assert running.events(1, "verdict")[0]["detail"].startswith("local_nic")
            (told,) = running.events(1, "path_never_up")
            assert "link of this NIC is down" in told["detail"] or "says the peer" in told["detail"]
            until(lambda: bool(running.events(0, "verdict")), running.output)
            assert running.events(0, "verdict")[0]["detail"].startswith("remote_nic")


def test_the_jobs_own_probes_are_no_strangers_and_a_scan_is_counted(tmp_path: Path) -> None:
    """Over a path that loses a fifth of its packets greetings and the ends of probes are lost, too."""
    with rails(3, 2) as network, job(network, tmp_path, R2CC_FLAP_HALF_LIFE_MS="0") as running:
        network.drop(1, 1, 0.3)
        time.sleep(6)
        network.heal(1, 1)
        for rank in range(3):
            assert running.events(rank, "refused") == [], running.output()
            assert sum(one["count"] for one in running.status(rank)["strangers"]) <= 1, running.status(rank)
        assert sum(running.status(rank)["own_probes"] for rank in range(3)) > 0
        events = len(running.status(1)["events"])
        scan(network, 0, network.address(1, 0), 2000)
        until(lambda: sum(one["count"] for one in running.status(1)["strangers"]) >= 2000, running.output)
        assert len(running.events(1, "refused")) == 1, running.output()
        assert len(running.status(1)["events"]) < events + 50
        running.moves()


def scan(network: Rails, host: int, address: str, times: int) -> None:
    """Speaks HTTP to every port of a host on which its rank listens, from another one's namespace."""
    found = sh(*network.inside(1, "ss", "-Hltn"))
    ports = {int(line.split()[3].rpartition(":")[2]) for line in found.splitlines()}
    code = f"""
import socket
for port in {sorted(ports)!r}:
    for _ in range({times}):
        with socket.create_connection(({address!r}, port), 5) as s:
            try:
                s.sendall(b"GET / HTTP/1.1\\r\\n\\r\\n")
                s.recv(1)
            except ConnectionError:
                pass
"""
    sh(*network.inside(host, sys.executable, "-c", code))


TELLS = """
import os, sys
import numpy as np
from r2ccl_core import Communicator

def tell(change):
    print(change.name, change.state, change.reason, flush=True)

rank = int(os.environ["R2CC_RANK"])
with Communicator(rank, 2, os.environ["R2CC_ROOT"], on_nic=tell) as comm:
    told = False
    while True:  # one way only, so rank 0 has the sending end of each path, which holds it back
        comm.send(np.ones(1000), 1) if rank == 0 else comm.recv(np.empty(1000), 0)
        if not told and all(nic["paths_up"] for nic in comm.stats()["nics"]):
            print("ready", flush=True)
            told = True
"""


def test_a_program_hears_that_a_nic_is_held_back_and_that_it_is_lost_then(two: Rails, tmp_path: Path) -> None:
    told = tmp_path / "told"
    ranks = []

    def await_told(*states: str) -> list[str]:
        """All that rank 0 has been told of the NIC, once its states are these."""
        until(lambda: [line.split()[1] for line in lines()] == list(states), told.read_text)
        return lines()

    def lines() -> list[str]:
        return [line for line in told.read_text().splitlines() if line.startswith("eth1 ")]

    try:
        for rank in range(2):
            env = {
                **os.environ,
                "R2CC_RANK": str(rank),
                "R2CC_ROOT": f"{two.address(0, two.nics)}:7000",
                "R2CC_SOCKET_IFNAME": "eth",
                "R2CC_FLAP_HALF_LIFE_MS": "86400000",  # as good as for ever
                "R2CC_FLAP_MAX_MS": "86400000",
                "R2CC_FLAP_SUPPRESS": "1500",
            }
            with (told if rank == 0 else tmp_path / "other").open("w") as out:
                argv = two.inside(rank, sys.executable, "-c", TELLS)
                ranks.append(subprocess.Popen(argv, env=env, stdout=out, stderr=out))
        until(lambda: "ready" in told.read_text(), told.read_text)
        two.port(0, 1, "down")
        await_told("down")
        two.port(0, 1, "up")
        await_told("down", "up")
        two.port(0, 1, "down")
        await_told("down", "up", "down")
        two.port(0, 1, "up")
        held = await_told("down", "up", "down", "held")
        assert "lost too often lately" in held[-1], held
        two.port(0, 1, "down")
        lost = await_told("down", "up", "down", "held", "down")
        assert "link down" in lost[-1], lost
    finally:
        two.port(0, 1, "up")
        for one in ranks:
            one.kill()
            one.wait()
