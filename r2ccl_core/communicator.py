"""Collectives on NumPy arrays in host memory, over the fault-tolerant transport.

    with Communicator(rank, size, root="10.0.0.1:7000") as comm:
        total = comm.all_reduce(gradients)

A `Communicator` runs any schedule: it makes the connections that a schedule needs when it is first used (all
ranks together), lowers the schedule for the vector at hand, and keeps the executor for the next call.
"""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from r2ccl_core import native
from r2ccl_core.bootstrap import Bootstrap
from r2ccl_core.errors import UsageError
from r2ccl_core.lower import Connection, connections_of, lower
from r2ccl_core.schedule import Schedule
from r2ccl_core.schedules import ring
from r2ccl_core.units import parse_size

DTYPES = ("float32", "float64", "int32", "int64", "float16", "bfloat16")
OPS = ("sum", "min", "max", "prod")
DEFAULT_SLICE_BYTES = 256 * 1024
_MIN_SLICE_BYTES = 64 * 1024
_CONNECT_TIMEOUT_S = 15.0


def find_nics() -> list[tuple[str, str]]:
    """``(name, IPv4 address)`` of the NICs to use: R2CC_SOCKET_IFNAME, else NCCL_SOCKET_IFNAME, else all.

    The variables are read as NCCL reads its own (prefixes, ``^`` excludes, ``=`` exact). A host with nothing
    but loopback uses loopback.
    """
    chosen = os.environ.get("R2CC_SOCKET_IFNAME") or os.environ.get("NCCL_SOCKET_IFNAME")
    try:
        return list(native.load().discover_nics(chosen or ""))
    except UsageError:
        if chosen:
            raise
        return [("lo", "127.0.0.1")]


