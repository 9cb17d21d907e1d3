"""Loads Python files by path, because test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(path: Path, *, register: bool = False) -> ModuleType:
    """Runs `path` as a new module; with `register`, `import` finds it under the file's name from then on."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if register:
        sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def importable(path: Path) -> None:
    """Makes `path` importable under the file's name."""
    if path.stem not in sys.modules:
        load(path, register=True)
