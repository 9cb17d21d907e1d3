"""The program around the loop: environment, table or event stream, exit code."""

import json
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from r2ccl_core.communicator import Communicator
from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.perf import table
from r2ccl_core.perf.flags import Flags, parse_flags
from r2ccl_core.perf.measure import Events, Measurement
from r2ccl_core.perf.table import Result

OK, WRONG, USAGE, LOST = 0, 1, 2, 3
JSON_SCHEMA = 1


def main() -> NoReturn:
    """Measures and exits with 0 ok, 1 wrong elements, 2 usage, 3 a peer or the transport was lost."""
    try:
        flags = parse_flags(sys.argv[1:])
        rank, size, root = _place_in_group()
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(USAGE)
    if flags.stdin_watch:
        threading.Thread(target=_end_with_stdin, daemon=True).start()
    code = _run(flags, rank, size, root)
    sys.stdout.flush()
    # The interpreter's orderly end would wait for nothing of value and costs a tenth of a second.
    os._exit(code)


def _place_in_group() -> tuple[int, int, str]:
    env = os.environ
    rank = env.get("R2CC_RANK", env.get("OMPI_COMM_WORLD_RANK", "0"))
    size = env.get("R2CC_SIZE", env.get("OMPI_COMM_WORLD_SIZE", "1"))
    for name, value in (("R2CC_RANK", rank), ("R2CC_SIZE", size)):
        if not value.isdigit():
            raise UsageError(f"{name}={value}: give a whole number")
    return int(rank), int(size), env.get("R2CC_ROOT", "127.0.0.1:7000")


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(LOST)


def _run(flags: Flags, rank: int, size: int, root: str) -> int:
    events = Events(rank, flags.stream)
    try:
        comm = Communicator(rank, size, root)
    except R2cclError as error:
        return _fail(error, events, rank, None, {})
    measurement = Measurement(comm, flags, events)
    events.emit("ready")
    show = rank == 0 and not flags.stream
    if show:
        print(
            f"# r2ccl-perf {flags.collective}, {size} ranks, mode {comm.stats()['mode']}\n#\n{table.HEADER}",
            flush=True,
        )
    results: list[Result] = []
    try:
        for result in measurement.run():
            results.append(result)
            if show:
                _show_line(flags, size, results)
        stats = comm.stats()
        comm.barrier()
    except R2cclError as error:
        return _fail(error, events, rank, measurement.iteration, comm.stats())
    events.emit("done", core=stats)
    if show:
        print(table.summary(results, size), flush=True)
    if rank == 0 and flags.json_path:
        _write_json(flags.json_path, flags, size, results)
    comm.close()
    return WRONG if any(result.wrong for result in results) else OK


def _show_line(flags: Flags, ranks: int, results: list[Result]) -> None:
    size = results[-1].size_bytes
    places = {r.place: r for r in results[-len(flags.places) :] if r.size_bytes == size}
    if len(places) == len(flags.places):
        count = size // (8 if flags.dtype.endswith("64") else 2 if flags.dtype.endswith("16") else 4)
        print(table.line(size, count, flags.dtype, flags.op, ranks, places), flush=True)


def _fail(error: R2cclError, events: Events, rank: int, iteration: int | None, core: dict[str, object]) -> int:
    print(f"rank {rank}: {error}", file=sys.stderr, flush=True)
    events.emit("error", message=str(error), iteration=iteration, core=core or None)
    return USAGE if isinstance(error, UsageError) else LOST


def _write_json(path: Path, flags: Flags, ranks: int, results: list[Result]) -> None:
    rows = [
        {
            "size_bytes": r.size_bytes,
            "place": r.place,
            "time_us": r.time_s * 1e6 if r.times_s else None,
            "algbw_gbs": r.algbw(),
            "busbw_gbs": r.busbw(ranks),
            "wrong": r.wrong,
            "times_us": [t * 1e6 for t in r.times_s],
        }
        for r in results
    ]
    head = {
        "schema": JSON_SCHEMA,
        "collective": flags.collective,
        "ranks": ranks,
        "dtype": flags.dtype,
        "op": flags.op,
    }
    path.write_text(json.dumps({**head, "results": rows}, indent=1) + "\n")
