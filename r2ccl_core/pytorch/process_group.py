"""A process group of PyTorch over a `Communicator`: CPU tensors, every call in the background.

Calls run in the order in which they are made, on a thread that does not hold the interpreter's lock while bytes move;
single messages (`send`, `recv`) use a separate thread for each peer, direction and tag. Contiguous tensors are not
copied. The group is a subclass in Python, because that is PyTorch's stable interface: one package serves every version.
Methods exist under the names of all versions from 2.6 to 2.15; `docs/guides/program.md` says which were run.
"""

import weakref
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch.distributed import ProcessGroup, ReduceOp

from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.native import keep_forever
from r2ccl_core.pytorch.meeting import meeting_place
from r2ccl_core.pytorch.tensors import as_array, filled
from r2ccl_core.pytorch.work import Running, Watch, run
from r2ccl_core.runtime.communicator import Communicator
from r2ccl_core.runtime.pending import Line, Pending

_OPERATIONS = {
    ReduceOp.SUM: "sum",
    ReduceOp.AVG: "avg",
    ReduceOp.PRODUCT: "prod",
    ReduceOp.MIN: "min",
    ReduceOp.MAX: "max",
}
_OF_BOOL = {"sum": "max", "prod": "min"}
"""Their meaning for truth values."""
_UNEQUAL = 1 << 20
"""Tag of the messages of an all-to-all with unequal parts; programs' own tags are below."""
_LONGEST_MEETING_S = 300.0
_ENDING_S = 5.0


