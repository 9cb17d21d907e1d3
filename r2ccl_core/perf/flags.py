"""The command line: nccl-tests' letters with nccl-tests' meanings, and options that a harness needs besides."""

import argparse
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import NoReturn

import r2ccl_core
from r2ccl_core.errors import UnitError, UsageError
from r2ccl_core.model.bandwidth import ITEM_BYTES, OPERATIONS
from r2ccl_core.model.collective import COLLECTIVES, reduces
from r2ccl_core.runtime.buffers import APART
from r2ccl_core.units import parse_size

MOST_SIZES = 10_000
MOST_RANKS_HERE = 64
MEET_S = 30
"""Ranks of one process: with more of them on a host their threads only wait for each other."""

ALIASES = {"float": "float32", "double": "float64", "half": "float16", "int": "int32"}


@dataclass(frozen=True)
class Flags:
    """What to measure."""

    collective: str
    sizes: tuple[int, ...]
    iters: int
    warmup: int
    check: int
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    root: int
    cycles: int
    timeout_s: float
    meet_s: int
    """How long ranks wait for each other at the start."""
    places: tuple[str, ...]
    seed: int
    average: int
    json_path: Path | None
    stream: bool
    stdin_watch: bool
    corrupt: tuple[int, int] | None
    gpus: int = 1
    """Ranks of this process, as nccl-tests calls them."""

    def check_ranks(self, size: int) -> None:
        """Raises `UsageError` for a flag that names a rank which a group of `size` does not have."""
        for flag, rank in (("-r", self.root), ("--corrupt", self.corrupt[0] if self.corrupt else 0)):
            if not 0 <= rank < size:
                raise UsageError(f"{flag}: there is no rank {rank} among {size}")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}; see {self.prog} --help")


