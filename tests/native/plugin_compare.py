"""Messages by NCCL's plugin and by sockets used as NCCL's own transport uses them, by turns, without NCCL or a GPU.

    python tests/native/plugin_compare.py LIBRARY [--rounds 5] [--cells exchange:16384:2] [--variant VARIABLES]

Two hosts of four rails of 4 Gbit/s. A cell is a pattern of ``plugin_bench.c``, the bytes of a message, and the number
of connections. VARIABLES, such as ``R2CC_INLINE_BYTES=32768,R2CC_IO_THREADS=8``, name one more way to run the plugin;
without them it has its defaults. A program that polls needs a processor of its own: fewer than eight say little. Needs
gcc and the right to make namespaces.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from rails import Rails, rails

SOURCES = Path(__file__).resolve().parents[2] / "r2ccl_core/native/tests"
NICS, RATE = 4, "4gbit"
CELLS = "exchange:8192:2,exchange:16384:2,exchange:32768:2,ring:16384:4,ring:32768:8"
SOCKETS = "sockets"
_ANSWER = re.compile(r"([\d.]+) us \(([\d.]+), ([\d.]+)\), CPU ([\d.]+) us, ([\d.]+) sleeps")
_LIMIT_S = 60.0


def run(network: Rails, program: Path, library: str, variant: str, cell: str, count: int) -> list[float]:
    """Median, 10th and 90th percentile, processor time in microseconds, and sleeps, all of one iteration."""
    pattern, nbytes, connections = cell.split(":")
    variables = dict(part.split("=") for part in variant.split(",") if "=" in part)
    addresses = ",".join(network.address(1, nic) for nic in range(NICS))
    where = (network.place(0), network.place(1), addresses)
    argv = [program, SOCKETS if variant == SOCKETS else library, pattern, nbytes, count, connections, *where]
    done = subprocess.run(
        [str(arg) for arg in argv],
        env={**os.environ, "R2CC_SOCKET_IFNAME": "eth", **variables},
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    found = _ANSWER.match(done.stdout)
    if found is None:
        raise SystemExit(f"{variant} {cell}: {done.stdout}{done.stderr}")
    return [float(number) for number in found.groups()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--variant", action="append", default=[], dest="variants", metavar="VARIABLES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--cells", default=CELLS)
    args = parser.parse_args()
    variants = [SOCKETS, "plugin", *args.variants]
    with tempfile.TemporaryDirectory() as folder, rails(hosts=2, nics=NICS, rate=RATE) as network:
        program = Path(folder) / "plugin_bench"
        sources = [SOURCES / name for name in ("plugin_bench.c", "plugin_tables.c")]
        subprocess.run(["gcc", "-O2", *sources, "-ldl", "-o", program], check=True)
        for cell in args.cells.split(","):
            rows: dict[str, list[list[float]]] = {}
            for number in range(args.rounds):
                for variant in variants if number % 2 == 0 else variants[::-1]:
                    rows.setdefault(variant, []).append(run(network, program, args.library, variant, cell, args.count))
            base_us = median(row[0] for row in rows[SOCKETS])
            for variant in variants:
                took_us, low_us, high_us, cpu_us, sleeps = (
                    median(column) for column in zip(*rows[variant], strict=True)
                )
                print(
                    f"{cell:18} {variant:44} {took_us:8.1f} us ({low_us:.1f}, {high_us:.1f}) "
                    f"{took_us / base_us:5.2f}  CPU {cpu_us:7.1f} us  {sleeps:5.2f} sleeps",
                    flush=True,
                )


if __name__ == "__main__":
    main()
