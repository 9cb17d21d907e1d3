"""What a sick NIC leaves of the speed, beside what its death leaves, and what its return brings back.

python tests/native/sick.py [--seconds 8] [--rounds 3] [--only NAME ...] [--hosts 3] [--nics 2] [--mbit 200]
    [--size 1M]

Hosts are network namespaces, under AllReduces of `--size` without end, every element checked. In each round one NIC of
one host is dead for a while, then has each sickness, and is well for a while after each. Told are calls a second of
each while, from 150 ms after its beginning (what finding out costs is the campaign's to tell), against those of the
dead NIC of the same round; and from a second after the repair on, against those of the healthy while before all.
Damping is off, as no NIC flaps so in earnest. Needs the right to make network namespaces.

Exit status: 0 no sickness left less than 0.98 of what death left, by the medians of the rounds; 1 one did; 2 an option
is wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from rails import Job, Rails, job, rails

HOST, NIC = 1, 1
FOUND_S = 0.15
RETURN_S = 1.0
LEAST = 0.98


def in_bursts(network: Rails, stop: threading.Event) -> None:
    """All packets are lost for a fifth of the time."""
    while not stop.is_set():
        network.drop(HOST, NIC)
        stop.wait(0.04)
        network.heal(HOST, NIC)
        stop.wait(0.16)


@contextmanager
def bursts(network: Rails) -> Iterator[None]:
    stop = threading.Event()
    thread = threading.Thread(target=in_bursts, args=(network, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def until_end(begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        end()


def sicknesses(network: Rails, mbit: float) -> dict[str, Callable[[], AbstractContextManager[None]]]:
    heal = partial(network.heal, HOST, NIC)
    slow = partial(network.rate, HOST, NIC)
    full = partial(slow, f"{mbit:g}mbit")
    return {
        "dead": lambda: until_end(partial(network.port, HOST, NIC, "down"), partial(network.port, HOST, NIC, "up")),
        "black hole": lambda: until_end(partial(network.drop, HOST, NIC), heal),
        "above 1000 B lost": lambda: until_end(partial(network.narrow, HOST, NIC, 1000), heal),
        "20 % lost": lambda: until_end(partial(network.drop, HOST, NIC, 0.2), heal),
        "20 % lost one way": lambda: until_end(partial(network.drop, HOST, NIC, 0.2, "out"), heal),
        "20 % lost in bursts": lambda: bursts(network),
        "50 % lost": lambda: until_end(partial(network.drop, HOST, NIC, 0.5), heal),
        "at a tenth": lambda: until_end(partial(slow, f"{mbit / 10:g}mbit"), full),
        "at a hundredth": lambda: until_end(partial(slow, f"{mbit / 100:g}mbit"), full),
    }


def calls(running: Job, begin_ns: int, end_ns: int) -> float:
    """Calls a second that rank 0 ended between the two times; a call that reaches over an end counts by its share."""
    done = 0.0
    for line in (running.folder / "0.out").read_text().splitlines():
        if '"iteration"' not in line or not line.endswith("}"):
            continue
        event = json.loads(line)
        if event["event"] != "iteration":
            continue
        assert event["wrong"] in (0, None), line
        began, took = event["t_ns"], event["duration_ns"]
        inside = min(end_ns, began + took) - max(begin_ns, began)
        done += max(0, inside) / took
    return done / (end_ns - begin_ns) * 1e9


def a_while(running: Job, seconds: float, but: float) -> float:
    begin = time.time_ns()
    time.sleep(seconds)
    end = time.time_ns()
    time.sleep(0.1)  # the last call's line
    return calls(running, begin + round(but * 1e9), end)


def measure(options: argparse.Namespace) -> int:
    left: dict[str, list[float]] = {}
    back: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        rails(options.hosts, options.nics, f"{options.mbit:g}mbit") as network,
        job(network, Path(folder), options.size, R2CC_FLAP_HALF_LIFE_MS="0") as running,
    ):
        kinds = sicknesses(network, options.mbit)
        wanted = ["dead", *(name for name in kinds if name != "dead" and name in (options.only or kinds))]
        healthy = a_while(running, options.seconds, RETURN_S)
        print(f"healthy {healthy:.1f} calls/s", flush=True)
        for number in range(options.rounds):
            for name in wanted:
                with kinds[name]():
                    sick = a_while(running, options.seconds, FOUND_S)
                after = a_while(running, options.seconds, RETURN_S)
                left.setdefault(name, []).append(sick)
                back.setdefault(name, []).append(after / healthy)
                of_dead = sick / left["dead"][number]
                print(f"{name:20} {sick:5.1f}, {of_dead:4.2f} of dead; after {after:5.1f}", flush=True)
    worst = 0
    print("medians" if options.rounds > 1 else "in all")
    for name in wanted:
        ratio = statistics.median(sick / dead for sick, dead in zip(left[name], left["dead"], strict=True))
        worst += ratio < LEAST
        print(
            f"{name:20} {statistics.median(left[name]):5.1f} calls/s, {ratio:4.2f} of dead"
            f"; after {statistics.median(back[name]):4.2f} of healthy"
        )
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8, help="each while")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", help="these besides the dead NIC")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--nics", type=int, default=2)
    parser.add_argument("--mbit", type=float, default=200, help="rate of each NIC")
    parser.add_argument("--size", default="1M", help="bytes of a call, such as 64K")
    return 1 if measure(parser.parse_args()) else 0


if __name__ == "__main__":
    sys.exit(main())
