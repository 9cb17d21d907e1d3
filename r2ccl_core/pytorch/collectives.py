"""Collectives on CPU tensors over a `Communicator`, as the process group and the torchcomms back end offer them.

Calls run in the order in which they are made, on a thread that does not hold the interpreter's lock while bytes move;
single messages (`send`, `recv`) use a separate thread for each peer, direction and tag. Contiguous tensors are not
copied.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np
import torch

from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.pytorch.meeting import meeting_place
from r2ccl_core.pytorch.tensors import as_array, dense, filled
from r2ccl_core.pytorch.work import Running, Watch, run
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.runtime.pending import Line, Pending

_OPERATIONS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max"}
_OF_BOOL = {"sum": "max", "prod": "min"}
"""Their meaning for truth values."""
_UNEQUAL = 1 << 20
"""Tag of the messages of an all-to-all with unequal parts; programs' own tags are below."""
_LONGEST_MEETING_S = 300.0
_ENDING_S = 5.0


@dataclass(frozen=True)
class How:
    """How one call is made."""

    limit_s: float | None = None
    """How long it may take; None: as long as every call."""
    waits: bool = False
    """Whether the program waits for it at once: it then runs without a change of threads."""


IN_BACKGROUND = How()


def meet(store: Any, rank: int, size: int, limit_s: float) -> Communicator:
    """The communicator of the ranks that share `store`. Raises PyTorch's `DistBackendError`."""
    meeting_s = min(limit_s, _LONGEST_MEETING_S)
    try:
        root = meeting_place(store, rank, size, timedelta(seconds=meeting_s))
        return Communicator(rank, size, root, timeout_s=meeting_s)
    except R2cclError as error:
        raise torch.distributed.DistBackendError(str(error)) from None


def operation(name: str) -> str:
    """The core's name of PyTorch's reduction `name`, such as ``SUM``. Raises `UsageError` if the core does not have
    it."""
    if name not in _OPERATIONS:
        raise UsageError(f"r2ccl does not reduce by {name}; it knows {', '.join(_OPERATIONS.values())}")
    return _OPERATIONS[name]


