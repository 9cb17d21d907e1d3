"""NIXL over R2CCL and over its own UCX backend, in the same namespaces: throughput, and what a failure costs.

    R2CCL_NIXL_PYTHON=VENV/bin/python python tests/native/nixl_compare.py throughput|failures [MIB]

Two and three hosts of two rails each; every transfer is a WRITE of blocks (a KV cache's are so), each byte compared
with what was sent. The backends take turns. Needs the right to make namespaces, and a Python that has nixl-cu12.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nixl_hosts import Agent, acquaint, agents
from rails import Rails, rails, sh

_BLOCK = 64 << 10
_ROUNDS = 5
_GIVE_UP_S = 20.0
_SHAPED = "1gbit"
TUNED = {"UCX_KEEPALIVE_INTERVAL": "1s", "UCX_TCP_KEEPIDLE": "1s", "UCX_TCP_KEEPINTVL": "1s", "UCX_TCP_KEEPCNT": "3"}


@dataclass(frozen=True)
class Row:
    """How a transfer ended; `wrong` bytes None where it did not."""

    backend: str
    case: str
    state: str
    seconds: float
    wrong: int | None

    def line(self, healthy_s: float) -> str:
        lost = f"{self.seconds - healthy_s:+.2f} s" if self.state == "DONE" else "-"
        wrong = "-" if self.wrong is None else str(self.wrong)
        return f"| {self.case} | {self.backend} | {self.state} | {self.seconds:.2f} s | {lost} | {wrong} |"


def unshape(network: Rails) -> None:
    """As fast as the machine."""
    for host in range(network.hosts):
        for nic in range(network.nics):
            sh("tc", "-n", network.switch, "qdisc", "del", "dev", f"p{host}-{nic}", "root")
            sh("tc", "-n", network.place(host), "qdisc", "del", "dev", f"eth{nic}", "root")


def flap(network: Rails) -> None:
    for _ in range(5):
        network.port(0, 1, "down")
        time.sleep(0.1)
        network.port(0, 1, "up")
        time.sleep(0.1)


FAULTS: dict[str, Callable[[Rails], None]] = {
    "link of a NIC down at 30 %": lambda network: network.port(0, 1, "down"),
    "black hole on a cable at 30 %": lambda network: network.drop(0, 1),
    "flap, 5 times 0.1 s, from 30 % on": flap,
}


def heal(network: Rails) -> None:
    network.port(0, 1, "up")
    with suppress(RuntimeError):  # there was no rule
        network.heal(0, 1)


def write(
    initiator: Agent, target: Agent, seed: int, fault: Callable[[], None] | None = None
) -> tuple[str, float, int]:
    initiator.call("fill", seed=seed)
    target.call("fill", seed=seed + 1)
    initiator.begin("1", target.about, _BLOCK, _GIVE_UP_S)
    thread = threading.Thread(target=fault or (lambda: None))
    thread.start()
    ended = initiator.answer()
    thread.join()
    wrong = target.call("wrong", seed=seed)["wrong"] if ended.get("state") == "DONE" else -1
    return ended.get("state", ended.get("error", "?").split(":")[0]), ended.get("seconds", 0.0), wrong


def throughput(network: Rails, folder: Path, size: int) -> dict[str, list[float]]:
    """GB/s of writes, the backends' in turns. With three hosts two write to the third at once."""
    found: dict[str, list[float]] = {"R2CCL": [], "UCX": []}
    with agents(network, folder, "R2CCL", size) as ours, agents(network, folder, "UCX", size) as theirs:
        for group in (ours, theirs):
            for host in [0, *range(2, network.hosts)]:
                assert acquaint(group[host], group[1]) == {"peer": "1"}
        for turn in range(_ROUNDS + 1):
            for name, group in (("R2CCL", ours), ("UCX", theirs)):
                sources = [group[host] for host in [0, *range(2, network.hosts)]]
                group[1].call("fill", seed=99)
                for source in sources:
                    source.call("fill", seed=turn)
                for source in sources:
                    source.begin("1", group[1].about, _BLOCK, _GIVE_UP_S)
                seconds = [source.answer()["seconds"] for source in sources]
                assert group[1].call("wrong", seed=turn)["wrong"] == 0
                if turn > 0:  # the first makes connections
                    found[name].append(len(sources) * size / max(seconds) / 1e9)
    return found


def failures(network: Rails, folder: Path, size: int) -> None:
    for backend, label, more in (("R2CCL", "R2CCL", {}), ("UCX", "UCX", {}), ("UCX", "UCX, keep-alive 1 s", TUNED)):
        healthy = 0.0
        for number, (case, strike) in enumerate([("healthy", None), *FAULTS.items()]):
            with agents(network, folder, backend, size, **more) as (initiator, target):
                acquaint(initiator, target)
                write(initiator, target, 50)

                def hit(strike: Callable[[Rails], None] | None = strike, after_s: float = 0.3 * healthy) -> None:
                    if strike is not None:
                        time.sleep(after_s)
                        strike(network)

                state, seconds, wrong = write(initiator, target, number, hit)
            heal(network)
            healthy = healthy or seconds
            print(Row(label, case, state, seconds, None if wrong < 0 else wrong).line(healthy), flush=True)
        network.port(0, 1, "down")
        with agents(network, folder, backend, size, **more) as (initiator, target):
            loaded = acquaint(initiator, target)
            if "error" in loaded:
                state, seconds, wrong = f"not loaded: {loaded['error'].split(':')[0]}", 0.0, -1
            else:
                state, seconds, wrong = write(initiator, target, 60)
        heal(network)
        row = Row(label, "link down when connecting", state, seconds, None if wrong < 0 else wrong)
        print(row.line(healthy), flush=True)


def compare_throughput(folder: Path, size: int) -> None:
    print("| hosts | rails | R2CCL | UCX | ratio |\n|---|---|---|---|---|")
    for hosts in (2, 3):
        for rate in (_SHAPED, "as fast as the machine"):
            with rails(hosts, 2, _SHAPED) as network:
                if rate != _SHAPED:
                    unshape(network)
                found = throughput(network, folder, size)
            both = {name: statistics.median(values) for name, values in found.items()}
            cells = [f"{both[name]:.2f} GB/s ({min(v):.2f}-{max(v):.2f})" for name, v in found.items()]
            print(f"| {hosts} | {rate} | {cells[0]} | {cells[1]} | {both['R2CCL'] / both['UCX']:.2f} |", flush=True)


def compare_failures(folder: Path, size: int) -> None:
    print("| case | backend | state | time | lost | wrong bytes |\n|---|---|---|---|---|---|")
    with rails(2, 2, _SHAPED) as network:
        failures(network, folder, size)


def main() -> None:
    what, mib = [*sys.argv[1:], "128"][:2]
    with tempfile.TemporaryDirectory() as folder:
        {"throughput": compare_throughput, "failures": compare_failures}[what](Path(folder), int(mib) << 20)


if __name__ == "__main__":
    main()
