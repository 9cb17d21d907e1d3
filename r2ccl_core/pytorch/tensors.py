"""CPU tensors as arrays for the core: the same memory if a tensor is contiguous, else a copy and back."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import torch

from r2ccl_core.errors import UsageError

_AS_BYTES = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "int16",
                 "uint16", "uint32", "uint64", "complex64", "complex128")
    if hasattr(torch, name)
)  # fmt: skip
"""Types that are moved as bytes; they cannot be reduced."""


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
    type. Raises `UsageError`."""
    flat: Any = tensor.detach().reshape(-1)
    array: np.ndarray
    if tensor.dtype is torch.bfloat16:
        array = flat.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    elif tensor.dtype in _AS_BYTES:
        if reduced:
            raise UsageError(f"{tensor.dtype} cannot be reduced; convert it, to torch.float32 say")
        array = flat.view(torch.uint8).numpy()
    else:
        array = flat.numpy()
    return array


@contextmanager
def filled(tensors: Sequence[Any], reduced: bool = False) -> Iterator[list[np.ndarray]]:
    """Arrays for `tensors`; the result is copied at the end into those that are not contiguous."""
    copies = [dense(tensor) for tensor in tensors]
    yield [as_array(copy, reduced) for copy in copies]
    for tensor, copy in zip(tensors, copies, strict=True):
        if copy is not tensor:
            tensor.copy_(copy)
