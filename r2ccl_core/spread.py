"""Runs independent pieces of work: in this process, on all processors of this machine, or on a Dask cluster.

The caller says what to do; `on` sets where, for everything that runs within it. A piece is identified by its key and
has its own seed, so results do not depend on the number of workers or the order of completion. With a folder, finished
pieces are kept, and a later call with the same work does only the rest.
"""

import hashlib
import json
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from r2ccl_core.errors import UsageError

Piece = TypeVar("Piece")
T = TypeVar("T")

CONNECT_S = 10.0
ALONE_S = 2.0
"""Shorter work runs in this process: starting processes takes about as long."""
STORED = 1
"""Version of the files that hold finished pieces."""

_ADDRESS = re.compile(r"[a-z]+://.+")


@dataclass(frozen=True)
class Place:
    """``processes`` of this machine (None: one per processor, for work that takes longer than `ALONE_S`), or the Dask
    scheduler at the address ``dask``, whose workers must have the same ``packages``. Finished pieces are kept in
    ``folder``."""

    processes: int | None = None
    dask: str | None = None
    folder: Path | None = None
    packages: tuple[str, ...] = ("r2ccl_core",)

    def __post_init__(self) -> None:
        if self.processes is not None and self.processes < 1:
            raise UsageError(f"{self.processes} processes: give 1 or more")
        if self.dask is not None and not _ADDRESS.fullmatch(self.dask):
            raise UsageError(f"--dask {self.dask}: is not the address of a scheduler; write it like tcp://HOST:8786")


HERE = Place(processes=1)
_place: ContextVar[Place] = ContextVar("place", default=HERE)


@contextmanager
def on(place: Place) -> Iterator[None]:
    """Work requested within this context runs at that place."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def as_they_end(run: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[tuple[int, T]]:
    """Yields ``run(piece)`` of every piece with its index, in order of completion. Exceptions of a piece are raised.

    `run` and the pieces must be picklable. Raises `UsageError` for a scheduler that cannot be used.
    """
    place = _place.get()
    if place.dask is not None:
        yield from _on_dask(place, place.dask, run, pieces)
        return
    begun_s, index = time.monotonic(), 0
    while index < len(pieces) and (
        place.processes == 1 or (place.processes is None and time.monotonic() - begun_s < ALONE_S)
    ):
        yield index, run(pieces[index])
        index += 1
    processes = min(place.processes or len(os.sched_getaffinity(0)), len(pieces) - index)
    if processes == 1:  # one process more would not be faster
        yield from ((at, run(pieces[at])) for at in range(index, len(pieces)))
    elif processes > 1:
        yield from ((index + at, value) for at, value in _on_processes(processes, run, pieces[index:]))


def results(work: str, run: Callable[[Piece], T], pieces: Sequence[Piece], *, batch: int = 1) -> list[T]:
    """Returns ``run(piece)`` of every piece, in their order; a worker gets ``batch`` pieces at a time.

    ``work`` describes everything that results depend on besides the piece. If finished pieces are kept, results must be
    JSON values (tuples come back as lists), and pieces are identified by their text.
    """
    folder = _place.get().folder
    kept = _Kept.of(folder, work) if folder is not None else None
    found: dict[int, Any] = {}
    left = []
    for index, piece in enumerate(pieces):
        if kept is not None and str(piece) in kept.values:
            found[index] = kept.values[str(piece)]
        else:
            left.append(index)
    batches = [left[at : at + batch] for at in range(0, len(left), batch)]
    given = [_Batch(run, tuple(pieces[index] for index in own)) for own in batches]
    for number, values in as_they_end(_run_batch, given):
        for index, value in zip(batches[number], values, strict=True):
            found[index] = kept.add(str(pieces[index]), value) if kept is not None else value
    return [found[index] for index in range(len(pieces))]


@dataclass(frozen=True)
class _Batch:
    run: Callable[[Any], Any]
    pieces: tuple[Any, ...]


def _run_batch(batch: _Batch) -> list[Any]:
    return [batch.run(piece) for piece in batch.pieces]


@dataclass
class _Kept:
    """The finished pieces of one work: one line of JSON each, after a line that identifies the work."""

    path: Path
    values: dict[str, Any]

    @classmethod
    def of(cls, folder: Path, work: str) -> "_Kept":
        name = hashlib.sha256(f"{_program(_place.get().packages)} {work}".encode()).hexdigest()[:16]
        path = folder / f"{name}.jsonl"
        values = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_text(json.dumps({"schema": STORED, "work": work}) + "\n")
            text = path.read_text()
            for line in text.splitlines()[1:]:
                try:
                    piece, value = json.loads(line)
                except ValueError:  # cut off when its process was killed
                    continue
                values[piece] = value
            if not text.endswith("\n"):
                path.write_text(f"{text}\n")
        except OSError as error:
            raise UsageError(f"{path}: cannot be kept ({error.strerror}); give another folder") from error
        return cls(path, values)

    def add(self, piece: str, value: Any) -> Any:
        """Keeps a result, and returns it in the form that a later call will read."""
        line = json.dumps([piece, value])
        with self.path.open("a") as file:
            file.write(f"{line}\n")
        return json.loads(line)[1]


def _on_processes(processes: int, run: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[tuple[int, T]]:
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), initializer=_leave_interrupts)
    try:
        futures = {pool.submit(run, piece): index for index, piece in enumerate(pieces)}
        for future in as_completed(futures):
            yield futures[future], future.result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise UsageError(
            "a worker process ended before its work was done; is there memory for fewer of them?"
        ) from error
    finally:  # at an error or an interrupt nobody waits for what is under way
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


def _leave_interrupts() -> None:
    """Ctrl-C reaches every process of a terminal; only the process that requested the work handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_dask(place: Place, address: str, run: Callable[[Piece], T], pieces: Sequence[Piece]) -> Iterator[tuple[int, T]]:
    try:
        distributed: Any = import_module("distributed")  # an extra
    except ImportError:
        raise UsageError("--dask needs the package distributed: pip install 'r2ccl[dask]'") from None
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise UsageError(f"--dask {address}: no scheduler answers ({error}); `dask scheduler` starts one") from error
    with client:
        _check_workers(address, client, place.packages)
        futures = {client.submit(run, piece, pure=False): index for index, piece in enumerate(pieces)}
        try:
            for future, value in distributed.as_completed(futures, loop=client.loop, with_results=True):
                yield futures[future], value
                future.release()
        finally:
            client.cancel(list(futures))


def _check_workers(address: str, client: Any, packages: tuple[str, ...]) -> None:
    """Refuses workers with another version of this program, which would compute other results."""

    def program() -> str | None:  # within a function: sent by value, so that a worker without this program can say so
        try:
            from r2ccl_core import spread
        except ImportError:
            return None
        return spread._program(packages)

    programs = client.run(program)
    if not programs:
        raise UsageError(f"--dask {address}: it has no workers; `dask worker {address}` starts one")
    for worker, found in programs.items():
        if found != _program(packages):
            told = "does not have this program" if found is None else "has another version of this program"
            raise UsageError(f"--dask {address}: the worker {worker} {told}; install the same one there")


def _program(packages: tuple[str, ...]) -> str:
    """A digest of these packages' source."""
    digest = hashlib.sha256()
    for name in packages:
        spec = find_spec(name)
        root = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path(name)
        for path in sorted(root.rglob("*.py")):
            digest.update(f"{name}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
