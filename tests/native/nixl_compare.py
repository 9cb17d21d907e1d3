"""NIXL over R2CCL and over its own UCX backend, in the same namespaces: throughput, and what a failure costs.

    R2CCL_NIXL_PYTHON=VENV/bin/python python tests/native/nixl_compare.py throughput [--rounds 7] [--rails free]
        [--also R2CC_TRANSFER_SPIN_US=1000] [--also NIXL_PLUGIN_DIR=FOLDER]
    R2CCL_NIXL_PYTHON=VENV/bin/python python tests/native/nixl_compare.py failures [--mib 128] [--hosts 3]

Two and three hosts of two rails each; transfers are of blocks (a KV cache's are so), each byte compared with what was
sent. The backends take turns, so a ratio is one of neighbours; its interval is Student's of 95 %. `--also` compares
R2CCL with other variables, or another build of its plugin, in the same run. Needs the right to make namespaces, and a
Python that has nixl-cu12.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from nixl_hosts import Agent, acquaint, agents, interpreter
from rails import Rails, rails, sh

from reports.stats import paired

_BLOCK = 64 << 10
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


def flap(network: Rails, host: int) -> None:
    for _ in range(5):
        network.port(host, 1, "down")
        time.sleep(0.1)
        network.port(host, 1, "up")
        time.sleep(0.1)


FAULTS: dict[str, Callable[[Rails, int], None]] = {
    "link of a NIC down at 30 %": lambda network, host: network.port(host, 1, "down"),
    "black hole on a cable at 30 %": lambda network, host: network.drop(host, 1),
    "flap, 5 times 0.1 s, from 30 % on": flap,
}


def struck(network: Rails) -> int:
    """The host that loses a rail: of two the initiator, of three the target, which concerns both that write to it."""
    return 0 if network.hosts == 2 else 1


def heal(network: Rails) -> None:
    network.port(struck(network), 1, "up")
    with suppress(RuntimeError):  # there was no rule
        network.heal(struck(network), 1)


def initiators(group: list[Agent]) -> list[Agent]:
    """All but the second, which is the target."""
    return [group[0], *group[2:]]


def introduce(group: list[Agent]) -> str:
    """Every initiator and the target; the error of the first that failed, or nothing."""
    told = [acquaint(agent, group[1]) for agent in initiators(group)]
    return next((str(one["error"]).split(":")[0] for one in told if "error" in one), "")


def write(group: list[Agent], seed: int, fault: Callable[[], None] | None = None) -> tuple[str, float, int]:
    """All initiators write the same bytes to the target at once: the worst state, the longest time, wrong bytes."""
    sources, target = initiators(group), group[1]
    for source in sources:
        source.call("fill", seed=seed)
    target.call("fill", seed=seed + 1)
    for source in sources:
        source.begin("1", target.about, _BLOCK, _GIVE_UP_S)
    thread = threading.Thread(target=fault or (lambda: None))
    thread.start()
    ended = [source.answer() for source in sources]
    thread.join()
    states = [end.get("state", end.get("error", "?").split(":")[0]) for end in ended]
    state = next((state for state in states if state != "DONE"), "DONE")
    wrong = target.call("wrong", seed=seed)["wrong"] if state == "DONE" else -1
    return state, max(end.get("seconds", 0.0) for end in ended), wrong


@dataclass(frozen=True)
class Case:
    """Transfers of `each` bytes in blocks, one after another, until `total` bytes are over. With three hosts two send
    to the third, or read from it, at once."""

    each: int
    block: int
    total: int
    op: str = "WRITE"
    hosts: int = 2

    def name(self) -> str:
        return f"{self.hosts} | {self.op} | {_size(self.each)} | {_size(self.block)}"


CASES = (
    Case(4 << 10, 4 << 10, 2 << 20),
    Case(64 << 10, 64 << 10, 16 << 20),
    Case(256 << 10, 64 << 10, 32 << 20),
    Case(1 << 20, 64 << 10, 32 << 20),
    Case(8 << 20, 4 << 10, 32 << 20),
    Case(16 << 20, 64 << 10, 64 << 20),
    Case(64 << 20, 16 << 10, 64 << 20),
    Case(128 << 20, 64 << 10, 128 << 20),
    Case(128 << 20, 4 << 20, 128 << 20),
    Case(4 << 10, 4 << 10, 2 << 20, "READ"),
    Case(64 << 10, 64 << 10, 16 << 20, "READ"),
    Case(256 << 10, 64 << 10, 32 << 20, "READ"),
    Case(1 << 20, 64 << 10, 32 << 20, "READ"),
    Case(16 << 20, 64 << 10, 64 << 20, "READ"),
    Case(128 << 20, 64 << 10, 128 << 20, "READ"),
    Case(16 << 20, 64 << 10, 64 << 20, hosts=3),
    Case(64 << 20, 64 << 10, 64 << 20, hosts=3),
)


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


@dataclass(frozen=True)
class Sample:
    gigabytes_s: float
    cpu_s_per_gigabyte: float


def sample(group: list[Agent], case: Case, turn: int) -> Sample:
    """One turn of one backend. Of a read the target is where the bytes come from; every byte is compared where it went.

    Reads of two hosts would say nothing that one does not; three hosts write.
    """
    target, sources = group[1], initiators(group)
    writes = case.op == "WRITE"
    for agent in [target, *sources]:
        agent.call("fill", seed=turn if (agent is target) != writes else 1000 + turn)
    before = sum(agent.call("used")["cpu_s"] for agent in group)
    for source in sources:
        source.begin("1", target.about, case.block, _GIVE_UP_S, case.op, case.each)
    ended = [source.answer() for source in sources]
    after = sum(agent.call("used")["cpu_s"] for agent in group)
    for end in ended:
        if end.get("state") != "DONE":
            raise RuntimeError(f"{case.name()}: {end}: {' / '.join(agent.words() for agent in group)}")
    for sink in [target] if writes else sources:
        wrong = sink.call("wrong", seed=turn)["wrong"]
        if wrong:
            raise RuntimeError(f"{case.name()}: {wrong} bytes are wrong")
    moved = len(sources) * case.total / 1e9
    return Sample(moved / max(end["seconds"] for end in ended), (after - before) / moved)


def throughput(
    network: Rails, folder: Path, case: Case, rounds: int, libraries: dict[str, dict[str, str]]
) -> dict[str, list[Sample]]:
    """Of each library a sample a round; who begins alternates."""
    found: dict[str, list[Sample]] = {name: [] for name in libraries}
    with ExitStack() as stack:
        groups = {}
        for number, (name, variables) in enumerate(libraries.items()):
            place = folder / str(number)
            place.mkdir(exist_ok=True)
            backend = name.split()[0]
            group = stack.enter_context(agents(network, place, backend, case.total, **variables))
            groups[name] = group
            if error := introduce(group):
                raise RuntimeError(f"{case.name()}: {error}")
        for turn in range(rounds + 1):
            for name in list(groups)[:: 1 if turn % 2 else -1]:
                got = sample(groups[name], case, turn)
                if turn > 0:  # the first makes connections
                    found[name].append(got)
    return found


def ratio(ours: list[float], theirs: list[float]) -> str:
    found = paired(dict(enumerate(ours)), dict(enumerate(theirs)))
    return f"{found.ratio:.2f} ({found.low:.2f}-{found.high:.2f})"


def failures(network: Rails, folder: Path, size: int) -> None:
    for backend, label, more in (("R2CCL", "R2CCL", {}), ("UCX", "UCX", {}), ("UCX", "UCX, keep-alive 1 s", TUNED)):
        healthy = 0.0
        for number, (case, strike) in enumerate([("healthy", None), *FAULTS.items()]):
            with agents(network, folder, backend, size, **more) as group:
                introduce(group)
                write(group, 50)

                def hit(strike: Callable[[Rails, int], None] | None = strike, after_s: float = 0.3 * healthy) -> None:
                    if strike is not None:
                        time.sleep(after_s)
                        strike(network, struck(network))

                state, seconds, wrong = write(group, number, hit)
            heal(network)
            healthy = healthy or seconds
            print(Row(label, case, state, seconds, None if wrong < 0 else wrong).line(healthy), flush=True)
        network.port(struck(network), 1, "down")
        with agents(network, folder, backend, size, **more) as group:
            if error := introduce(group):
                state, seconds, wrong = f"not loaded: {error}", 0.0, -1
            else:
                state, seconds, wrong = write(group, 60)
        heal(network)
        row = Row(label, "link down when connecting", state, seconds, None if wrong < 0 else wrong)
        print(row.line(healthy), flush=True)


def compare_throughput(
    folder: Path, rounds: int, chosen: list[str], largest: int, libraries: dict[str, dict[str, str]]
) -> None:
    print("| rails | hosts | op | a transfer | block | library | GB/s | of UCX | processor time, of UCX |")
    print("|---|---|---|---|---|---|---|---|---|")
    for rate in chosen:
        for hosts in (2, 3):
            with rails(hosts, 2, _SHAPED) as network:
                if rate == "free":
                    unshape(network)
                for case in (case for case in CASES if case.hosts == hosts and case.each <= largest):
                    found = throughput(network, folder, case, rounds, libraries)
                    for name, samples in found.items():
                        print(f"| {rate} | {case.name()} | {name} | {cells(samples, found['UCX'])} |", flush=True)


def cells(ours: list[Sample], theirs: list[Sample]) -> str:
    """A library's columns."""
    speeds = [one.gigabytes_s for one in ours]
    own = f"{statistics.median(speeds):.3f} ({min(speeds):.3f}-{max(speeds):.3f})"
    if ours is theirs:
        return f"{own} | 1 | 1"
    speed = ratio(speeds, [one.gigabytes_s for one in theirs])
    return f"{own} | {speed} | {ratio([o.cpu_s_per_gigabyte for o in ours], [o.cpu_s_per_gigabyte for o in theirs])}"


