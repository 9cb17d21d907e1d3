"""``python -m r2ccl_core.gpu``: writes the table of rounds that libr2ccl-preload.so reads (R2CC_SCHEDULES)."""

import argparse
import sys
from pathlib import Path

from r2ccl_core.errors import R2cclError
from r2ccl_core.gpu.table import ALGORITHMS, Network, entries, losses, to_bytes
from r2ccl_core.units import format_size, parse_rate


def main(argv: list[str] | None = None) -> int:
    """Writes the table; what went into it is told on standard output. 0, or 2 for a mistake."""
    args = _parser().parse_args(argv)
    try:
        network = Network(args.hosts, args.nics, parse_rate(args.rate) / 8, args.alpha * 1e-6, args.pipes)
        lefts = list(losses(args.hosts, args.nics, args.lost))
        table = list(entries(network, lefts, args.algorithm))
        args.output.write_bytes(to_bytes(args.hosts, args.nics, table))
    except (R2cclError, OSError) as error:
        print(f"r2ccl_core.gpu: {error}", file=sys.stderr)
        return 2
    for entry in table:
        left = " ".join(map(str, entry.left))
        size = format_size(entry.least_bytes)
        print(f"NICs left {left}, from {size}: {entry.rounds.name}, {entry.rounds.nrounds} rounds")
    print(f"{args.output}: {len(table)} entries for {len(lefts)} combinations of lost NICs")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m r2ccl_core.gpu", description=__doc__)
    parser.add_argument("--hosts", type=int, required=True, help="hosts, with one rank each")
    parser.add_argument("--nics", type=int, required=True, help="NICs of a healthy host")
    parser.add_argument("--rate", required=True, help='what a NIC carries in each direction, such as "25 Gbit/s"')
    parser.add_argument("--lost", type=int, default=2, help="up to so many NICs lost, over all hosts (2)")
    parser.add_argument(
        "--alpha", type=float, default=200.0, help="microseconds that a round costs beside its bytes (200)"
    )
    parser.add_argument("--pipes", type=int, default=4, help="communicators and streams that work side by side (4)")
    parser.add_argument("--algorithm", choices=ALGORITHMS, default="auto", help="one for all, instead of what pays")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
