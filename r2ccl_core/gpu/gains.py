"""``python -m r2ccl_core.gpu.gains``: at which rates and sizes a schedule is predicted to beat NCCL's ring, as a table.

The hosts of the design document's table: ``--hosts 4 --gpus 8 --nics 8``. A cell is the time of the AllReduce of the
table of rounds over that of NCCL's ring, without and with segments; *ring* where the table leaves it to NCCL.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from r2ccl_core.errors import R2cclError
from r2ccl_core.gpu.__main__ import add_hosts, network_of
from r2ccl_core.gpu.table import Entry, Network, entries, ring_s, run_s
from r2ccl_core.output import only_printing, robust
from r2ccl_core.units import format_size

RATES = ("25 Gbit/s", "50 Gbit/s", "100 Gbit/s", "200 Gbit/s", "400 Gbit/s")
MIB = 1 << 20
SIZES = tuple(mib * MIB for mib in (8, 32, 64, 128, 256, 512, 1024, 4096))


def main(argv: list[str] | None = None) -> int:
    """Prints the table. Returns 0, or 2 for a user's mistake."""
    with only_printing():
        parser = argparse.ArgumentParser(prog="python -m r2ccl_core.gpu.gains", description=__doc__)
        add_hosts(parser)
        parser.add_argument("--rates", nargs="+", default=RATES, help=f"of a NIC ({', '.join(RATES)})")
        args = parser.parse_args(argv)
    try:
        print("\n".join(lines([(rate, network_of(args, rate)) for rate in args.rates])))
    except R2cclError as error:
        print(f"r2ccl_core.gpu.gains: {error}", file=sys.stderr)
        return 2
    return 0


def lines(networks: Sequence[tuple[str, Network]]) -> Iterator[str]:
    """The table, in Markdown: a row for each rate and loss."""
    yield "| " + " | ".join(["a NIC", "NICs left", *map(format_size, SIZES)]) + " |"
    yield "|---" * (2 + len(SIZES)) + "|"
    for rate, network in networks:
        whole = [network.nics] * (network.nhosts - 2)
        for first, second in ((1, 0), (1, 1), (2, 0)):
            left = (network.nics - first, network.nics - second, *whole)
            if min(left) > 0:
                cells = row(network, left)
                yield "| " + " | ".join([rate, " ".join(map(str, left)), *cells]) + " |"


def row(network: Network, left: tuple[int, ...]) -> list[str]:
    """A cell for each size."""
    whole = _ratios(replace(network, most_segments=1), left)
    return [
        cut if network.gpus == 1 or cut == one else f"{one}, {cut}"
        for one, cut in zip(whole, _ratios(network, left), strict=True)
    ]


def _ratios(network: Network, left: tuple[int, ...]) -> list[str]:
    table = entries(network, [left])
    return [_ratio(network, left, table, nbytes) for nbytes in SIZES]


def _ratio(network: Network, left: tuple[int, ...], table: Sequence[Entry], nbytes: int) -> str:
    shares = tuple(one / network.nics for one in left)
    for entry in table:
        if entry.least_bytes <= nbytes < entry.most_bytes:
            ours_s = run_s(network, shares, nbytes, entry.rounds, entry.segments)
            return f"{ours_s / ring_s(network, shares, nbytes):.2f}"
    return "ring"


if __name__ == "__main__":
    robust()
    sys.exit(main())
