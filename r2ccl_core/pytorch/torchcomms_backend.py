"""``torchcomms.new_comm("r2ccl", torch.device("cpu"), "main")``: the collectives as a back end of torchcomms.

torchcomms imports this module by its entry point in the group ``torchcomms.backends``, which registers the class. It
passes a back end in Python neither time-outs of single calls nor batches of messages nor an abort. In 0.3.0 it takes
such a work for ended only once a program has waited for it, so DDP, which waits for its future, would wait for ever.
Collectives therefore end before they return, unless the program asks for more with `BACKGROUND`.
"""

import os
from collections import Counter, deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, ClassVar

import torch
import torchcomms

from r2ccl_core.errors import UsageError
from r2ccl_core.native import keep_forever
from r2ccl_core.pytorch.collectives import How, TensorCollectives, meet, operation
from r2ccl_core.pytorch.work import Running

if not hasattr(torchcomms, "register_backend"):
    raise ImportError("this version of torchcomms takes no back ends in Python; 0.3.0 does")

NAME = "r2ccl"
BACKGROUND = "r2ccl::background"
"""The hint of `new_comm` with which asynchronous collectives run in the background. The program waits for each of them;
DDP and FSDP do not."""
_LIMIT_S = 600.0
"""How long a call may take if neither the program nor torchcomms says."""
_RANK_AND_SIZE = (
    ("TORCHCOMM_RANK", "TORCHCOMM_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
"""Where torchcomms looks for them, in this order."""
_MESSAGE = 0
"""Tag of single messages: torchcomms has none."""
_KEPT = 1000
"""Calls that are begun before a handle is let go; torchcomms drops it as soon as it has been waited for."""
_met: Counter[str] = Counter()
"""How many groups of each name this process has made: a name that is used again must not meet in the old place."""


class R2cclTorchComm(torchcomms.TorchCommBackend):  # type: ignore[misc]  # torchcomms is not typed here
    """What torchcomms calls, with its names; a call that is not asynchronous returns when it is done."""

    def __init__(self) -> None:
        super().__init__()
        # torchcomms never destroys a back end in Python; no binding is to complain about that.
        keep_forever(type(self))
        self._name = ""
        self._calls: TensorCollectives | None = None
        self._background = False

    def init(self, device: Any, name: str, options: Any) -> None:
        """Meets the other ranks. Raises `UsageError` or PyTorch's `DistBackendError`."""
        if torch.device(device).type != "cpu":
            raise UsageError(f"r2ccl moves CPU tensors, not those of {device}; for GPUs use NCCL with our plugin")
        rank, size = _rank_and_size()
        limit_s = _seconds(options.timeout)
        place = f"{NAME}/{name}/{_met[name]}"
        _met[name] += 1
        store = options.store if options.store is not None else _store(rank, limit_s)
        prefixed = torch.distributed.PrefixStore(place, store)
        self._background = options.hints.get(BACKGROUND, "false").lower() in ("1", "true", "yes", "on")
        self._serve(name, TensorCollectives(meet(prefixed, rank, size, limit_s), limit_s))

    def finalize(self) -> None:
        """Leaves the group after all started calls have ended. Idempotent."""
        if self._calls is not None:
            self._calls.release()

    def get_rank(self) -> int:
        """This rank's number in the group."""
        return self._group.comm.rank

    def get_size(self) -> int:
        """How many ranks it has."""
        return self._group.comm.size

    def get_backend_name(self) -> str:
        """``r2ccl``."""
        return NAME

    def get_comm_name(self) -> str:
        """As the program has named it."""
        return self._name

    def set_timeout(self, timeout: timedelta) -> None:
        """How long a call may take from now on."""
        self._group.limit_s = _seconds(timeout)

    def split(self, ranks: Sequence[int], name: str, options: Any) -> "R2cclTorchComm | None":
        """The group of `ranks`, in their order; every rank calls it, with its own group's ranks or none."""
        rank, size = self.get_rank(), self.get_size()
        if len(set(ranks)) < len(ranks) or not all(0 <= other < size for other in ranks):
            raise UsageError(f"ranks {list(ranks)} are not distinct ranks from 0 to {size - 1}")
        if ranks and rank not in ranks:
            raise UsageError(f"rank {rank} is not among ranks {list(ranks)}; give no ranks where it takes no part")
        part = self._group.split(min(ranks) if ranks else None, list(ranks).index(rank) if ranks else 0)
        if part is None:
            return None
        made = R2cclTorchComm()
        made._background = self._background
        made._serve(name, part)
        return made

    def send(self, tensor: Any, to: int, async_op: bool) -> "_Handed | None":
        """To the rank that receives; messages arrive in order."""
        return _handed(self._group.send([tensor], to, _MESSAGE, _how(async_op)), async_op)

    def recv(self, tensor: Any, source: int, async_op: bool) -> "_Handed | None":
        """From the rank that sends."""
        return _handed(self._group.recv([tensor], source, _MESSAGE, _how(async_op)), async_op)

    def broadcast(self, tensor: Any, root: int, async_op: bool) -> "_Handed | None":
        """From `root`."""
        return self._ended(self._group.broadcast([tensor], root, self._how(async_op)), async_op)

    def all_reduce(self, tensor: Any, op: Any, async_op: bool) -> "_Handed | None":
        """In place."""
        return self._ended(self._group.all_reduce([tensor], operation(op.type.name), self._how(async_op)), async_op)

    def reduce(self, tensor: Any, root: int, op: Any, async_op: bool) -> "_Handed | None":
        """In place on `root`."""
        return self._ended(self._group.reduce([tensor], operation(op.type.name), root, self._how(async_op)), async_op)

    def all_gather(self, outputs: Sequence[Any], tensor: Any, async_op: bool) -> "_Handed | None":
        """`outputs[rank]` gets that rank's `tensor`."""
        return self._ended(self._group.all_gather([outputs], [tensor], self._how(async_op)), async_op)

    def all_gather_v(self, outputs: Sequence[Any], tensor: Any, async_op: bool) -> "_Handed | None":
        """The same with tensors of any sizes."""
        return self._ended(self._group.all_gather_unequal(outputs, tensor, self._how(async_op)), async_op)

    def all_gather_single(self, output: Any, source: Any, async_op: bool) -> "_Handed | None":
        """All ranks' tensors in one."""
        return self._ended(self._group.all_gather_single([output], [source], self._how(async_op)), async_op)

    def reduce_scatter(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool) -> "_Handed | None":
        """`output` gets the combination of all ranks' `inputs[rank]`."""
        work = self._group.reduce_scatter([output], [inputs], operation(op.type.name), self._how(async_op))
        return self._ended(work, async_op)

    def reduce_scatter_v(self, output: Any, inputs: Sequence[Any], op: Any, async_op: bool) -> "_Handed | None":
        """The same with tensors of any sizes."""
        work = self._group.reduce_scatter_unequal(output, inputs, operation(op.type.name), self._how(async_op))
        return self._ended(work, async_op)

    def reduce_scatter_single(self, output: Any, source: Any, op: Any, async_op: bool) -> "_Handed | None":
        """This rank's block of the combination of one tensor."""
        work = self._group.reduce_scatter_single([output], [source], operation(op.type.name), self._how(async_op))
        return self._ended(work, async_op)

    def all_to_all_single(self, output: Any, source: Any, async_op: bool) -> "_Handed | None":
        """Equal parts of `source` to every rank."""
        return self._ended(self._group.all_to_all_single(output, source, (), (), self._how(async_op)), async_op)

    def all_to_all_v_single(
        self, output: Any, source: Any, taken: Sequence[int], given: Sequence[int], async_op: bool
    ) -> "_Handed | None":
        """`given[rank]` rows of `source` to every rank, `taken[rank]` from it."""
        work = self._group.all_to_all_single(output, source, list(taken), list(given), self._how(async_op))
        return self._ended(work, async_op)

    def all_to_all(self, outputs: Sequence[Any], inputs: Sequence[Any], async_op: bool) -> "_Handed | None":
        """`inputs[rank]` to that rank, `outputs[rank]` from it; of any sizes."""
        return self._ended(self._group.all_to_all(outputs, inputs, self._how(async_op)), async_op)

    def barrier(self, async_op: bool) -> "_Handed | None":
        """Ends when every rank has called it."""
        return self._ended(self._group.barrier(self._how(async_op)), async_op)

    def scatter(self, output: Any, inputs: Sequence[Any], root: int, async_op: bool) -> "_Handed | None":
        """`output` gets `inputs[rank]` of `root`."""
        return self._ended(self._group.scatter(output, inputs, root, self._how(async_op)), async_op)

    def gather(self, outputs: Sequence[Any], tensor: Any, root: int, async_op: bool) -> "_Handed | None":
        """`outputs[rank]` of `root` gets that rank's `tensor`."""
        parts = outputs if self.get_rank() == root else []
        return self._ended(self._group.gather(parts, tensor, root, self._how(async_op)), async_op)

    @property
    def _group(self) -> TensorCollectives:
        if self._calls is None:
            raise UsageError("this r2ccl back end has met no ranks; make it with torchcomms.new_comm")
        return self._calls

    def _how(self, async_op: bool) -> How:
        return _how(async_op and self._background)

    def _ended(self, work: Running, async_op: bool) -> "_Handed | None":
        return _handed(work, async_op and self._background)

    def _serve(self, name: str, calls: TensorCollectives) -> None:
        self._name, self._calls = name, calls


def _how(async_op: bool) -> How:
    return How(waits=not async_op)


class _Handed:
    """A work in torchcomms's hands, which drops it without holding the interpreter's lock (seen in 0.3.0 under DDP).

    So it is never to drop the last reference: the handles of the last calls are kept here, without their tensors.
    """

    _kept: ClassVar["deque[_Handed]"] = deque()

    def __init__(self, work: Running) -> None:
        self._work = work
        work.result().clear()  # which torchcomms does not ask for
        self._kept.append(self)
        while len(self._kept) > _KEPT and self._kept[0]._work.is_completed():
            self._kept.popleft()

    def wait(self) -> None:
        """Returns when the call has ended; raises its error."""
        self._work.wait()


def _handed(work: Running, async_op: bool) -> _Handed | None:
    if async_op:
        return _Handed(work)
    work.wait()
    return None


def _seconds(timeout: timedelta | None) -> float:
    return timeout.total_seconds() if timeout is not None and timeout > timedelta(0) else _LIMIT_S


def _rank_and_size() -> tuple[int, int]:
    for rank, size in _RANK_AND_SIZE:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    raise UsageError("rank and size are not known; start by torchrun, or set TORCHCOMM_RANK and TORCHCOMM_SIZE")


def _store(rank: int, limit_s: float) -> Any:
    """The one of MASTER_ADDR and MASTER_PORT, which torch.distributed of the same program may use, too."""
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise UsageError("no meeting place; set MASTER_ADDR and MASTER_PORT, or give new_comm a store")
    serves = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return torch.distributed.TCPStore(
        host, int(port), is_master=serves, timeout=timedelta(seconds=limit_s), wait_for_workers=False, multi_tenant=True
    )


torchcomms.register_backend(NAME, R2cclTorchComm)