def variables(text: str) -> dict[str, str]:
    """NAME=VALUE[,NAME=VALUE...]"""
    found = dict(one.split("=", 1) for one in text.split(",") if "=" in one)
    if not found or len(found) != text.count(",") + 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE[,NAME=VALUE...]")
    return found


def compare_failures(folder: Path, size: int, hosts: int) -> None:
    print("| case | backend | state | time | lost | wrong bytes |\n|---|---|---|---|---|---|")
    with rails(hosts, 2, _SHAPED) as network:
        failures(network, folder, size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("throughput", "failures"))
    parser.add_argument("--rounds", type=int, default=7, help="of throughput, after one that is not counted")
    parser.add_argument("--rails", choices=("1gbit", "free"), help="of throughput; default: both")
    parser.add_argument(
        "--also", type=variables, action="append", default=[], metavar="NAME=VALUE,...", help="of throughput"
    )
    parser.add_argument("--hosts", type=int, choices=(2, 3), default=2, help="of failures; two of three write at once")
    parser.add_argument("--mib", type=int, default=128, help="a transfer of failures, the largest of throughput (128)")
    options = parser.parse_args()
    if options.rounds < 1 or options.mib < 1:
        parser.error("--rounds and --mib are at least 1")
    if interpreter() is None:
        parser.error("no Python has nixl-cu12; R2CCL_NIXL_PYTHON names one that does")
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "throughput":
            chosen = [options.rails] if options.rails else [_SHAPED, "free"]
            more = {f"R2CCL {','.join(f'{k}={v}' for k, v in also.items())}": also for also in options.also}
            libraries = {"R2CCL": {}, **more, "UCX": {}}
            compare_throughput(Path(folder), options.rounds, chosen, options.mib << 20, libraries)
        else:
            compare_failures(Path(folder), options.mib << 20, options.hosts)


if __name__ == "__main__":
    main()
