"""ARCHITECTURE.md stays true: its file map is what the files say of themselves."""

import importlib.util
from pathlib import Path
from types import ModuleType


def load_file_map() -> ModuleType:
    spec = importlib.util.spec_from_file_location("file_map", Path(__file__).parent / "file_map.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_source_file_says_what_it_is_for() -> None:
    file_map = load_file_map()
    silent = [path for path in file_map.source_files() if not file_map.first_sentence(path)]
    assert not silent


def test_the_file_map_is_up_to_date() -> None:
    file_map = load_file_map()
    assert file_map.written() == file_map.file_map(), "run: python tests/file_map.py --write"
