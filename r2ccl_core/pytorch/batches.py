"""Passes the messages of `batch_isend_irecv` to NCCL as one group.

Some versions of PyTorch before 2.14 do so only for groups whose type is `ProcessGroup` itself. One by one, as they pass
them to a group in Python, two ranks that both send first wait for each other for ever.
"""

import inspect
from functools import cache, wraps
from typing import Any

import torch
from torch.distributed import P2POp, distributed_c10d

_FIRST_THAT_ASKS = (2, 14)
"""From this version on PyTorch asks the group whether it takes batches as one."""
_CONDITION = "type(group) is ProcessGroup"


def keep_together() -> None:
    """Replaces `batch_isend_irecv`; for groups of others, and for CPU tensors, it is what it was. Idempotent."""
    given = torch.distributed.batch_isend_irecv
    if tuple(map(int, torch.__version__.split(".")[:2])) >= _FIRST_THAT_ASKS or hasattr(given, "by_r2ccl"):
        return

    @cache
    def passes_one_by_one() -> bool:
        return _CONDITION in inspect.getsource(given)

    @wraps(given)
    def batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
        if not (p2p_op_list and all(isinstance(op, P2POp) for op in p2p_op_list)):
            return list(given(p2p_op_list))  # which refuses it
        group = p2p_op_list[0].group or distributed_c10d._get_default_group()
        device = p2p_op_list[0].tensor.device
        is_whole = device.type != "cuda" or not getattr(group, "keeps_batches_together", False)
        if is_whole or not passes_one_by_one():
            return list(given(p2p_op_list))
        with distributed_c10d._coalescing_manager(group, device, async_ops=True) as together:
            given(p2p_op_list)
        return list(together.works)

    batch_isend_irecv.by_r2ccl = True  # type: ignore[attr-defined]
    torch.distributed.batch_isend_irecv = distributed_c10d.batch_isend_irecv = batch_isend_irecv