class TensorCollectives:
    """The calls of one group. Each returns a work that completes with the tensors that it fills."""

    def __init__(self, comm: Communicator, limit_s: float) -> None:
        self.comm, self.limit_s = comm, limit_s
        self._rank, self._size = comm.rank, comm.size
        self._line = Line(f"r2ccl-torch-{comm.rank}")
        self._message_lines: dict[tuple[str, int, int], Line] = {}
        self._watch = Watch(comm.abort)
        self.release = weakref.finalize(self, _release, comm, self._line, self._message_lines, self._watch)
        """Leaves the group after all started calls have ended. Idempotent."""

    def broadcast(self, tensors: Sequence[Any], root: int, how: How = IN_BACKGROUND) -> Running:
        """One tensor or several, from `root`."""

        def call() -> None:
            with filled(tensors) as arrays:
                for array in arrays:
                    self.comm.broadcast(array, array, root=root)

        return self._begin("broadcast", how, call, tensors)

    def all_reduce(self, tensors: Sequence[Any], op: str, how: How = IN_BACKGROUND) -> Running:
        """In place, one tensor after another."""

        def call() -> None:
            with filled(tensors, reduced=True) as arrays:
                for array in arrays:
                    self.comm.all_reduce(array, array, op=_fit(op, array))

        return self._begin("allreduce", how, call, tensors)

    def reduce(self, tensors: Sequence[Any], op: str, root: int, how: How = IN_BACKGROUND) -> Running:
        """In place on `root`."""

        def call() -> None:
            with filled(tensors, reduced=True) as arrays:
                for array in arrays:
                    into = array if self._rank == root else None
                    self.comm.reduce(array, into, op=_fit(op, array), root=root)

        return self._begin("reduce", how, call, tensors)

    def all_gather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], how: How = IN_BACKGROUND) -> Running:
        """`outputs[i][rank]` gets that rank's `inputs[i]`, of the same size on all ranks."""

        def call() -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                whole = torch.empty(len(parts) * tensor.numel(), dtype=tensor.dtype, device="cpu")
                self._gather_all(whole, tensor)
                for part, block in zip(parts, whole.view(len(parts), -1), strict=True):
                    part.copy_(block.view_as(part))

        return self._begin("allgather", how, call, [part for parts in outputs for part in parts])

    def all_gather_unequal(self, outputs: Sequence[Any], tensor: Any, how: How = IN_BACKGROUND) -> Running:
        """`outputs[rank]` gets that rank's `tensor`; of any sizes."""

        def call() -> None:
            with filled(outputs) as arrays:
                arrays[self._rank][...] = as_array(dense(tensor))
                for rank, array in enumerate(arrays):
                    if array.size:
                        self.comm.broadcast(array, array, root=rank)

        return self._begin("allgather", how, call, outputs)

    def all_gather_single(self, outputs: Sequence[Any], inputs: Sequence[Any], how: How = IN_BACKGROUND) -> Running:
        """`outputs[i]` gets all ranks' `inputs[i]`."""

        def call() -> None:
            for output, source in zip(outputs, inputs, strict=True):
                self._gather_all(output, source)

        return self._begin("all_gather_into_tensor", how, call, outputs)

    def reduce_scatter(
        self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], op: str, how: How = IN_BACKGROUND
    ) -> Running:
        """`outputs[i]` gets the combination of all ranks' `inputs[i][rank]`, of the same size on all ranks."""

        def call() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, torch.cat([dense(part).reshape(-1) for part in parts]), op)

        return self._begin("reduce_scatter", how, call, outputs)

    def reduce_scatter_unequal(self, output: Any, inputs: Sequence[Any], op: str, how: How = IN_BACKGROUND) -> Running:
        """`output` gets the combination of all ranks' `inputs[rank]`; of any sizes."""

        def call() -> None:
            with filled([output], reduced=True) as arrays:
                for rank, part in enumerate(inputs):
                    if part.numel():
                        array = as_array(dense(part), reduced=True)
                        into = arrays[0] if rank == self._rank else None
                        self.comm.reduce(array, into, op=_fit(op, array), root=rank)

        return self._begin("reduce_scatter", how, call, [output])

    def reduce_scatter_single(
        self, outputs: Sequence[Any], inputs: Sequence[Any], op: str, how: How = IN_BACKGROUND
    ) -> Running:
        """`outputs[i]` gets this rank's block of the combination of all ranks' `inputs[i]`."""

        def call() -> None:
            for output, source in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, source, op)

        return self._begin("reduce_scatter_tensor", how, call, outputs)

    def gather(self, outputs: Sequence[Any], source: Any, root: int, how: How = IN_BACKGROUND) -> Running:
        """`outputs[rank]` of `root` gets that rank's `source`; other ranks have no outputs."""

        def call() -> None:
            own = dense(source)
            if self._rank != root:
                self.comm.gather(as_array(own), root=root)
                return
            whole = torch.empty(self._size * own.numel(), dtype=own.dtype, device="cpu")
            self.comm.gather(as_array(own), as_array(whole), root=root)
            for part, block in zip(outputs, whole.view(self._size, -1), strict=True):
                part.copy_(block.view_as(part))

        return self._begin("gather", how, call, outputs)

    def scatter(self, output: Any, inputs: Sequence[Any], root: int, how: How = IN_BACKGROUND) -> Running:
        """`output` gets `inputs[rank]` of `root`; other ranks have no inputs."""

        def call() -> None:
            whole = torch.cat([dense(part).reshape(-1) for part in inputs]) if self._rank == root else None
            with filled([output]) as arrays:
                self.comm.scatter(None if whole is None else as_array(whole), arrays[0], root=root)

        return self._begin("scatter", how, call, [output])

    def all_to_all_single(
        self, output: Any, source: Any, taken: Sequence[int], given: Sequence[int], how: How = IN_BACKGROUND
    ) -> Running:
        """Sends `given[rank]` rows of `source` to every rank and gets `taken[rank]`; equal parts if there are no
        sizes."""

        def call() -> None:
            own = dense(source)
            with filled([output]) as arrays:
                if not taken and not given:
                    self.comm.all_to_all(as_array(own), arrays[0])
                    return
                parts = _parts(as_array(own), given, self._size, own.shape[0] if own.dim() else 0)
                others = _parts(arrays[0], taken, self._size, output.shape[0] if output.dim() else 0)
                self._swap(parts, others)

        return self._begin("all_to_all_single", how, call, [output])

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], how: How = IN_BACKGROUND) -> Running:
        """`inputs[rank]` to that rank, `outputs[rank]` from it; of any sizes."""

        def call() -> None:
            with filled(outputs) as arrays:
                self._swap([as_array(dense(tensor)) for tensor in inputs], arrays)

        return self._begin("all_to_all", how, call, outputs)

    def barrier(self, how: How = IN_BACKGROUND) -> Running:
        """Ends when every rank has called it."""
        return self._begin("barrier", how, self.comm.barrier, [])

    def split(self, color: int | None, key: int) -> "TensorCollectives | None":
        """As `Communicator.split`, after all calls that were started before it; the part has the same time limit."""
        found: list[Communicator | None] = []
        self._begin("split", How(waits=True), lambda: found.append(self.comm.split(color, key)), []).wait()
        return TensorCollectives(found[0], self.limit_s) if found[0] is not None else None

    def send(self, tensors: Sequence[Any], to: int, tag: int, how: How = IN_BACKGROUND) -> Running:
        """To the rank that receives with the same tag."""

        def call() -> None:
            for tensor in tensors:
                self.comm.send(as_array(dense(tensor)), to, tag)

        return self._message("send", to, tag, how, call, tensors)

    def recv(self, tensors: Sequence[Any], source: int, tag: int, how: How = IN_BACKGROUND) -> Running:
        """From the rank that sends with the same tag."""

        def call() -> None:
            with filled(tensors) as arrays:
                for array in arrays:
                    self.comm.recv(array, source, tag)

        return self._message("recv", source, tag, how, call, tensors)

    def _begin(self, name: str, how: How, call: Callable[[], object], result: Sequence[Any]) -> Running:
        limit_s = self.limit_s if how.limit_s is None else how.limit_s
        return run(self._line, self._watch, name, limit_s, call, list(result), how.waits)

    def _message(
        self, way: str, peer: int, tag: int, how: How, call: Callable[[], object], result: Sequence[Any]
    ) -> Running:
        line = self._message_lines.setdefault((way, peer, tag), Line(f"r2ccl-torch-{way}-{peer}-{tag}"))
        limit_s = self.limit_s if how.limit_s is None else how.limit_s
        why = partial(self.comm.why_unsent, peer) if way == "send" else str
        return run(line, self._watch, f"{way} with rank {peer}", limit_s, call, list(result), how.waits, why)

    def _gather_all(self, output: Any, source: Any) -> None:
        with filled([output]) as arrays:
            self.comm.all_gather(as_array(dense(source)), arrays[0])

    def _reduce_scatter(self, output: Any, source: Any, op: str) -> None:
        with filled([output], reduced=True) as arrays:
            array = as_array(dense(source), reduced=True)
            self.comm.reduce_scatter(array, arrays[0], op=_fit(op, array))

    def _swap(self, own: list[np.ndarray], others: list[np.ndarray]) -> None:
        """Parts of any size between all pairs, as single messages."""
        others[self._rank][...] = own[self._rank]
        peers = [(self._rank + turn) % self._size for turn in range(1, self._size)]
        begun: list[Pending[Any]] = [
            *(self.comm.irecv(others[peer], peer, _UNEQUAL) for peer in peers if others[peer].size),
            *(self.comm.isend(own[peer], peer, _UNEQUAL) for peer in peers if own[peer].size),
        ]
        for pending in begun:
            pending.wait()


def _release(comm: Communicator, line: Line, message_lines: dict[tuple[str, int, int], Line], watch: Watch) -> None:
    for each in (line, *message_lines.values()):
        each.close(_ENDING_S)
    watch.close()
    comm.close()


def _fit(op: str, array: np.ndarray) -> str:
    return _OF_BOOL.get(op, op) if array.dtype == np.bool_ else op


def _parts(array: np.ndarray, rows: Sequence[int], size: int, all_rows: int) -> list[np.ndarray]:
    """`array`, of `all_rows` rows, cut by rows; equally if no sizes are given."""
    rows = rows or [all_rows // size] * size
    if len(rows) != size or sum(rows) != all_rows:
        raise UsageError(f"split sizes {rows} do not make the {all_rows} rows of the tensor for {size} ranks")
    width = array.size // all_rows if all_rows else 0
    ends = np.cumsum([0, *rows]) * width
    return [array[ends[rank] : ends[rank + 1]] for rank in range(size)]
