"""``python -m r2ccl_core.gpu``: writes the table of rounds that libr2ccl-preload.so reads (R2CC_SCHEDULES)."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import BinaryIO

from r2ccl_core import spread
from r2ccl_core.errors import R2cclError, UnitError, UsageError
from r2ccl_core.gpu.segments import MOST_SEGMENTS
from r2ccl_core.gpu.table import INNER_BYTES_S, SIZES, Network, entries, losses, names, ring_s, to_bytes
from r2ccl_core.output import only_printing, robust
from r2ccl_core.units import format_rate, format_size, parse_rate

MOST_HOSTS = 1024
"""Above this, a single entry takes minutes to make."""

LEAST_HOSTS = 3
"""With two hosts, nothing beats a ring."""

MOST_GPUS = 16
MOST_NICS = 256


def main(argv: list[str] | None = None) -> int:
    """Writes the table, and describes it on standard output. Returns 0, or 2 for a user's mistake."""
    with only_printing():
        args = _parser().parse_args(argv)
    try:
        network = network_of(args, args.rate)
        lefts = list(losses(network.nhosts, network.nics, args.lost))
        with _replacing(args.output) as file:  # before the work: where nothing can be written is found out at once
            with spread.on(spread.Place()):
                table = entries(network, lefts, args.algorithm)
            file.write(to_bytes(network.nhosts, network.gpus, network.nics, table))
    except R2cclError as error:
        print(f"r2ccl_core.gpu: {error}", file=sys.stderr)
        return 2
    for entry in table:
        left = " ".join(map(str, entry.left))
        size = format_size(entry.least_bytes)
        segments = f", {len(entry.segments)} segments" if len(entry.segments) > 1 else ""
        print(f"NICs left {left}, from {size}: {entry.rounds.name}, {entry.rounds.nrounds} rounds{segments}")
    print(f"{args.output}: {len(table)} entries for {len(lefts)} combinations of lost NICs")
    if not table and len(lefts) > 1:
        print(why_none(network))
    return 0


def why_none(network: Network) -> str:
    """Of a table without entries: what the largest vectors take on the network and inside the hosts."""
    nbytes, shares = SIZES[-1], (1 - 1 / network.nics, *(1.0,) * (network.nhosts - 1))
    ring_ms = 1e3 * ring_s(network, shares, nbytes)
    bound_ms = 2e3 * (network.nhosts - 1) / sum(shares) * nbytes / network.host_bytes_s
    inside_ms = 2e3 * network.inner_s(nbytes)
    inside = f", and {inside_ms:.3g} ms inside the hosts" if network.gpus > 1 else ""
    return (
        f"NCCL's ring runs everything: with a NIC lost, {format_size(nbytes)} take it {ring_ms:.3g} ms; "
        f"any schedule takes at least {bound_ms:.3g} ms on the network{inside}"
    )


def network_of(args: argparse.Namespace, rate: str) -> Network:
    """The network that the options of `add_hosts` describe, with NICs of `rate`; raises `UsageError` with the option
    that makes no sense."""
    for flag, value, low, high in (
        ("--hosts", args.hosts, LEAST_HOSTS, MOST_HOSTS),
        ("--gpus", args.gpus, 1, MOST_GPUS),
        ("--nics", args.nics, 1, MOST_NICS),
        ("--segments", args.segments, 1, MOST_SEGMENTS),
    ):
        if not low <= value <= high:
            raise UsageError(f"{flag} {value}: give {low} to {high}")
    if not 0 <= args.alpha < inf:
        raise UsageError(f"--alpha {args.alpha:g}: give 0 or more microseconds")
    nic, inner = _bytes_s("--rate", rate), _bytes_s("--inner-rate", args.inner_rate)
    return Network(args.hosts, args.nics, nic, args.alpha * 1e-6, args.gpus, inner, args.segments)


def _bytes_s(flag: str, text: str) -> float:
    try:
        rate = parse_rate(text)
    except UnitError as error:
        raise UsageError(f"{flag}: {error}") from error
    if rate < 1:
        raise UsageError(f"{flag} {text!r}: give 1 bit/s or more")
    return rate / 8


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that becomes `path` after success; until then the existing file stays. Raises `UsageError` if it cannot be
    written."""
    try:
        target = path.resolve()
        draft = target.with_name(f"{target.name}.{os.getpid()}.part")
        if path.exists() and not path.is_file():  # a device or a pipe is written to, not replaced; a folder is neither
            with path.open("wb") as file:
                yield file
            return
        try:
            with draft.open("xb") as file:
                yield file
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"-o {path}: {error.strerror}; give a file in a folder that you can write to") from error


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """The options that say what the hosts are, but for the rate of their NICs."""
    parser.add_argument("--hosts", type=int, required=True, help="hosts, 3 or more")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of each host, with a rank each, 1 to 16 (1)")
    parser.add_argument(
        "--inner-rate",
        default=format_rate(8 * INNER_BYTES_S),
        help="bus bandwidth of NCCL's ReduceScatter and AllGather inside a host (2.8 Tbit/s: eight H100s, NVLink)",
    )
    parser.add_argument("--nics", type=int, required=True, help="NICs of a healthy host")
    parser.add_argument(
        "--alpha", type=float, default=100.0, help="microseconds that a round costs beside its bytes (100)"
    )
    parser.add_argument(
        "--segments",
        type=int,
        default=MOST_SEGMENTS,
        help=f"into at most so many a vector is cut if hosts have several GPUs ({MOST_SEGMENTS})",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m r2ccl_core.gpu", description=__doc__)
    add_hosts(parser)
    parser.add_argument("--rate", required=True, help='what a NIC carries in each direction, such as "25 Gbit/s"')
    parser.add_argument("--lost", type=int, default=2, help="up to so many NICs lost, over all hosts (2)")
    parser.add_argument("--algorithm", choices=names(), default="auto", help="one for all, instead of what pays")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file")
    return parser


if __name__ == "__main__":
    robust()
    sys.exit(main())
