"""AllReduces of 1 MiB over healthy slow NICs: how much of the NICs' rate they get, and what was taken for sick.

python tests/native/slow.py [--mbit 5 10 20 40] [--seconds 15] [--hosts 3] [--nics 3] [--mode 2]

Hosts are network namespaces, under AllReduces without end, every element checked. For each rate are told the calls a
second, as a share of what a ring could do at that rate, and of all ranks how many paths were lost, how many were held,
and how many chunks were sent twice: nothing is wrong, so none should be. Needs the right to make network namespaces.

Exit status: 0 no path was lost or held, 1 one was, 2 an option is wrong.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rails import job, rails
from sick import calls

PAYLOAD = 1448 / 1514  # of a packet


def measure(options: argparse.Namespace, mbit: float) -> int:
    """How many paths were lost or held."""
    hosts, nics = options.hosts, options.nics
    with (
        tempfile.TemporaryDirectory() as folder,
        rails(hosts, nics, f"{mbit:g}mbit") as network,
        job(network, Path(folder), R2CC_MODE=str(options.mode)) as running,
    ):
        begin = time.time_ns()
        time.sleep(options.seconds)
        end = time.time_ns()
        time.sleep(0.3)  # the last call's line, and the last status
        per_second = calls(running, begin, end)
        lost, held = (
            sum(len(running.events(rank, kind)) for rank in range(hosts)) for kind in ("path_down", "path_held")
        )
        twice = sum(running.status(rank)["replayed_chunks"] for rank in range(hosts))
    most = mbit * 1e6 / 8 * PAYLOAD * nics / (2 * (hosts - 1) / hosts * (1 << 20))
    print(
        f"{mbit:g} Mbit/s: {per_second:.2f} calls/s, {per_second / most:.2f} of the rate; "
        f"{lost} paths lost, {held} held, {twice} chunks sent twice",
        flush=True,
    )
    return lost + held


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbit", type=float, nargs="+", default=[5, 10, 20, 40], help="rates of each NIC")
    parser.add_argument("--seconds", type=float, default=15, help="for each rate")
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--nics", type=int, default=3)
    parser.add_argument("--mode", type=int, default=2, choices=(1, 2))
    options = parser.parse_args()
    return 1 if sum([measure(options, mbit) for mbit in options.mbit]) else 0


if __name__ == "__main__":
    sys.exit(main())
