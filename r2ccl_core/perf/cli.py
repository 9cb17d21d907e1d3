"""The program around the measuring loop: environment, table or event stream, exit status."""

import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

from r2ccl_core.control.rendezvous import check_rank, free_root
from r2ccl_core.errors import MismatchedCallError, R2cclError, TransportError, UsageError
from r2ccl_core.output import only_printing, robust
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import Flags, parse_flags
from r2ccl_core.perf.joined import JoinedEvents, merged
from r2ccl_core.perf.ranks import Failure, Rank, run_all
from r2ccl_core.perf.stdin import end_with_stdin

OK, WRONG, USAGE, LOST = 0, 1, 2, 3
CRASHED = 70
"""A bug, which has a traceback; no result has this status."""


def main() -> NoReturn:
    """Measures and exits with 0 ok, 1 wrong elements, 2 usage error or ranks that called different things, 3 a peer or
    the transport was lost, 70 a bug, 74 help that could not be written."""
    code = LOST
    try:
        code = _main(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever reads our events has left
    except Exception:
        traceback.print_exc()
        code = CRASHED
    # The interpreter's orderly end would wait for nothing of value and costs a tenth of a second.
    os._exit(code)


def _main(argv: list[str]) -> int:
    usual = sys.stdout, sys.stderr
    robust()  # a table that nobody can read says nothing of the result
    try:
        with only_printing():
            flags = parse_flags(argv)
        process, processes = _place_in_group()
        size = processes * flags.gpus
        flags.check_ranks(size)
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    warnings.showwarning = _warn  # type: ignore[assignment]  # it reads the first of six
    if flags.stream:  # without whoever reads the events there is nothing to measure for
        sys.stdout, sys.stderr = usual
    if flags.stdin_watch:
        end_with_stdin()
    first, root = process * flags.gpus, os.environ.get("R2CC_ROOT")
    if processes == 1 and size > 1 and not root:
        root = free_root()
    events = Events(first, flags.stream) if flags.gpus == 1 else JoinedEvents(first, flags.gpus, flags.stream)
    ranks = [Rank(number, size, root, flags, events) for number in range(first, first + flags.gpus)]
    failure = run_all(ranks)
    return _fail(failure, ranks, events) if failure else _end(flags, argv, size, ranks[0])


def _place_in_group() -> tuple[int, int]:
    """The number of this process and of all processes: its ranks are the next `-g` after those of the processes before
    it."""
    rank = _number(("R2CC_RANK", "OMPI_COMM_WORLD_RANK"), "0")
    size = _number(("R2CC_SIZE", "OMPI_COMM_WORLD_SIZE"), "1")
    check_rank(rank, size)
    return rank, size


def _number(names: tuple[str, ...], default: str) -> int:
    """The value of the first of `names` that is set; an empty one counts as not set."""
    name = next((name for name in names if os.environ.get(name)), names[0])
    text = os.environ.get(name) or default
    if re.fullmatch("[0-9]{1,9}", text) is None:
        raise UsageError(f"{name}={text}: give a whole number")
    return int(text)


def _warn(message: Warning | str, *_: object) -> None:
    """A warning without the line of our own source that gave it."""
    print(f"warning: {message}", file=sys.stderr, flush=True)


def _end(flags: Flags, argv: list[str], size: int, rank: Rank) -> int:
    """The exit status; rank 0's process also writes the document of -J."""
    if rank.number == 0 and flags.json_path:
        from r2ccl_core.perf import document  # only who wants the file pays for its imports

        assert rank.comm is not None
        try:
            document.write(flags.json_path, flags, argv, rank.comm.stats()["mode"], size, rank.results)
        except OSError as error:
            print(f"-J {flags.json_path}: {error.strerror}", file=sys.stderr)
            return USAGE
    return WRONG if any(result.wrong for result in rank.results) else OK


def _fail(failure: Failure, ranks: Sequence[Rank], events: Events) -> int:
    """Prints one line and one event, whatever the number of ranks here; raises again what is not an error of ours."""
    rank, error = failure
    if not isinstance(error, R2cclError | KeyboardInterrupt):
        raise error
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    prefix = "" if message.startswith("rank ") else f"rank {rank.number}: "
    print(prefix + message, file=sys.stderr, flush=True)
    told = [one.comm.stats() for one in ranks if one.comm is not None]
    core = merged(told) if told and isinstance(error, TransportError | MismatchedCallError) else None
    iteration = rank.measurement.iteration if rank.measurement else None
    events.emit("error", kind=type(error).__name__, message=message, iteration=iteration, core=core)
    return USAGE if isinstance(error, UsageError) else LOST
