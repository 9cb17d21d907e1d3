"""Finding the net plugin: an override decides, then the installed files, then what a checkout has built."""

import os
from pathlib import Path

import pytest

from r2ccl_core import native
from r2ccl_core.errors import TransportError, UsageError


@pytest.fixture(autouse=True)
def no_override(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("R2CCL_CORE_LIB", raising=False)


def plugin_in(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / native.PLUGIN).write_bytes(b"")
    return folder / native.PLUGIN


def test_the_installed_plugin_is_found() -> None:
    try:
        found = native.plugin_path()
    except TransportError as error:
        pytest.skip(str(error))
    assert found.is_absolute()
    assert found.name == native.PLUGIN
    assert found.read_bytes()[:4] == b"\x7fELF"


def test_the_override_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = plugin_in(tmp_path)
    monkeypatch.setenv("R2CCL_CORE_LIB", str(tmp_path))
    assert native.plugin_path() == plugin.resolve()


def test_an_empty_override_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2CCL_CORE_LIB", "")
    try:
        assert native.plugin_path().name == native.PLUGIN
    except TransportError as error:
        pytest.skip(str(error))


def test_an_override_without_the_plugin_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2CCL_CORE_LIB", str(tmp_path))
    with pytest.raises(UsageError, match=r"^R2CCL_CORE_LIB=.*: libnccl-net-r2ccl\.so is not there; name the directory"):
        native.plugin_path()


def test_without_an_install_the_newest_build_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "r2ccl_core" / "native.py"))
    monkeypatch.setattr(native, "_installed", lambda *_: [])
    old, new = plugin_in(tmp_path / "build" / "old"), plugin_in(tmp_path / "build" / "new")
    os.utime(old, (1, 1))
    assert native.plugin_path() == new
    beside = plugin_in(tmp_path / "r2ccl_core")
    assert native.plugin_path() == beside


def test_nothing_built_is_one_line_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "__file__", str(tmp_path / "r2ccl_core" / "native.py"))
    monkeypatch.setattr(native, "_installed", lambda *_: [])
    with pytest.raises(
        TransportError, match=r"^libnccl-net-r2ccl\.so was not built; build it with: pip install \."
    ) as error:
        native.plugin_path()
    assert "\n" not in str(error.value)


def test_a_distribution_that_is_not_installed_has_no_files() -> None:
    assert list(native._installed("r2ccl-that-is-not-installed", native.PLUGIN)) == []
