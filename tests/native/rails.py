"""Hosts as network namespaces with one bridge per rail, whose ports lose what a test asks for. No SSH, no harness.

A drop rule is classic BPF on the switch's side of a host's cable (clsact, direct action): the kernel sees every packet
go and tells nobody, so it is a black hole, in the directions and for the share of packets that were asked for.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_RANDOM = 0xFFFFF000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
_EVERYTHING = 1 << 32
_numbers = itertools.count()
_SOURCE, _DESTINATION = 26, 30  # of an IPv4 packet in an Ethernet frame


def sh(*argv: str | int) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}: {done.stderr.strip()}")
    return done.stdout


def large_ones(longest: int) -> str:
    """Drops packets longer than so many bytes."""
    return f"4,128 0 0 0,37 0 1 {longest},6 0 0 2,6 0 0 0,"


def streams() -> str:
    """Drops what belongs to open TCP streams; greetings (SYN) pass."""
    return "4,48 0 0 47,69 0 1 2,6 0 0 0,6 0 0 2,"


def bytecode(share: float) -> str:
    """Drops a packet (2) with the probability `share`, else lets it pass (0)."""
    keep_from = round(share * _EVERYTHING)
    if keep_from >= _EVERYTHING:
        return "1,6 0 0 2,"
    return f"4,32 0 0 {_RANDOM},53 0 1 {keep_from},6 0 0 0,6 0 0 2,"


@dataclass(frozen=True)
class Rails:
    """`hosts` namespaces with `nics` NICs each, eth0 and on, NIC i on rail i; mgmt besides. Use `rails()`."""

    tag: str
    hosts: int
    nics: int

    def place(self, host: int) -> str:
        return f"{self.tag}h{host}"

    @property
    def switch(self) -> str:
        return f"{self.tag}sw"

    @staticmethod
    def address(host: int, nic: int) -> str:
        return f"10.{77 + nic}.0.{host + 1}"

    def inside(self, host: int, *argv: str | int) -> list[str]:
        return ["ip", "netns", "exec", self.place(host), *map(str, argv)]

    def build(self, rate: str) -> None:
        sh("ip", "netns", "add", self.switch)
        for rail in range(self.nics + 1):
            sh("ip", "-n", self.switch, "link", "add", f"rail{rail}", "type", "bridge")
            sh("ip", "-n", self.switch, "link", "set", f"rail{rail}", "up")
        for host in range(self.hosts):
            sh("ip", "netns", "add", self.place(host))
            sh("ip", "-n", self.place(host), "link", "set", "lo", "up")
            for nic in range(self.nics + 1):
                self._cable(host, nic, rate)

    def _cable(self, host: int, nic: int, rate: str, mac: str = "") -> None:
        name = f"eth{nic}" if nic < self.nics else "mgmt"
        port = f"p{host}-{nic}"
        place = self.place(host)
        own = ("address", mac) if mac else ()
        sh("ip", "-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", name, *own, "netns", place)
        sh("ip", "-n", self.switch, "link", "set", port, "master", f"rail{nic}", "up")
        self.give_address(host, nic, name)
        self.ip(host, "link", "set", name, "up")
        if nic == self.nics:
            return
        sh("tc", "-n", self.switch, "qdisc", "add", "dev", port, "clsact")
        for where in ((self.switch, port), (place, name)):
            shape = ("root", "tbf", "rate", rate, "burst", "128kb", "latency", "20ms")
            sh("tc", "-n", where[0], "qdisc", "add", "dev", where[1], *shape)

    def drop(self, host: int, nic: int, share: float = 1.0, directions: str = "both") -> None:
        """Packets from ("out"), to ("in") or both ways of a NIC are lost on the cable with the probability `share`."""
        self._drop(host, nic, bytecode(share), directions)

    def narrow(self, host: int, nic: int, longest: int) -> None:
        """Only packets of at most so many bytes get through, as where a switch's MTU is smaller than the hosts'."""
        self._drop(host, nic, large_ones(longest), "both")

    def break_streams(self, host: int, nic: int) -> None:
        """Open streams are lost and new ones can begin, as where a switch or a firewall forgot them."""
        self._drop(host, nic, streams(), "both")

    def _drop(self, host: int, nic: int, code: str, directions: str) -> None:
        self.heal(host, nic)
        for direction, hook in (("out", "ingress"), ("in", "egress")):
            if directions in (direction, "both"):
                rule = ("bpf", "direct-action", "bytecode", code)
                sh("tc", "-n", self.switch, "filter", "add", "dev", f"p{host}-{nic}", hook, *rule)

    def cut_between(self, host: int, other: int, nic: int) -> None:
        """What `host` sends to `other` over the rail is lost, and what comes from there; it reaches everybody else."""
        self.heal(host, nic)
        peer = int(ipaddress.ip_address(self.address(other, nic)))
        for hook, field in (("ingress", _DESTINATION), ("egress", _SOURCE)):
            code = f"6,40 0 0 12,21 0 3 2048,32 0 0 {field},21 0 1 {peer},6 0 0 2,6 0 0 0,"
            rule = ("bpf", "direct-action", "bytecode", code)
            sh("tc", "-n", self.switch, "filter", "add", "dev", f"p{host}-{nic}", hook, *rule)

    def heal(self, host: int, nic: int) -> None:
        for hook in ("ingress", "egress"):
            sh("tc", "-n", self.switch, "filter", "del", "dev", f"p{host}-{nic}", hook)

    def port(self, host: int, nic: int, state: str) -> None:
        """The switch's port: its loss of carrier is seen by the host, too."""
        sh("ip", "-n", self.switch, "link", "set", f"p{host}-{nic}", state)

    def unplug_from_rail(self, host: int, nic: int) -> None:
        """The switch forgets the port while the cable still has carrier."""
        sh("ip", "-n", self.switch, "link", "set", f"p{host}-{nic}", "nomaster")

    def plug_into_rail(self, host: int, nic: int) -> None:
        sh("ip", "-n", self.switch, "link", "set", f"p{host}-{nic}", "master", f"rail{nic}")

    def rate(self, host: int, nic: int, rate: str) -> None:
        shape = ("root", "tbf", "rate", rate, "burst", "128kb", "latency", "20ms")
        sh("tc", "-n", self.switch, "qdisc", "replace", "dev", f"p{host}-{nic}", *shape)
        sh("tc", "-n", self.place(host), "qdisc", "replace", "dev", f"eth{nic}", *shape)

    def ip(self, host: int, *argv: str | int) -> str:
        """`ip` in the namespace of a host."""
        return sh("ip", "-n", self.place(host), *argv)

    def route(self) -> None:
        """From now on the switch routes between rails, and hosts send from each address by its own NIC."""
        sh("ip", "netns", "exec", self.switch, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for rail in range(self.nics):
            sh("ip", "-n", self.switch, "addr", "add", f"10.{77 + rail}.0.254/24", "dev", f"rail{rail}")
        for host, nic in itertools.product(range(self.hosts), range(self.nics)):
            gateway, table = f"10.{77 + nic}.0.254", 100 + nic
            self.ip(host, "rule", "add", "from", self.address(host, nic), "table", table)
            self.ip(host, "rule", "add", "oif", f"eth{nic}", "table", table)
            self.ip(host, "route", "add", f"10.{77 + nic}.0.0/24", "dev", f"eth{nic}", "table", table)
            self.ip(host, "route", "add", "default", "via", gateway, "dev", f"eth{nic}", "table", table)

    def mac(self, host: int, nic: int) -> str:
        (link,) = json.loads(self.ip(host, "-j", "link", "show", f"eth{nic}"))
        return str(link["address"])

    def unmake(self, host: int, nic: int) -> None:
        """The host's NIC is gone, as where its driver is unloaded."""
        self.ip(host, "link", "del", f"eth{nic}")

    def make(self, host: int, nic: int, rate: str = "400mbit", mac: str = "") -> None:
        """A NIC of the same name and address, with another index, and a MAC of the kernel's choice or this one."""
        self._cable(host, nic, rate, mac)

    def give_address(self, host: int, nic: int, name: str = "") -> None:
        address = self.address(host, nic)
        self.ip(host, "addr", "add", f"{address}/24", "dev", name or f"eth{nic}")

    def take_address(self, host: int, nic: int, name: str = "") -> None:
        self.ip(host, "addr", "del", f"{self.address(host, nic)}/24", "dev", name or f"eth{nic}")

    def remove(self) -> None:
        for name in (self.switch, *map(self.place, range(self.hosts))):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def rails(hosts: int, nics: int, rate: str = "400mbit") -> Iterator[Rails]:
    made = Rails(f"r2t{os.getpid()}n{next(_numbers)}", hosts, nics)
    try:
        made.build(rate)
        yield made
    finally:
        made.remove()


class Job:
    """AllReduce without end over all hosts, every element of every iteration checked; it ends with the test."""

    def __init__(self, network: Rails, folder: Path, size: str = "1M", **variables: str) -> None:
        self.folder = folder
        self.ranks: list[subprocess.Popen[str]] = []
        for rank in range(network.hosts):
            env = {
                **os.environ,
                "R2CC_RANK": str(rank),
                "R2CC_SIZE": str(network.hosts),
                "R2CC_ROOT": f"{network.address(0, network.nics)}:7000",
                "R2CC_SOCKET_IFNAME": "eth",
                "R2CC_STATUS_DIR": str(folder / str(rank)),
                "R2CC_STATUS_MS": "100",
                **variables,
            }
            argv = ("r2ccl-perf", "all_reduce", "-b", size, "-n", 1000000, "-c", 1, "--stdin-watch", "--stream")
            command = network.inside(rank, *argv)
            with (folder / f"{rank}.out").open("w") as out:
                self.ranks.append(
                    subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)
                )

    def ended(self) -> bool:
        """A rank has ended."""
        return any(rank.poll() is not None for rank in self.ranks)

    def status(self, rank: int) -> dict[str, Any]:
        """What the rank's status file says; empty while there is none."""
        for path in (self.folder / str(rank)).glob("*.json"):
            found: dict[str, Any] = json.loads(path.read_text())
            return found
        return {}

    def events(self, rank: int, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.status(rank).get("events", []) if event["kind"] == kind]

    def moved(self, rank: int, nic: int) -> int:
        """Bytes that the rank has sent over the NIC and that arrived."""
        return int(self.status(rank)["nics"][nic]["acknowledged_bytes"])

    def moves(self, bytes_each: int = 8 << 20) -> None:
        """Returns when every rank got on by so much."""
        until(lambda: self.ended() or all(self.status(rank) for rank in range(len(self.ranks))), self.output)
        assert not self.ended(), self.output()

        def total(rank: int) -> int:
            return sum(nic["acknowledged_bytes"] for nic in self.status(rank)["nics"])

        before = [total(rank) for rank in range(len(self.ranks))]
        until(lambda: all(total(rank) >= before[rank] + bytes_each for rank in range(len(self.ranks))), self.output)

    def output(self) -> str:
        """The ends of the ranks' words and events, for the message of a failed test."""
        parts = []
        for rank in range(len(self.ranks)):
            parts.append(f"rank {rank}: " + (self.folder / f"{rank}.out").read_text()[-500:])
            parts += [json.dumps(event) for event in self.status(rank).get("events", [])[-15:]]
        return "\n".join(parts)

    def stop(self) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            if rank.stdin is not None:
                rank.stdin.close()


@contextmanager
def job(network: Rails, folder: Path, size: str = "1M", **variables: str) -> Iterator[Job]:
    running = Job(network, folder, size, **variables)
    try:
        running.moves(1)
        yield running
        for rank in running.ranks:
            assert rank.poll() is None, running.output()
    finally:
        running.stop()


def until(condition: Callable[[], bool], told: Callable[[], str], seconds: float = 120) -> None:
    """Waits for `condition`; fails with what `told` says when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, told()
        time.sleep(0.02)
