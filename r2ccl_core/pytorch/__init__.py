"""PyTorch's ``init_process_group("r2ccl")``: collectives on CPU tensors over the fault-tolerant transport, and on CUDA
tensors over NCCL, for which this project has a net plugin.

Installing this package is enough: ``import torch`` calls `register` by its entry point in the group ``torch.backends``.
PyTorch itself is the extra ``r2ccl[torch]``.
"""

from typing import Any

NAME = "r2ccl"


def register() -> None:
    """Registers the name with `torch.distributed`, if PyTorch was built with it. Idempotent."""
    import torch.distributed

    if torch.distributed.is_available() and NAME.upper() not in torch.distributed.Backend._plugins:
        from r2ccl_core.pytorch.batches import keep_together

        torch.distributed.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])
        keep_together()


def _create(asked: Any, options: Any = None) -> Any:
    # Not at the top: the core is loaded when a group is made, not with every import of torch.
    from r2ccl_core.pytorch.process_group import R2cclProcessGroup

    return R2cclProcessGroup(asked, options)