class R2cclProcessGroup(ProcessGroup):  # type: ignore[misc]  # torch is not typed here
    """The group that ``init_process_group("r2ccl")`` and ``new_group(backend="r2ccl")`` create."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        # PyTorch's registries keep groups beyond the interpreter's end; no binding is to complain about that.
        keep_forever(type(self))
        self._rank, self._size = rank, size
        self._limit_s = timeout.total_seconds()
        meeting_s = min(self._limit_s, _LONGEST_MEETING_S)
        try:
            root = meeting_place(store, rank, size, timedelta(seconds=meeting_s))
            self._comm = Communicator(rank, size, root, timeout_s=meeting_s)
        except R2cclError as error:
            raise torch.distributed.DistBackendError(str(error)) from None
        self._line = Line(f"r2ccl-torch-{rank}")
        self._message_lines: dict[tuple[str, int, int], Line] = {}
        self._watch = Watch(self._comm.abort)
        self._release = weakref.finalize(self, _release, self._comm, self._line, self._message_lines, self._watch)

    # What PyTorch asks of a group ---------------------------------------------------------------------------

    def rank(self) -> int:
        """This rank's number in the group."""
        return self._rank

    def size(self) -> int:
        """How many ranks it has."""
        return self._size

    def getBackendName(self) -> str:  # noqa: N802  # PyTorch's name
        """``r2ccl``."""
        return "r2ccl"

    def name(self) -> str:
        """``r2ccl``."""
        return "r2ccl"

    def getGroupName(self) -> str:  # noqa: N802
        """As PyTorch has named it."""
        return getattr(self, "_name", "")

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Names it."""
        self._name = name

    _set_group_name = setGroupName

    @property
    def group_name(self) -> str:
        """As PyTorch has named it."""
        return self.getGroupName()

    def _get_backend(self, device: Any) -> Any:
        """What serves a device: of CPUs this group itself. From 2.14 on PyTorch asks it before it sends a batch."""
        return self if torch.device(device).type == "cpu" else super()._get_backend(device)

    # What PyTorch asks of a back end before it uses more than every one has.
    supports_coalescing = supports_splitting = supports_shrinking = False
    supports_time_estimate = _supports_time_estimate = False

    def supports_tensor_alloc(self, _: object) -> bool:
        """FSDP2 allocates its own buffers."""
        return False

    @property
    def communicator(self) -> Communicator:
        """The underlying communicator, for `stats` and the like; collective calls beside the group's own would be out
        of order."""
        return self._comm

    def set_timeout(self, timeout: timedelta) -> None:
        """How long a call may take from now on."""
        self._limit_s = timeout.total_seconds()

    def abort(self, *_: object) -> None:
        """Ends the group on every rank, and every waiting call."""
        self._comm.abort("the process group was aborted")

    def shutdown(self, *_: object) -> None:
        """Leaves the group after all started calls have ended. Idempotent."""
        self._release()

    # Collectives --------------------------------------------------------------------------------------------

    def broadcast(self, tensors: list[Any], opts: Any) -> Running:
        """One tensor or several, from `opts.rootRank`."""
        root = opts.rootRank

        def call() -> None:
            with filled(tensors) as arrays:
                for array in arrays:
                    self._comm.broadcast(array, array, root=root)

        return self._begin("broadcast", opts, call, tensors)

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Running:
        """In place."""
        op = _operation(opts)

        def call() -> None:
            with filled(tensors, reduced=True) as arrays:
                for array in arrays:
                    self._comm.all_reduce(array, array, op=_fit(op, array))

        return self._begin("allreduce", opts, call, tensors)

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Running:
        """Several tensors, one after another."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Any], opts: Any) -> Running:
        """In place on `opts.rootRank`."""
        op, root = _operation(opts), opts.rootRank

        def call() -> None:
            with filled(tensors, reduced=True) as arrays:
                for array in arrays:
                    into = array if self._rank == root else None
                    self._comm.reduce(array, into, op=_fit(op, array), root=root)

        return self._begin("reduce", opts, call, tensors)

    def allgather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Running:
        """`outputs[i][rank]` gets that rank's `inputs[i]`."""

        def call() -> None:
            for parts, tensor in zip(outputs, inputs, strict=True):
                whole = torch.empty(len(parts) * tensor.numel(), dtype=tensor.dtype, device="cpu")
                self._gather_all(whole, tensor)
                for part, block in zip(parts, whole.view(len(parts), -1), strict=True):
                    part.copy_(block.view_as(part))

        return self._begin("allgather", opts, call, [part for parts in outputs for part in parts])

    def all_gather_single(self, output: Any, source: Any, opts: Any = None) -> Running:
        """All ranks' tensors in one."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """The same of several tensors."""

        def call() -> None:
            for output, source in zip(outputs, inputs, strict=True):
                self._gather_all(output, source)

        return self._begin("all_gather_into_tensor", opts, call, outputs)

    def allgather_coalesced(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Running:
        """`outputs[rank][i]` gets that rank's `inputs[i]`."""
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def reduce_scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any = None) -> Running:
        """`outputs[i]` gets the combination of all ranks' `inputs[i][rank]`."""
        op = _operation(opts)

        def call() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, torch.cat([part.reshape(-1) for part in parts]), op)

        return self._begin("reduce_scatter", opts, call, outputs)

    def reduce_scatter_single(self, output: Any, source: Any, opts: Any = None) -> Running:
        """This rank's block of the combination of one tensor."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """The same of several tensors."""
        op = _operation(opts)

        def call() -> None:
            for output, source in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, source, op)

        return self._begin("reduce_scatter_tensor", opts, call, outputs)

    def gather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any) -> Running:
        """`outputs[0][rank]` of `opts.rootRank` gets that rank's `inputs[0]`."""
        root = opts.rootRank

        def call() -> None:
            source = inputs[0].contiguous()
            if self._rank != root:
                self._comm.gather(as_array(source), root=root)
                return
            whole = torch.empty(self._size * source.numel(), dtype=source.dtype, device="cpu")
            self._comm.gather(as_array(source), as_array(whole), root=root)
            for part, block in zip(outputs[0], whole.view(self._size, -1), strict=True):
                part.copy_(block.view_as(part))

        return self._begin("gather", opts, call, [part for parts in outputs for part in parts])

    def scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any) -> Running:
        """`outputs[0]` gets `inputs[0][rank]` of `opts.rootRank`."""
        root = opts.rootRank

        def call() -> None:
            whole = torch.cat([part.reshape(-1) for part in inputs[0]]) if self._rank == root else None
            with filled(outputs) as arrays:
                self._comm.scatter(None if whole is None else as_array(whole), arrays[0], root=root)

        return self._begin("scatter", opts, call, outputs)

    def all_to_all_single(
        self, output: Any, source: Any, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> Running:
        """Sends rows of `source` to every rank; equal parts if no sizes are given."""
        taken, given = list(output_sizes or ()), list(input_sizes or ())

        def call() -> None:
            dense = source.contiguous()
            with filled([output]) as arrays:
                if not taken and not given:
                    self._comm.all_to_all(as_array(dense), arrays[0])
                    return
                own = _parts(as_array(dense), given, self._size, dense.shape[0] if dense.dim() else 0)
                others = _parts(arrays[0], taken, self._size, output.shape[0] if output.dim() else 0)
                self._swap(own, others)

        return self._begin("all_to_all_single", opts, call, [output])

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """`inputs[rank]` to that rank, `outputs[rank]` from it; of any sizes."""

        def call() -> None:
            with filled(outputs) as arrays:
                self._swap([as_array(tensor.contiguous()) for tensor in inputs], arrays)

        return self._begin("all_to_all", opts, call, outputs)

    def barrier(self, opts: Any = None) -> Running:
        """Ends when every rank has called it."""
        return self._begin("barrier", opts, self._comm.barrier, [])

    # As older versions call them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Single messages ----------------------------------------------------------------------------------------

    def send(self, tensors: list[Any], to: int, tag: int) -> Running:
        """To the rank that receives with the same tag."""

        def call() -> None:
            for tensor in tensors:
                self._comm.send(as_array(tensor.contiguous()), to, tag)

        return self._message("send", to, tag, call, tensors)

    def recv(self, tensors: list[Any], source: int, tag: int) -> Running:
        """From the rank that sends with the same tag."""

        def call() -> None:
            with filled(tensors) as arrays:
                for array in arrays:
                    self._comm.recv(array, source, tag)

        return self._message("recv", source, tag, call, tensors)

    def recv_anysource(self, tensors: list[Any], tag: int) -> Running:
        """Not supported: the connection that a message takes depends on its sender."""
        raise UsageError("recv from any source is not offered by r2ccl; name the source")

    # Inside -------------------------------------------------------------------------------------------------

    def _begin(self, name: str, opts: Any, call: Callable[[], object], result: list[Any]) -> Running:
        asked = getattr(opts, "timeout", None)
        limit_s = asked.total_seconds() if asked is not None and asked > timedelta(0) else self._limit_s
        # PyTorch says so from 2.7 on; a program that waits has its call run without a change of threads.
        waits = not getattr(opts, "asyncOp", True)
        return run(self._line, self._watch, name, limit_s, call, result, waits)

    def _message(self, way: str, peer: int, tag: int, call: Callable[[], object], result: list[Any]) -> Running:
        line = self._message_lines.setdefault((way, peer, tag), Line(f"r2ccl-torch-{way}-{peer}-{tag}"))
        return run(line, self._watch, f"{way} with rank {peer}", self._limit_s, call, result)

    def _gather_all(self, output: Any, source: Any) -> None:
        with filled([output]) as arrays:
            self._comm.all_gather(as_array(source.contiguous()), arrays[0])

    def _reduce_scatter(self, output: Any, source: Any, op: str) -> None:
        with filled([output], reduced=True) as arrays:
            array = as_array(source.contiguous(), reduced=True)
            self._comm.reduce_scatter(array, arrays[0], op=_fit(op, array))

    def _swap(self, own: list[np.ndarray], others: list[np.ndarray]) -> None:
        """Parts of any size between all pairs, as single messages."""
        others[self._rank][...] = own[self._rank]
        peers = [(self._rank + turn) % self._size for turn in range(1, self._size)]
        begun: list[Pending[Any]] = [
            *(self._comm.irecv(others[peer], peer, _UNEQUAL) for peer in peers if others[peer].size),
            *(self._comm.isend(own[peer], peer, _UNEQUAL) for peer in peers if own[peer].size),
        ]
        for pending in begun:
            pending.wait()


def _release(comm: Communicator, line: Line, message_lines: dict[tuple[str, int, int], Line], watch: Watch) -> None:
    for each in (line, *message_lines.values()):
        each.close(_ENDING_S)
    watch.close()
    comm.close()


def _operation(opts: Any) -> str:
    """The core's name of a reduction. Raises `UsageError` if the core does not have it."""
    asked = ReduceOp.SUM if opts is None else getattr(opts.reduceOp, "op", opts.reduceOp)
    name = next((name for op, name in _OPERATIONS.items() if op == asked), None)
    if name is None:
        known = ", ".join(_OPERATIONS.values())
        raise UsageError(f"r2ccl does not reduce by {asked}; it knows {known}")
    return name


def _fit(op: str, array: np.ndarray) -> str:
    return _OF_BOOL.get(op, op) if array.dtype == np.bool_ else op


def _parts(array: np.ndarray, rows: list[int], size: int, all_rows: int) -> list[np.ndarray]:
    """`array`, of `all_rows` rows, cut by rows; equally if no sizes are given."""
    rows = rows or [all_rows // size] * size
    if len(rows) != size or sum(rows) != all_rows:
        raise UsageError(f"split sizes {rows} do not make the {all_rows} rows of the tensor for {size} ranks")
    width = array.size // all_rows if all_rows else 0
    ends = np.cumsum([0, *rows]) * width
    return [array[ends[rank] : ends[rank + 1]] for rank in range(size)]
