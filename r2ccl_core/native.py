"""Finds and opens what C++ built: the Python module and the libraries for NCCL. No other module does."""

import os
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from types import ModuleType

from r2ccl_core.errors import TransportError, UsageError

PLUGIN = "libnccl-net-r2ccl.so"
PRELOAD = "libr2ccl-preload.so"
NIXL_PLUGIN = "libplugin_R2CCL.so"


def load() -> ModuleType:
    """The native module. Raises `TransportError` with the remedy if it was not built."""
    try:
        return import_module("r2ccl_core._native")
    except ImportError as error:
        raise TransportError(f"the native core cannot be loaded ({error}); build it with: pip install .") from error


def keep_forever(thing: object) -> None:
    """Never destroys `thing`. For a forked child, in which the destructor would wait for threads that do not exist."""
    load().keep_forever(thing)


def plugin_path() -> Path:
    """The net plugin, as an absolute path for ``NCCL_NET_PLUGIN``.

    The directory ``R2CCL_CORE_LIB`` decides if it is set (`UsageError` if the plugin is not there). Otherwise the first
    of these counts: the installed files, beside this module, the newest of a checkout's build folders. Raises
    `TransportError` with the remedy if there is none.
    """
    return _library(PLUGIN, "pip install .")


def preload_path() -> Path:
    """The library in front of NCCL's AllReduce, for ``LD_PRELOAD``; found like the plugin. It is built only where there
    is a CUDA compiler."""
    return _library(PRELOAD, "pip install . where nvcc is on the PATH")


def nixl_plugin_path() -> Path:
    """NIXL's backend R2CCL, to be linked into the folder of ``NIXL_PLUGIN_DIR``; found like the plugin."""
    return _library(NIXL_PLUGIN, "pip install .")


def _library(name: str, remedy: str) -> Path:
    override = os.environ.get("R2CCL_CORE_LIB")
    if override:
        chosen = Path(override) / name
        if not chosen.is_file():
            raise UsageError(f"R2CCL_CORE_LIB={override}: {name} is not there; name the directory that holds it")
        return chosen.resolve()
    package = Path(__file__).resolve().parent
    for candidate in (*_installed("r2ccl", name), package / name, *_built(package.parent / "build", name)):
        if candidate.is_file():
            return candidate.resolve()
    raise TransportError(f"{name} was not built; build it with: {remedy} (or set R2CCL_CORE_LIB to its directory)")


def _installed(distribution: str, name: str) -> Iterator[Path]:
    """The library among the distribution's files: an editable install keeps it apart from the sources."""
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in listed if file.name == name)


def _built(folder: Path, name: str) -> list[Path]:
    """The libraries in a checkout's build folders, newest first."""
    return sorted(folder.glob(f"*/{name}"), key=lambda path: path.stat().st_mtime, reverse=True)