def ring_slices(nbytes: int, nranks: int, slice_bytes: int) -> int:
    """In how many pieces each of the ring's sections is pipelined: of about `slice_bytes`, at least two
    where they stay above 64 KiB, so that a hop overlaps the next."""
    section = nbytes // nranks
    return max(1, round(section / slice_bytes), min(2, section // _MIN_SLICE_BYTES))


class Communicator:
    """One rank of a group. Not thread-safe: one collective at a time, the same order on every rank."""

    def __init__(
        self,
        rank: int,
        size: int,
        root: str = "127.0.0.1:7000",
        *,
        nics: Sequence[tuple[str, str]] | None = None,
        mode: int | None = None,
        options: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        """Joins the group whose rank 0 listens at `root`; returns when all ranks have.

        `mode` (default: R2CC_MODE, else 2): 0 fail-stop, 1 one back-up NIC, 2 Balance. `options` set R2CC_*
        parameters by name. Raises `UsageError` for bad arguments and `TransportError` when ranks are missing.
        """
        self.rank, self.size = rank, size
        self._native = native.load()
        chosen = _read_mode(mode)
        self._net = self._native.open_net(chosen, list(nics or find_nics()), dict(options or {}))
        self._slice_bytes = parse_size(os.environ.get("R2CC_SLICE_BYTES", DEFAULT_SLICE_BYTES))
        self._senders: dict[Connection, Any] = {}
        self._receivers: dict[Connection, Any] = {}
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self._executors: dict[tuple[int, int], Any] = {}
        try:
            self._bootstrap = Bootstrap(rank, size, root, timeout_s=timeout_s)
        except BaseException:
            self._net.close()
            raise

    def all_reduce(self, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum") -> np.ndarray:
        """Combines `send` of all ranks element by element into `recv` (default: a new array) on every rank.

        `recv` may be `send` itself (in place). Both are C-contiguous, of one of `DTYPES` and equal length.
        Raises `PeerLostError` when a peer is lost for good; the communicator is then of no more use.
        """
        slices = ring_slices(send.nbytes, self.size, max(self._slice_bytes, 1))
        key = (self.size, slices)
        if key not in self._schedules:
            self._schedules[key] = ring.all_reduce(self.size, slices=slices)
        return self.run(self._schedules[key], send, recv, op)

    def run(
        self, schedule: Schedule, send: np.ndarray, recv: np.ndarray | None = None, op: str = "sum"
    ) -> np.ndarray:
        """Runs `schedule`, the same on every rank, on `send` into `recv`; as `all_reduce` otherwise."""
        if recv is None:
            recv = np.empty_like(send)
        _check_arrays(send, recv, op)
        if schedule.nranks != self.size:
            raise UsageError(
                f"schedule {schedule.name} is for {schedule.nranks} ranks, the group has {self.size}"
            )
        executor = self._executor(schedule, send.size)
        executor.run(_bytes(send), _bytes(recv), send.dtype.name, op)
        return recv

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        self._bootstrap.barrier()

    def allgather(self, data: bytes) -> list[bytes]:
        """What every rank gave, by rank: for small agreements, over the management network."""
        return self._bootstrap.allgather(data)

    def stats(self) -> dict[str, Any]:
        """NICs with their bytes and state, the core's event log, replayed and duplicate chunks."""
        return {"rank": self.rank, **self._net.stats()}

    def close(self) -> None:
        """Leaves the group. Idempotent; call it on every rank after a barrier."""
        self._executors.clear()
        self._senders.clear()
        self._receivers.clear()
        self._net.close()
        self._bootstrap.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _executor(self, schedule: Schedule, count: int) -> Any:
        key = (id(schedule), count)
        if key not in self._executors:
            sends, receives = connections_of(schedule, self.rank)
            self._connect(sends, receives)
            lanes = lower(
                schedule,
                self.rank,
                count,
                {connection: index for index, connection in enumerate(sends)},
                {connection: index for index, connection in enumerate(receives)},
            )
            senders = [self._senders[connection] for connection in sends]
            receivers = [self._receivers[connection] for connection in receives]
            # The schedule is kept with its executor: its id is the key.
            self._executors[key] = (schedule, self._native.Executor(self._net, lanes, senders, receivers))
        return self._executors[key][1]

    def _connect(self, sends: list[Connection], receives: list[Connection]) -> None:
        """Makes the connections that are not there yet; every rank comes here for the same schedule."""
        fresh = [connection for connection in receives if connection not in self._receivers]
        listeners = {connection: self._net.listen() for connection in fresh}
        published = b"".join(_pack_handle(c, listener.handle) for c, listener in listeners.items())
        handles: dict[Connection, bytes] = {}
        for part in self._bootstrap.allgather(published):
            handles |= _unpack_handles(part)
        for connection in sends:
            if connection not in self._senders:
                self._senders[connection] = self._net.connect(handles[connection], _CONNECT_TIMEOUT_S)
        for connection, listener in listeners.items():
            self._receivers[connection] = listener.accept(_CONNECT_TIMEOUT_S)
            listener.close()


def _read_mode(mode: int | None) -> int:
    text = os.environ.get("R2CC_MODE", "2") if mode is None else str(mode)
    if text not in ("0", "1", "2"):
        raise UsageError(f"R2CC_MODE={text}: use 0 (fail-stop), 1 (one back-up NIC) or 2 (Balance)")
    return int(text)


def _check_arrays(send: np.ndarray, recv: np.ndarray, op: str) -> None:
    if send.dtype.name not in DTYPES:
        raise UsageError(f"data type {send.dtype.name} is not supported; use one of {', '.join(DTYPES)}")
    if op not in OPS:
        raise UsageError(f"operation {op!r} is not supported; use one of {', '.join(OPS)}")
    if (send.dtype, send.shape) != (recv.dtype, recv.shape):
        raise UsageError("send and recv differ in data type or shape")
    if not (send.flags.c_contiguous and recv.flags.c_contiguous and recv.flags.writeable):
        raise UsageError("send and recv must be C-contiguous and recv writeable")
    if recv is not send and np.shares_memory(send, recv) and send.ctypes.data != recv.ctypes.data:
        raise UsageError("send and recv overlap; use the same array for in place")


def _bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


_HANDLE_BYTES = 128
_KEY = np.dtype("<i4")


def _pack_handle(connection: Connection, handle: bytes) -> bytes:
    return np.array(connection, dtype=_KEY).tobytes() + handle


def _unpack_handles(packed: bytes) -> dict[Connection, bytes]:
    record = 3 * _KEY.itemsize + _HANDLE_BYTES
    handles = {}
    for at in range(0, len(packed), record):
        source, target, index = np.frombuffer(packed, _KEY, 3, at).tolist()
        handles[(source, target, index)] = packed[at + 3 * _KEY.itemsize : at + record]
    return handles
