"""Transfers in network namespaces while NICs fail under them: every byte of every one is compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rails import Rails, rails, until

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]

PAIR = Path(__file__).with_name("transfer_pair.py")


class Pair:
    """A source that writes to a sink without end, on two hosts or on one."""

    def __init__(self, network: Rails, folder: Path, spoil: int, hosts: tuple[int, int]) -> None:
        self.folder = folder
        env = {**os.environ, "R2CC_SOCKET_IFNAME": "eth"}
        self.processes: list[subprocess.Popen[str]] = []
        for host, role in zip(hosts, ("source", "sink"), strict=True):
            with (folder / f"{role}.out").open("w") as out:
                argv = network.inside(host, sys.executable, PAIR, role, spoil)
                self.processes.append(
                    subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out, text=True)
                )
        until(lambda: all(self.said(role) for role in ("source", "sink")), self.output)
        for process, words in zip(self.processes, (self.said("sink")[0], self.said("source")[0]), strict=True):
            assert process.stdin is not None
            print(words, file=process.stdin, flush=True)

    def said(self, role: str) -> list[str]:
        """Whole lines only."""
        return (self.folder / f"{role}.out").read_text().split("\n")[:-1]

    def output(self) -> str:
        return "\n".join(f"{role}: {self.said(role)[-8:]}" for role in ("source", "sink"))

    def last(self) -> dict[str, int]:
        lines = self.said("sink")
        found: dict[str, int] = json.loads(lines[-1]) if len(lines) > 1 else {"rounds": 0, "wrong": 0}
        return found

    def moves(self, rounds: int = 2) -> None:
        """Returns when so many more were written and compared."""
        wanted = self.last()["rounds"] + rounds
        until(lambda: self.last()["rounds"] >= wanted, self.output, 60)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


@contextmanager
def pair(network: Rails, folder: Path, spoil: int = -1, hosts: tuple[int, int] = (0, 1)) -> Iterator[Pair]:
    running = Pair(network, folder, spoil, hosts)
    try:
        yield running
        assert all(process.poll() is None for process in running.processes), running.output()
    finally:
        running.stop()


@pytest.fixture(scope="module")
def network() -> Iterator[Rails]:
    with rails(2, 2) as made:
        yield made


def test_every_byte_arrives_through_every_failure(network: Rails, tmp_path: Path) -> None:
    network.port(0, 1, "down")  # before they connect
    with pair(network, tmp_path) as running:
        running.moves()
        network.port(0, 1, "up")
        running.moves()
        network.port(1, 0, "down")  # the other rail, and the sink's end
        running.moves()
        network.port(1, 0, "up")
        running.moves()
        network.drop(0, 1)
        running.moves()
        network.heal(0, 1)
        running.moves()
        for _ in range(4):
            network.port(0, 0, "down")
            time.sleep(0.05)
            network.port(0, 0, "up")
            time.sleep(0.05)
        running.moves()
        assert running.last()["wrong"] == 0


def test_a_wrong_byte_is_noticed(network: Rails, tmp_path: Path) -> None:
    with pair(network, tmp_path, spoil=1) as running:
        running.moves(3)
        assert running.last()["wrong"] == 1


def test_engines_of_one_host_need_no_nic(network: Rails, tmp_path: Path) -> None:
    for nic in range(2):
        network.port(0, nic, "down")
    try:
        with pair(network, tmp_path, hosts=(0, 0)) as running:
            running.moves()
            assert running.last()["wrong"] == 0
    finally:
        for nic in range(2):
            network.port(0, nic, "up")
