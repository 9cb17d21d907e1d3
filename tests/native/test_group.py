"""Groups in network namespaces while the management network is silent, down or flapping, every element checked."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rails import Job, Rails, job, rails, sh, until

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]

LONGEST_PAUSE_S = 3.0
"""Another way is found a second after the silence began; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def three() -> Iterator[Rails]:
    with rails(3, 2) as network:
        yield network


def told(path: Path, kind: str) -> list[dict[str, Any]]:
    """A rank's events of a kind; its last line may be incomplete."""
    lines = [line for line in path.read_text().split("\n")[:-1] if line.startswith("{")]
    return [event for line in lines if (event := json.loads(line))["event"] == kind]


def iterations(running: Job, rank: int = 0) -> list[dict[str, Any]]:
    return told(running.folder / f"{rank}.out", "iteration")


def goes_on(running: Job, more: int = 50) -> None:
    """All ranks get on by so many operations. A barrier is before each."""
    before = [len(iterations(running, rank)) for rank in range(3)]
    until(lambda: all(len(iterations(running, rank)) >= n + more for rank, n in enumerate(before)), running.output)


def all_right(running: Job) -> None:
    for rank in range(3):
        assert all(one["wrong"] == 0 for one in iterations(running, rank)), running.output()


def by_management(network: Rails, host: int) -> bool:
    """Whether the stream of a host's rank to rank 0 goes over the management network."""
    found = sh(*network.inside(host, "ss", "-Htn", "state", "established", "dst", network.address(0, network.nics)))
    return bool(found.strip())


def longest_pause_s(running: Job) -> float:
    begun = [one["t_ns"] for one in iterations(running)]
    return max(after - before for before, after in itertools.pairwise(begun)) / 1e9


@pytest.mark.parametrize(("host", "seconds"), [(1, 3), (0, 8)])
def test_a_silence_of_the_management_network_is_a_short_pause(
    three: Rails, tmp_path: Path, host: int, seconds: float
) -> None:
    with job(three, tmp_path, "64K") as running:
        assert by_management(three, 1) and by_management(three, 2)
        goes_on(running)
        three.unplug_from_rail(host, three.nics)
        try:
            time.sleep(seconds - 1)
            goes_on(running)
            assert not by_management(three, 1)
            time.sleep(1)
        finally:
            three.plug_into_rail(host, three.nics)
        goes_on(running)
        until(lambda: by_management(three, 1) and by_management(three, 2), running.output, 10)
        goes_on(running)
        all_right(running)
        assert longest_pause_s(running) < LONGEST_PAUSE_S


def test_a_management_network_that_flaps(three: Rails, tmp_path: Path) -> None:
    with job(three, tmp_path, "64K") as running:
        for turn, seconds in enumerate((0.3, 2.5, 0.7, 1.5, 3)):
            three.port(turn % 3, three.nics, "down")
            time.sleep(seconds)
            three.port(turn % 3, three.nics, "up")
            time.sleep(0.5 * (turn % 2))
        goes_on(running)
        until(lambda: by_management(three, 1) and by_management(three, 2), running.output, 10)
        goes_on(running)
        all_right(running)
        assert longest_pause_s(running) < LONGEST_PAUSE_S


def test_everything_silent_for_three_seconds(three: Rails, tmp_path: Path) -> None:
    with job(three, tmp_path, "64K") as running:
        goes_on(running)
        for nic in range(three.nics + 1):
            three.unplug_from_rail(1, nic)
        time.sleep(3)
        for nic in range(three.nics + 1):
            three.plug_into_rail(1, nic)
        goes_on(running)
        all_right(running)
        assert longest_pause_s(running) > 2, "the control: this is what a pause looks like"


@pytest.fixture
def no_management(three: Rails) -> Iterator[Rails]:
    """The management network can be taken away for good, as far as the test goes."""
    yield three
    for host in range(three.hosts):
        three.port(host, three.nics, "up")


def lose_management(network: Rails) -> None:
    for host in range(network.hosts):
        network.port(host, network.nics, "down")


