"""CPU tensors as arrays for the core: the same memory if a tensor is contiguous, else a copy and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import torch

from r2ccl_core.errors import UsageError
from r2ccl_core.runtime.buffers import MOVED

_MOVED = tuple(getattr(torch, name) for name in MOVED if hasattr(torch, name))
"""Types that are only moved; they cannot be reduced."""
_TWINS = {
    getattr(torch, name): np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", *MOVED)
    if hasattr(torch, name) and hasattr(ml_dtypes, name)
}
"""Types that NumPy itself does not have."""


def dense(tensor: Any) -> Any:
    """The tensor itself if its memory is what it says, in one piece; else a copy of which that is true. Raises
    `UsageError`."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_quantized:
        kind = tensor.device.type if tensor.device.type != "cpu" else str(tensor.layout)
        kind = "quantized" if tensor.is_quantized else kind
        raise UsageError(
            f"r2ccl moves dense CPU tensors, not {kind} ones; for GPUs use NCCL with this project's plugin"
        )
    return tensor.resolve_conj().resolve_neg().contiguous()


def as_array(tensor: Any, reduced: bool = False) -> np.ndarray:
    """The memory of a tensor that is `dense`, flat. `reduced`: elements will be combined, so the core must support the
    type. The array has the tensor's own type, by which ranks that differ are told. Raises `UsageError`."""
    if reduced and tensor.dtype in _MOVED:
        raise UsageError(f"{tensor.dtype} cannot be reduced; {_remedy(tensor)}")
    flat: Any = tensor.detach().reshape(-1)
    array: np.ndarray
    if (twin := _TWINS.get(tensor.dtype)) is not None:
        array = flat.view(torch.uint8).numpy().view(twin)
        return array
    try:
        array = flat.numpy()
    except TypeError:
        raise UsageError(f"r2ccl does not move {tensor.dtype}; convert it, or give its memory as torch.uint8") from None
    return array


def _remedy(tensor: Any) -> str:
    if tensor.is_complex():
        return "sum torch.view_as_real of it, or convert it"
    return f"convert it, to {torch.float32 if tensor.is_floating_point() else torch.int64} say"


@contextmanager
def filled(tensors: Sequence[Any], reduced: bool = False) -> Iterator[list[np.ndarray]]:
    """Arrays for `tensors`; the result is copied at the end into those that are not contiguous."""
    copies = [dense(tensor) for tensor in tensors]
    yield [as_array(copy, reduced) for copy in copies]
    for tensor, copy in zip(tensors, copies, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)
