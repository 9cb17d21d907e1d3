"""A process group of PyTorch: CPU tensors over `TensorCollectives`, in the background; CUDA tensors over NCCL.

The group is a subclass in Python, because that is PyTorch's stable interface: one package serves every version.
Methods exist under the names of all versions from 2.6 to 2.15; `docs/guides/program.md` says which were run.

PyTorch makes a group in Python the whole group, whatever else its name asks for ("cpu:r2ccl,cuda:nccl"). So this group
creates NCCL's part itself, when CUDA tensors first need it.
"""

import functools
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp

from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.native import keep_forever
from r2ccl_core.pytorch.collectives import How, TensorCollectives, meet, operation
from r2ccl_core.pytorch.work import Running
from r2ccl_core.runtime.communicator import Communicator


class R2cclProcessGroup(ProcessGroup):  # type: ignore[misc]  # torch is not typed here
    """The group that ``init_process_group("r2ccl")`` and ``new_group(backend="r2ccl")`` create."""

    def __init__(self, asked: Any, nccl_options: Any = None) -> None:
        """`asked` is PyTorch's description of the group; `nccl_options` are ``ProcessGroupNCCL.Options`` or None."""
        super().__init__(asked.group_rank, asked.group_size)
        # PyTorch's registries keep groups beyond the interpreter's end; no binding is to complain about that.
        keep_forever(type(self))
        self._asked, self._nccl_options = asked, nccl_options
        self._gpus: Any = None
        self._nccl: Any = None
        self._rank, self._size = int(asked.group_rank), int(asked.group_size)
        limit_s = asked.timeout.total_seconds()
        self._calls = TensorCollectives(meet(asked.store, self._rank, self._size, limit_s), limit_s)

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
        kind = torch.device(device).type
        if kind == "cuda":
            return self._on_gpus()._get_backend(device)
        return self if kind == "cpu" else super()._get_backend(device)

    @property
    def _device_types(self) -> list[Any]:
        """Where tensors may be. The first is where PyTorch puts objects."""
        return [torch.device("cpu"), *([torch.device("cuda")] if _finds_nccl() else [])]

    def _on_gpus(self) -> Any:
        """NCCL's part, a group by itself. Its ranks meet in their first operation, so making it waits for nobody."""
        if self._gpus is None:
            if not _finds_nccl():
                raise dist.DistBackendError(
                    "cuda tensors need a GPU and a PyTorch with NCCL; r2ccl itself moves CPU tensors"
                )
            asked, options = self._asked, self._nccl_options or dist.ProcessGroupNCCL.Options()
            options._timeout = asked.timeout
            options.global_ranks_in_group, options.group_name = asked.global_ranks_in_group, asked.group_id
            store = PrefixStore("nccl", asked.store)
            gpus = ProcessGroup(store, self._rank, self._size)
            gpus._set_default_backend(ProcessGroup.BackendType.NCCL)
            self._nccl = dist.ProcessGroupNCCL(store, self._rank, self._size, options)
            self._nccl._set_sequence_number_for_group()
            gpus._register_backend(torch.device("cuda"), ProcessGroup.BackendType.NCCL, self._nccl)
            self._gpus = gpus
        return self._gpus

    def _start_coalescing(self, device: Any) -> None:
        """What follows is one group of NCCL's."""
        self._part_of(device)._start_coalescing(device)

    def _end_coalescing(self, device: Any) -> Any:
        """The work of all that was called since the start."""
        return self._part_of(device)._end_coalescing(device)

    def _part_of(self, device: Any) -> Any:
        return self._on_gpus() if torch.device(device).type == "cuda" else super()

    keeps_batches_together = True  # see batches.py

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
        return self._calls.comm

    def set_timeout(self, timeout: timedelta) -> None:
        """How long a call may take from now on."""
        self._calls.limit_s = timeout.total_seconds()
        self._asked.timeout = timeout
        if self._nccl is not None:
            self._nccl._set_default_timeout(timeout)

    def abort(self, *_: object) -> None:
        """Ends the group on every rank, and every waiting call; NCCL's part on this rank."""
        self._calls.comm.abort("the process group was aborted")
        if self._nccl is not None:
            self._nccl.abort()

    def shutdown(self, *_: object) -> None:
        """Leaves the group after all started calls have ended. Idempotent."""
        if self._nccl is not None:
            self._nccl.shutdown()
        self._calls.release()

    # Collectives --------------------------------------------------------------------------------------------

    def broadcast(self, tensors: list[Any], opts: Any) -> Running:
        """One tensor or several, from `opts.rootRank`."""
        return self._calls.broadcast(tensors, opts.rootRank, _how(opts))

    def allreduce(self, tensors: list[Any], opts: Any = None) -> Running:
        """In place."""
        return self._calls.all_reduce(tensors, _operation(opts), _how(opts))

    def allreduce_coalesced(self, tensors: list[Any], opts: Any = None) -> Running:
        """Several tensors, one after another."""
        return self.allreduce(tensors, opts)

    def reduce(self, tensors: list[Any], opts: Any) -> Running:
        """In place on `opts.rootRank`."""
        return self._calls.reduce(tensors, _operation(opts), opts.rootRank, _how(opts))

    def allgather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Running:
        """`outputs[i][rank]` gets that rank's `inputs[i]`."""
        return self._calls.all_gather(outputs, inputs, _how(opts))

    def all_gather_single(self, output: Any, source: Any, opts: Any = None) -> Running:
        """All ranks' tensors in one."""
        return self.all_gather_single_coalesced([output], [source], opts)

    def all_gather_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """The same of several tensors."""
        return self._calls.all_gather_single(outputs, inputs, _how(opts))

    def allgather_coalesced(self, outputs: list[list[Any]], inputs: list[Any], opts: Any = None) -> Running:
        """`outputs[rank][i]` gets that rank's `inputs[i]`."""
        return self.allgather([list(parts) for parts in zip(*outputs, strict=True)], inputs, opts)

    def reduce_scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any = None) -> Running:
        """`outputs[i]` gets the combination of all ranks' `inputs[i][rank]`."""
        return self._calls.reduce_scatter(outputs, inputs, _operation(opts), _how(opts))

    def reduce_scatter_single(self, output: Any, source: Any, opts: Any = None) -> Running:
        """This rank's block of the combination of one tensor."""
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    def reduce_scatter_single_coalesced(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """The same of several tensors."""
        return self._calls.reduce_scatter_single(outputs, inputs, _operation(opts), _how(opts))

    def gather(self, outputs: list[list[Any]], inputs: list[Any], opts: Any) -> Running:
        """`outputs[0][rank]` of `opts.rootRank` gets that rank's `inputs[0]`."""
        return self._calls.gather([part for parts in outputs for part in parts], inputs[0], opts.rootRank, _how(opts))

    def scatter(self, outputs: list[Any], inputs: list[list[Any]], opts: Any) -> Running:
        """`outputs[0]` gets `inputs[0][rank]` of `opts.rootRank`."""
        parts = inputs[0] if self._rank == opts.rootRank else []
        return self._calls.scatter(outputs[0], parts, opts.rootRank, _how(opts))

    def all_to_all_single(
        self, output: Any, source: Any, output_sizes: Sequence[int], input_sizes: Sequence[int], opts: Any = None
    ) -> Running:
        """Sends rows of `source` to every rank; equal parts if no sizes are given."""
        taken, given = list(output_sizes or ()), list(input_sizes or ())
        return self._calls.all_to_all_single(output, source, taken, given, _how(opts))

    def alltoall(self, outputs: list[Any], inputs: list[Any], opts: Any = None) -> Running:
        """`inputs[rank]` to that rank, `outputs[rank]` from it; of any sizes."""
        return self._calls.all_to_all(outputs, inputs, _how(opts))

    def barrier(self, opts: Any = None) -> Any:
        """Ends when every rank has called it; with ``device_ids`` also what these GPUs were given before."""
        if getattr(opts, "device_ids", None):
            return self._on_gpus().barrier(opts)
        return self._calls.barrier(_how(opts))

    # As older versions call them.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Single messages ----------------------------------------------------------------------------------------

    def send(self, tensors: list[Any], to: int, tag: int) -> Running:
        """To the rank that receives with the same tag."""
        return self._calls.send(tensors, to, tag)

    def recv(self, tensors: list[Any], source: int, tag: int) -> Running:
        """From the rank that sends with the same tag."""
        return self._calls.recv(tensors, source, tag)

    def recv_anysource(self, tensors: list[Any], tag: int) -> Running:
        """Not supported: the connection that a message takes depends on its sender."""
        raise UsageError("recv from any source is not offered by r2ccl; name the source")


_OF_TENSORS = (
    "broadcast", "allreduce", "allreduce_coalesced", "reduce", "allgather", "all_gather_single",
    "all_gather_single_coalesced", "allgather_coalesced", "reduce_scatter", "reduce_scatter_single",
    "reduce_scatter_single_coalesced", "gather", "scatter", "all_to_all_single", "alltoall", "_allgather_base",
    "allgather_into_tensor_coalesced", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "alltoall_base",
    "send", "recv", "recv_anysource",
)  # fmt: skip


def _by_device(name: str) -> Callable[..., Any]:
    """The method `name`: of NCCL for CUDA tensors, else of this group."""
    on_cpus = getattr(R2cclProcessGroup, name)

    @functools.wraps(on_cpus)
    def call(group: R2cclProcessGroup, *args: Any, **named: Any) -> Any:
        tensor = _first(args) if args else _first(named.values())
        if tensor is not None and tensor.is_cuda:
            return getattr(group._on_gpus(), name)(*args, **named)
        try:
            return on_cpus(group, *args, **named)
        except R2cclError as error:  # what is refused before it starts
            raise dist.DistBackendError(str(error)) from None

    return call


for _name in _OF_TENSORS:
    setattr(R2cclProcessGroup, _name, _by_device(_name))


def _first(values: Any) -> Any:
    """The first tensor in lists of lists, or None."""
    for value in values:
        if isinstance(value, torch.Tensor):
            return value
        if isinstance(value, (list, tuple)) and (found := _first(value)) is not None:
            return found
    return None


def _finds_nccl() -> bool:
    return bool(dist.is_nccl_available() and torch.cuda.is_available())


def _how(opts: Any) -> How:
    asked = getattr(opts, "timeout", None)
    limit_s = asked.total_seconds() if asked is not None and asked > timedelta(0) else None
    # PyTorch says so from 2.7 on.
    return How(limit_s, waits=not getattr(opts, "asyncOp", True))


def _operation(opts: Any) -> str:
    """The core's name of a reduction. Raises `UsageError` if the core does not have it."""
    asked = ReduceOp.SUM if opts is None else getattr(opts.reduceOp, "op", opts.reduceOp)
    return operation(asked.name)
