"""The program around the loop: environment, table or event stream, exit code."""

import os
import socket
import sys
import threading
from contextlib import nullcontext
from typing import NoReturn

from r2ccl_core.communicator import Communicator
from r2ccl_core.errors import R2cclError, TransportError, UsageError
from r2ccl_core.perf import table
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import Flags, parse_flags
from r2ccl_core.perf.live_log import LiveLog
from r2ccl_core.perf.measure import Measurement
from r2ccl_core.perf.table import Result

OK, WRONG, USAGE, LOST = 0, 1, 2, 3


def main() -> NoReturn:
    """Measures and exits with 0 ok, 1 wrong elements, 2 usage, 3 a peer or the transport was lost."""
    code = LOST
    try:
        code = _main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        pass  # whoever read our output has left
    # The interpreter's orderly end would wait for nothing of value and costs a tenth of a second.
    os._exit(code)


def _main(argv: list[str]) -> int:
    try:
        flags = parse_flags(argv)
        rank, size, root = _place_in_group()
        flags.check_ranks(size)
    except UsageError as error:
        print(error, file=sys.stderr)
        return USAGE
    if flags.stdin_watch:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    return _run(flags, argv, rank, size, root)


def _place_in_group() -> tuple[int, int, str | None]:
    rank = _number(("R2CC_RANK", "OMPI_COMM_WORLD_RANK"), "0")
    size = _number(("R2CC_SIZE", "OMPI_COMM_WORLD_SIZE"), "1")
    if not 0 <= rank < size:
        raise UsageError(f"R2CC_RANK={rank}: ranks go from 0 to {size - 1}, as R2CC_SIZE={size} says")
    return rank, size, os.environ.get("R2CC_ROOT")


def _number(names: tuple[str, ...], default: str) -> int:
    name = next((name for name in names if name in os.environ), names[0])
    text = os.environ.get(name, default)
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"{name}={text}: give a whole number")
    return int(text)


def _end_with_stdin() -> None:
    # Not sys.stdin: a daemon thread that holds its lock aborts the interpreter's end.
    while os.read(0, 4096):
        pass
    os._exit(LOST)


def _run(flags: Flags, argv: list[str], rank: int, size: int, root: str | None) -> int:
    events = Events(rank, flags.stream)
    comm = measurement = None
    try:
        with Communicator(rank, size, root) as comm:
            measurement = Measurement(comm, flags, events)
            with LiveLog(lambda: comm.stats()["events"], events) if flags.stream else nullcontext():
                results = _measure(comm, measurement, flags, events)
            stats = comm.stats()
            events.emit("done", core=stats)
    except (R2cclError, KeyboardInterrupt) as error:
        iteration = measurement.iteration if measurement else None
        return _fail(error, events, rank, iteration, comm)
    if rank == 0 and flags.json_path:
        from r2ccl_core.perf import document  # only who wants the file pays for its imports

        try:
            document.write(flags.json_path, flags, argv, stats["mode"], size, results)
        except OSError as error:
            print(f"-J {flags.json_path}: {error.strerror}", file=sys.stderr)
            return USAGE
    return WRONG if any(result.wrong for result in results) else OK


def _measure(comm: Communicator, measurement: Measurement, flags: Flags, events: Events) -> list[Result]:
    """All results; rank 0 shows them as they come, unless events are wanted."""
    measurement.connect()
    events.emit("ready")
    mine = ", ".join(f"{nic['name']} {nic['address']}" for nic in comm.stats()["nics"])
    places = comm.allgather(f"Pid {os.getpid():>7} on {socket.gethostname()} NICs {mine}".encode())
    show = comm.rank == 0 and not flags.stream
    if show:
        print(table.header(_settings(comm, flags), [place.decode() for place in places]), flush=True)
    results: list[Result] = []
    shown: dict[str, Result] = {}
    for result in measurement.run():
        results.append(result)
        shown[result.place] = result
        if len(shown) == len(flags.places):
            if show:
                print(table.line(result.case, shown), flush=True)
            shown.clear()
    if show:
        print(table.summary(results), flush=True)
    return results


def _settings(comm: Communicator, flags: Flags) -> dict[str, object]:
    return {
        "collective": flags.collective,
        "ranks": comm.size,
        "mode": comm.stats()["mode"],
        "minBytes": flags.sizes[0],
        "maxBytes": flags.sizes[-1],
        "warmup iters": flags.warmup,
        "iters": flags.iters,
        "validation": flags.check,
    }


def _fail(error: BaseException, events: Events, rank: int, iteration: int | None, comm: Communicator | None) -> int:
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
    prefix = "" if message.startswith("rank ") else f"rank {rank}: "
    print(prefix + message, file=sys.stderr, flush=True)
    core = comm.stats() if comm is not None and isinstance(error, TransportError) else None
    events.emit("error", message=message, iteration=iteration, core=core)
    return USAGE if isinstance(error, UsageError) else LOST