def test_without_management_for_good_a_job_comes_to_its_end(no_management: Rails, tmp_path: Path) -> None:
    network = no_management
    ranks = []
    for rank in range(3):
        env = {
            **os.environ,
            "R2CC_RANK": str(rank),
            "R2CC_SIZE": "3",
            "R2CC_ROOT": f"{network.address(0, network.nics)}:7000",
            "R2CC_SOCKET_IFNAME": "eth",
        }
        argv = ("r2ccl-perf", "all_reduce", "-b", "64K", "-n", 1500, "--place", "out", "--stream", "--corrupt", "1:30")
        with (tmp_path / f"{rank}.out").open("w") as out:
            ranks.append(subprocess.Popen(network.inside(rank, *argv), env=env, stdout=out, stderr=out))
    try:
        until(lambda: len(told(tmp_path / "0.out", "iteration")) > 100, lambda: (tmp_path / "0.out").read_text()[-500:])
        lose_management(network)
        for rank, process in enumerate(ranks):
            assert process.wait(60) == 1, (tmp_path / f"{rank}.out").read_text()[-500:]  # the wrong element below
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    wrong = {
        (rank, one["iteration"]): one["wrong"]
        for rank in range(3)
        for one in told(tmp_path / f"{rank}.out", "iteration")
    }
    assert len(wrong) == 3 * 1501
    assert {at: count for at, count in wrong.items() if count} == {(1, 30): 1}
    for rank in range(3):
        [done] = told(tmp_path / f"{rank}.out", "done")
        assert all("eth" in way for way in done["core"]["group_ways"].values())


@pytest.mark.parametrize(
    ("how", "words"), [(signal.SIGINT, "rank 1: KeyboardInterrupt"), (signal.SIGKILL, "")], ids=["error", "death"]
)
def test_without_management_errors_and_deaths_are_heard_at_once(
    no_management: Rails, tmp_path: Path, how: signal.Signals, words: str
) -> None:
    running = Job(no_management, tmp_path, "64K")
    try:
        running.moves(1)
        lose_management(no_management)
        goes_on(running)
        running.ranks[1].send_signal(how)
        begun_s = time.monotonic()
        for rank in (0, 2):
            assert running.ranks[rank].wait(30) == 3
        assert time.monotonic() - begun_s < 4
        for rank in (0, 2):
            [error] = told(tmp_path / f"{rank}.out", "error")
            assert words in error["message"] and "rank" in error["message"]
    finally:
        running.stop()


WATCHES = """
import logging, os, sys
import numpy as np
from r2ccl_core.runtime.communicator import Communicator

logging.basicConfig(stream=sys.stdout, format="log %(message)s")
with Communicator.from_env(on_nic=lambda change: sys.stdout.write(f"told {change}\\n")) as comm:
    own = np.full(50_000, comm.rank + 1.0)
    while not comm.exchange(b"!" * (comm.rank == 0 and os.path.exists(sys.argv[1])))[0]:
        assert (comm.all_reduce(own) == 3).all()
        sys.stdout.write("went on\\n")  # whole lines: another thread writes, too
        sys.stdout.flush()
"""


def test_a_program_is_told_of_its_nics_losses_and_returns(three: Rails, tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        env = {**os.environ, "R2CC_RANK": str(rank), "R2CC_SIZE": "2", "R2CC_SOCKET_IFNAME": "eth"}
        env["R2CC_ROOT"] = f"{three.address(0, three.nics)}:7001"
        argv = three.inside(rank, sys.executable, "-c", WATCHES, tmp_path / "over")
        with (tmp_path / f"{rank}.out").open("w") as out:
            ranks.append(subprocess.Popen(argv, env=env, stdout=out, stderr=out))

    def said(rank: int) -> str:
        return (tmp_path / f"{rank}.out").read_text()

    lost = f"NIC eth1 {three.address(1, 1)} is lost (to {three.address(0, 1)}: "
    try:
        until(lambda: "went on" in said(1), lambda: said(1))
        three.port(1, 1, "down")
        until(lambda: f"told {lost}" in said(1) and f"log rank 1: {lost}" in said(1), lambda: said(1))
        three.port(1, 1, "up")
        until(lambda: f"told NIC eth1 {three.address(1, 1)} is back" in said(1), lambda: said(1))
        (tmp_path / "over").touch()
        assert [process.wait(30) for process in ranks] == [0, 0], said(0) + said(1)
    finally:
        three.port(1, 1, "up")
        for process in ranks:
            process.kill()
            process.wait()


def test_a_host_that_vanishes_ends_the_group_within_the_patience(three: Rails, tmp_path: Path) -> None:
    running = Job(three, tmp_path, "64K", R2CC_FAILOVER_GIVE_UP_MS="4000")
    try:
        running.moves(1)
        goes_on(running)
        for nic in range(three.nics + 1):
            three.unplug_from_rail(2, nic)
        begun_s = time.monotonic()
        for rank in range(3):
            assert running.ranks[rank].wait(30) == 3
        assert 3.5 < time.monotonic() - begun_s < 8
    finally:
        running.stop()
        for nic in range(three.nics + 1):
            three.plug_into_rail(2, nic)
