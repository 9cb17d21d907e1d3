"""The one place that opens the C++ core (`r2ccl_core._native`)."""

from importlib import import_module
from types import ModuleType

from r2ccl_core.errors import TransportError


def load() -> ModuleType:
    """The native module; `TransportError` with the remedy where it was not built."""
    try:
        return import_module("r2ccl_core._native")
    except ImportError as error:
        raise TransportError(f"the native core cannot be loaded ({error}); build it with: pip install .") from error
