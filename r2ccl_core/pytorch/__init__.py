"""PyTorch's ``init_process_group("r2ccl")``: collectives on CPU tensors over the fault-tolerant transport.

Installing this package is enough: ``import torch`` calls `register` by its entry point in the group ``torch.backends``.
PyTorch itself is the extra ``r2ccl[torch]``.
"""

from typing import Any

NAME = "r2ccl"


def register() -> None:
    """Registers the name with `torch.distributed`, if PyTorch was built with it. Idempotent."""
    import torch.distributed

    if torch.distributed.is_available() and NAME.upper() not in torch.distributed.Backend._plugins:
        torch.distributed.Backend.register_backend(NAME, _create, devices=["cpu"])


def _create(store: Any, rank: int, size: int, timeout: Any) -> Any:
    # Not at the top: the core is loaded when a group is made, not with every import of torch.
    from r2ccl_core.pytorch.process_group import R2cclProcessGroup

    return R2cclProcessGroup(store, rank, size, timeout)
