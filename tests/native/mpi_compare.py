"""AllReduce of NumPy arrays by our Communicator and by mpi4py over Open MPI, in the same namespaces, by turns.

    python tests/native/mpi_compare.py --mpi-python VENV/bin/python [--repeats 3]

Three hosts of three rails of 200 Mbit/s. VENV has numpy and mpi4py; Open MPI (`apt install openmpi-bin libopenmpi-dev`)
is given all rails, its TCP transport, and no busy waiting, as hosts share processors here. Needs the right to make
namespaces.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
from rails import Rails, rails

HOSTS, NICS, RATE = 3, 3, "200mbit"
COUNTS = {1 << 10: 400, 1 << 20: 30, 16 << 20: 6}
"""Iterations by size in bytes."""
_LIMIT_S = 120.0
_WARMUP = 3


def rank(library: str) -> None:
    """One rank: rank 0 prints the median of its seconds by size, and every element is checked once."""
    number, size, run, barrier = _mpi() if library == "mpi" else _ours()
    found = {}
    for nbytes, count in COUNTS.items():
        data = np.full(nbytes // 4, float(number + 1), np.float32)
        result = np.empty_like(data)
        seconds = []
        for iteration in range(-_WARMUP, count):
            barrier()
            start_s = time.perf_counter()
            run(data, result)
            seconds += [time.perf_counter() - start_s] * (iteration >= 0)
        assert (result == size * (size + 1) / 2).all()
        found[nbytes] = median(seconds)
    if number == 0:
        print(json.dumps(found), flush=True)
    barrier()


Reduce = Callable[[np.ndarray, np.ndarray], object]


def _mpi() -> tuple[int, int, Reduce, Callable[[], object]]:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world.rank, world.size, world.Allreduce, world.Barrier


def _ours() -> tuple[int, int, Reduce, Callable[[], object]]:
    from r2ccl_core import Communicator

    world = Communicator.from_env()
    return world.rank, world.size, world.all_reduce, world.barrier


def measured(library: str, network: Rails, python: str, folder: Path) -> dict[int, float]:
    """Seconds by size."""
    started = _mpirun(network, python, folder) if library == "mpi" else _ranks(network)
    said = [process.communicate(timeout=_LIMIT_S)[0] for process in started]
    if any(process.returncode for process in started):
        raise SystemExit(f"{library}: a rank failed:\n" + "\n".join(said))
    line = next(line for text in said for line in text.splitlines() if line.startswith("{"))
    return {int(size): float(seconds) for size, seconds in json.loads(line).items()}


def _ranks(network: Rails) -> list[subprocess.Popen[str]]:
    root = f"{network.address(0, network.nics)}:7000"
    common = {**os.environ, "R2CC_SIZE": str(HOSTS), "R2CC_ROOT": root, "R2CC_SOCKET_IFNAME": "eth"}
    return [
        subprocess.Popen(
            network.inside(number, sys.executable, __file__, "--rank", "r2ccl"),
            env=common | {"R2CC_RANK": str(number)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(HOSTS)
    ]


def _mpirun(network: Rails, python: str, folder: Path) -> list[subprocess.Popen[str]]:
    agent = folder / "agent"
    # Open MPI names hosts by their addresses on the management network: the last number tells which namespace it is.
    agent.write_text(f'#!/bin/sh\nhost=$1\nshift\nexec ip netns exec {network.tag}h$((${{host##*.}} - 1)) sh -c "$*"\n')
    agent.chmod(0o755)
    hosts = ",".join(network.address(number, network.nics) for number in range(HOSTS))
    given = {
        "plm": "rsh",
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "oob_tcp_if_include": "mgmt",
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": ",".join(f"eth{nic}" for nic in range(NICS)),
        "mpi_yield_when_idle": "1",
    }
    words = [word for name, value in given.items() for word in ("--mca", name, value)]
    argv = ["mpirun", "--allow-run-as-root", "--oversubscribe", *words, "--host", hosts, "-np", str(HOSTS)]
    return [
        subprocess.Popen(
            network.inside(0, *argv, python, __file__, "--rank", "mpi"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
    ]


def compare(python: str, repeats: int) -> None:
    """Prints a line for each size: the medians of both, and their ratio."""
    found: dict[str, list[dict[int, float]]] = {"r2ccl": [], "mpi": []}
    with tempfile.TemporaryDirectory() as folder, rails(HOSTS, NICS, RATE) as network:
        for _ in range(repeats):
            for library, times in found.items():
                times.append(measured(library, network, python, Path(folder)))
    print("| bytes | r2ccl | Open MPI | Open MPI / r2ccl |\n|---|---|---|---|")
    for nbytes in COUNTS:
        ours, theirs = (1e3 * median(times[nbytes] for times in found[library]) for library in ("r2ccl", "mpi"))
        print(f"| {nbytes} | {ours:.3g} ms | {theirs:.3g} ms | {theirs / ours:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mpi-python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rank", choices=("r2ccl", "mpi"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        rank(args.rank)
    else:
        compare(args.mpi_python, args.repeats)


if __name__ == "__main__":
    main()
