"""AllReduce on CUDA tensors by our schedules, over a separate NCCL communicator: PyTorch in, PyTorch out.

It drives libr2ccl-preload.so, the library that programs preload, so both make the same decisions: NCCL's own AllReduce
while nothing is lost, and the table's rounds after a loss, from an operation on which all ranks agree.
"""

import ctypes
import os
from pathlib import Path
from typing import Any

from r2ccl_core import native
from r2ccl_core.control.rendezvous import check_rank, parse_root
from r2ccl_core.errors import TransportError, UsageError

OPERATIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}
TYPES = {
    "int8": 0,
    "uint8": 1,
    "int32": 2,
    "uint32": 3,
    "int64": 4,
    "uint64": 5,
    "float16": 6,
    "float32": 7,
    "float64": 8,
    "bfloat16": 9,
}
MEETING_S = 60.0


class UniqueId(ctypes.Structure):
    """NCCL's identifier of a communicator, by value."""

    _fields_ = (("data", ctypes.c_char * 128),)


class GpuCommunicator:
    """A group of ranks with one GPU each. Every rank makes the same calls in the same order, from one thread.

    ``with GpuCommunicator(rank, size, "10.0.0.1:7000", table) as comm: total = comm.all_reduce(gradients)``
    """

    def __init__(self, rank: int, size: int, root: str, table: Path | None = None) -> None:
        """Joins the group whose rank 0 listens at `root`, on the current CUDA device.

        `table` is the file of ``python -m r2ccl_core.gpu`` (default: R2CC_SCHEDULES); without one NCCL does everything.
        It applies to the whole process: the first communicator decides. Raises `UsageError` and `TransportError`.
        """
        check_rank(rank, size)
        host, port = parse_root(root)
        import torch

        if table is not None:
            os.environ["R2CC_SCHEDULES"] = str(table)
        self._torch = torch
        try:
            self._nccl = ctypes.CDLL("libnccl.so.2", mode=ctypes.RTLD_GLOBAL)
            self._ours = ctypes.CDLL(str(native.preload_path()))
        except OSError as error:
            raise TransportError(f"NCCL cannot be loaded ({error}); install PyTorch with CUDA") from error
        self._comm = ctypes.c_void_p()
        identity = self._meet(rank, size, host, port)
        self._call(self._nccl.ncclCommInitRank, ctypes.byref(self._comm), size, identity, rank)
        self.rank, self.size = rank, size

    def _meet(self, rank: int, size: int, host: str, port: int) -> UniqueId:
        from datetime import timedelta

        limit = timedelta(seconds=MEETING_S)
        try:
            store = self._torch.distributed.TCPStore(host, port, size, rank == 0, limit)
            identity = UniqueId()
            if rank == 0:
                self._call(self._nccl.ncclGetUniqueId, ctypes.byref(identity))
                store.set("r2ccl", bytes(identity).hex())
            made = UniqueId.from_buffer_copy(bytes.fromhex(store.get("r2ccl").decode()))
            # Rank 0 serves the others until all of them have read.
            if store.add("read", 1) == size:
                store.set("all have read", "")
            if rank == 0:
                store.wait(["all have read"], limit)
        except RuntimeError as error:  # PyTorch's own are derived from it
            raise TransportError(
                f"rank {rank} of {size} did not meet the others at {host}:{port} within {MEETING_S:.0f} s "
                f"({str(error).partition(chr(10))[0]}); see whether all ranks run"
            ) from error
        return made

    def all_reduce(self, send: Any, recv: Any | None = None, op: str = "sum") -> Any:
        """Combines `send` of all ranks element by element into `recv` (default: a new tensor), on the current stream.

        `recv` may be `send` itself. Both are contiguous CUDA tensors of one type and shape. Like NCCL, it returns
        before the work is done. Raises `TransportError` with NCCL's number if NCCL refuses.
        """
        recv = self._torch.empty_like(send) if recv is None else recv
        name = str(send.dtype).removeprefix("torch.")
        if op not in OPERATIONS:
            raise UsageError(f"op={op}: use one of {', '.join(OPERATIONS)}")
        if name not in TYPES:
            raise UsageError(f"{name} tensors cannot be reduced; use one of {', '.join(TYPES)}")
        if not (send.is_cuda and recv.is_cuda and send.is_contiguous() and recv.is_contiguous()):
            raise UsageError("all_reduce takes contiguous CUDA tensors")
        if send.dtype != recv.dtype or send.shape != recv.shape:
            raise UsageError("send and recv differ in data type or shape")
        stream = ctypes.c_void_p(self._torch.cuda.current_stream().cuda_stream)
        places = (ctypes.c_void_p(send.data_ptr()), ctypes.c_void_p(recv.data_ptr()), ctypes.c_size_t(send.numel()))
        self._call(self._ours.ncclAllReduce, *places, TYPES[name], OPERATIONS[op], self._comm, stream)
        return recv

    @property
    def choice(self) -> str:
        """What ran last: ``nccl`` or the name of an algorithm."""
        function = self._ours.r2cclChoice
        function.restype = ctypes.c_char_p
        return bytes(function(self._comm)).decode()

    def close(self) -> None:
        """Leaves the group when its work is done. Idempotent."""
        if self._comm:
            self._torch.cuda.synchronize()
            self._call(self._ours.ncclCommDestroy, self._comm)
            self._comm = ctypes.c_void_p()

    def __enter__(self) -> "GpuCommunicator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @staticmethod
    def _call(function: Any, *args: Any) -> None:
        result = function(*args)
        if result != 0:
            raise TransportError(f"{function.__name__} says {result}; NCCL_DEBUG=WARN tells why")
