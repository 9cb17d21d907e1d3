"""What competing traffic makes of healthy NICs: no path may be lost, none held, and no chunk sent twice.

python tests/native/competing.py [--seconds 200] [--share 0.95] [--busy 4] [--hosts 3] [--nics 3] [--mbit 200]
    [--size 1M]

Hosts are network namespaces. Beside AllReduces of `--size` without end, every element checked, each NIC sends datagrams
at `--share` of its rate to the next host; with `--busy`, so many processes keep this machine's processors busy. Then it
tells what each rank wrote down, with the reason of each event. Needs the right to make network namespaces.

Exit status: 0 nothing was lost, held or sent twice, 1 something was, 2 an option is wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rails import Job, Rails, job, rails

from faults.nic_shared_congestion import FLOW

LOSSES = ("path_down", "path_held")
BUSY = "import sys, threading\nthreading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()\n"


@contextmanager
def fed(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with its standard input."""
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def flow(network: Rails, host: int, nic: int, bit_s: float) -> list[str]:
    ends = (f"eth{nic}", network.address(host, nic), network.address((host + 1) % network.hosts, nic))
    return network.inside(host, sys.executable, "-I", "-S", "-c", FLOW, *ends, f"{bit_s:.0f}")


def tell(running: Job) -> int:
    """Prints what every rank wrote down; the number of what should not be."""
    wrong = 0
    for rank in range(len(running.ranks)):
        status = running.status(rank)
        kinds = Counter(event["kind"] for event in status["events"])
        sent = sum(nic["acknowledged_bytes"] for nic in status["nics"])
        twice = status["replayed_chunks"]
        counts = ", ".join(f"{kind} {kinds[kind]}" for kind in LOSSES)
        print(f"rank {rank}: {sent / 1e9:.2f} GB, chunks sent twice {twice}, {counts}")
        for event in status["events"]:
            if event["kind"] in (*LOSSES, "migrated"):
                print(f"  {event['kind']} {event['nic']} {event['peer']}: {event['detail']}")
        wrong += twice + sum(kinds[kind] for kind in LOSSES)
    return wrong


def measure(options: argparse.Namespace) -> int:
    with (
        tempfile.TemporaryDirectory() as folder,
        rails(options.hosts, options.nics, f"{options.mbit:g}mbit") as network,
        job(network, Path(folder), options.size) as running,
        ExitStack() as beside,
    ):
        bit_s = options.share * options.mbit * 1e6
        for host in range(options.hosts if options.share > 0 else 0):
            for nic in range(options.nics):
                one = beside.enter_context(fed(flow(network, host, nic, bit_s)))
                print("", file=one.stdin, flush=True)
        for _ in range(options.busy):
            beside.enter_context(fed([sys.executable, "-I", "-S", "-c", BUSY + "sys.stdin.read()"]))
        time.sleep(options.seconds)
        return tell(running)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--share", type=float, default=0.95, help="of its rate that others take of each NIC; 0: none")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep processors busy")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--nics", type=int, default=3)
    parser.add_argument("--mbit", type=float, default=200, help="rate of each NIC")
    parser.add_argument("--size", default="1M", help="bytes of a call, such as 64K")
    return 1 if measure(parser.parse_args()) else 0


if __name__ == "__main__":
    sys.exit(main())
