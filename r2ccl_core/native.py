"""The one place that opens the C++ core (`r2ccl_core._native`)."""

from types import ModuleType

from r2ccl_core.errors import TransportError


def load() -> ModuleType:
    """The native module; `TransportError` with the remedy where it was not built."""
    try:
        from r2ccl_core import _native
    except ImportError as error:
        raise TransportError(f"the native core cannot be loaded ({error}); run: pip install .") from error
    return _native  # type: ignore[no-any-return]