class _Version(argparse.Action):
    """Looks up the version only if it is requested."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:  # noqa: A002
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"r2ccl-perf {r2ccl_core.__version__}")
        parser.exit()


def parse_flags(argv: Sequence[str]) -> Flags:
    """`argv` (without the program) as `Flags`; `UsageError` with one line for anything wrong."""
    given = _parser().parse_args(argv)
    corrupt = _corrupt(given.corrupt)
    if corrupt and corrupt[1] >= given.iters:
        raise UsageError(f"--corrupt {given.corrupt}: iterations go from 0 to {given.iters - 1} (-n {given.iters})")
    if given.nthreads != 1:
        raise UsageError(f"-t {given.nthreads}: every rank has a thread of its own; say how many there are with -g")
    return Flags(
        collective=given.collective,
        sizes=_sizes(given.minbytes, given.maxbytes, given.stepfactor, given.stepbytes),
        iters=_at_least(given.iters, 1, "-n"),
        warmup=_at_least(given.warmup_iters, 0, "-w"),
        check=_at_least(given.check, 0, "-c"),
        dtypes=tuple(ITEM_BYTES) if given.datatype == "all" else (ALIASES.get(given.datatype, given.datatype),),
        ops=_ops(given.collective, given.op),
        root=_at_least(given.root, 0, "-r"),
        cycles=_at_least(given.run_cycles, 0, "-N"),
        timeout_s=float(_at_most(_at_least(given.timeout, 0, "-T"), int(threading.TIMEOUT_MAX), "-T")),
        meet_s=_at_most(_at_least(given.meet, 1, "--meet"), int(threading.TIMEOUT_MAX), "--meet"),
        places=_places(given.collective, given.place),
        seed=given.seed,
        average=given.average,
        json_path=_writable(given.output_file),
        stream=given.stream,
        stdin_watch=given.stdin_watch,
        corrupt=corrupt,
        gpus=_at_most(_at_least(given.ngpus, 1, "-g"), MOST_RANKS_HERE, "-g"),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="r2ccl-perf",
        description="Measures a collective, one process per rank or per -g of them. Number of this process, number of "
        "processes and rendezvous come from R2CC_RANK, R2CC_SIZE and R2CC_ROOT=host:port (or OMPI_COMM_WORLD_RANK and "
        "_SIZE).",
        epilog="Exit codes: 0 ok, 1 wrong elements, 2 usage or ranks that called different things, "
        "3 a peer or the transport was lost.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("collective", choices=COLLECTIVES, help="what to measure")
    add("--version", action=_Version, help="show the version and exit")
    add("-b", "--minbytes", default="32M", help="smallest size (default 32M)")
    add("-e", "--maxbytes", help="largest size (default: the smallest)")
    add("-i", "--stepbytes", help="add this from size to size")
    add("-f", "--stepfactor", type=float, default=2.0, help="multiply by this from size to size (default 2)")
    add("-n", "--iters", type=int, default=20, help="timed iterations per size (default 20)")
    add("-w", "--warmup_iters", type=int, default=1, help="untimed iterations before them (default 1)")
    add("-c", "--check", type=int, default=1, help="check every element of every c-th iteration, 0 never (default 1)")
    add("-d", "--datatype", default="float32", choices=[*ITEM_BYTES, *ALIASES, "all"], help="default float32")
    add("-o", "--op", default="sum", choices=[*OPERATIONS, "all"], help="default sum")
    add("-r", "--root", type=int, default=0, help="root rank of a collective that has one (default 0)")
    add("-N", "--run_cycles", type=int, default=1, help="go over all sizes this often, 0 forever (default 1)")
    add("-T", "--timeout", type=int, default=0, help="give up when one iteration takes so many seconds, 0 never")
    add("--meet", type=int, default=MEET_S, help=f"wait so many seconds for all ranks at the start (default {MEET_S})")
    add("-a", "--average", type=int, default=3, choices=[0, 1, 2, 3], help="time over ranks: 0 rank 0, 1 mean, "
        "2 min, 3 max (default 3: a collective ends when its last rank does)")  # fmt: skip
    add("-g", "--ngpus", type=int, default=1, help="ranks of this process, a thread each (default 1)")
    add("-t", "--nthreads", type=int, default=1, help="for nccl-tests' command lines: 1")
    add("-J", "--output_file", type=Path, help="also write the results to this file as JSON")
    add("--place", default="both", choices=["out", "in", "both"], help="out of place, in place (default both)")
    add("--seed", type=int, default=0, help="varies the data (default 0)")
    add("--corrupt", metavar="RANK:ITER", help="negative control: that rank spoils one element of that iteration")
    add("--stream", action="store_true", help="one JSON event a line instead of the table")
    add("--stdin-watch", action="store_true", help="end when standard input does")
    return parser


def _ops(collective: str, op: str) -> tuple[str, ...]:
    """One, where nothing is combined."""
    return OPERATIONS if op == "all" and reduces(collective) else ("sum" if op == "all" else op,)


def _places(collective: str, place: str) -> tuple[str, ...]:
    if place == "in" and collective in APART:
        raise UsageError(f"--place in: {collective} has no form in place; use --place out")
    if place != "both":
        return (place,)
    return ("out",) if collective in APART else ("out", "in")


def _sizes(begin_text: str, end_text: str | None, factor: float, step_text: str | None) -> tuple[int, ...]:
    begin = _size("-b", begin_text)
    end = begin if end_text is None else _size("-e", end_text)
    if end < begin:
        raise UsageError(f"-e {end_text} is below -b {begin_text}")
    step = 0 if step_text is None else _at_least(_size("-i", step_text), 1, "-i")
    if not step and not 1 < factor < inf:
        raise UsageError(f"-f {factor:g}: a finite factor above 1 is needed; or give a step with -i")
    sizes = [begin]
    while begin > 0 or step:
        larger = sizes[-1] + step if step else max(sizes[-1] * factor, sizes[-1] + 1)
        if larger >= end + 1:  # before it becomes an integer: it may be beyond all of them
            break
        if len(sizes) == MOST_SIZES:
            raise UsageError(
                f"-e {end_text}: more than {MOST_SIZES} sizes from {begin_text} on; give a larger -f or -i"
            )
        sizes.append(int(larger))
    return tuple(sizes)


def _size(flag: str, text: str) -> int:
    try:
        return parse_size(text)
    except UnitError as error:
        raise UsageError(f"{flag}: {error}") from error


def _at_least(value: int, low: int, flag: str) -> int:
    if value < low:
        raise UsageError(f"{flag} {value}: give {low} or more")
    return value


def _at_most(value: int, high: int, flag: str) -> int:
    if value > high:
        raise UsageError(f"{flag} {value}: give {high} or less")
    return value


def _writable(path: Path | None) -> Path | None:
    """Checked now, not after an hour of measuring."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError(f"-J {path}: cannot be written there; give a file in a directory that exists")
    return path


def _corrupt(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    rank, colon, iteration = text.partition(":")
    if not colon or not rank.isdigit() or not iteration.isdigit():
        raise UsageError(f"--corrupt {text}: write it as RANK:ITER, such as 1:3")
    return int(rank), int(iteration)
