"""The core's environment variables: every name that a rank reads is known, and limits are those of C++."""

import re
from pathlib import Path

import pytest

import r2ccl_core
from r2ccl_core import native
from r2ccl_core.errors import UsageError
from r2ccl_core.host.variables import OF_THE_PRELOADED, PLACE, refused, warn_of_unknown
from r2ccl_core.planning.selection import read_policy

ROOT = Path(r2ccl_core.__file__).parent


def test_every_variable_that_the_document_and_the_code_know_is_taken_or_has_its_own_answer() -> None:
    names = set(re.findall(r"^\| `(R2CC_\w+)`", (ROOT / "PARAMETERS.md").read_text(), re.M))
    sources = [path for path in ROOT.rglob("*.py") if path.name != "variables.py"]
    names |= set(re.findall(r"\b(R2CC_[A-Z0-9_]+)\b", "".join(path.read_text() for path in sources)))
    assert {"R2CC_MODE", "R2CC_ALGO", "R2CC_SOCKET_IFNAME", "R2CC_STATUS_DIR", "R2CC_SECRET", "R2CC_RANK"} <= names
    told = dict(refused(dict.fromkeys(names, "")))
    assert told.keys() == {*PLACE, *OF_THE_PRELOADED}
    assert not any("no such variable" in answer for answer in told.values())


@pytest.mark.parametrize(
    "value",
    ["", "0", "600001", "600000", "601", "007", "-0", "-1", "1.5", "1e3", "²", "x", " 5", "0x10", "+5", "-", "--5"],
)
def test_a_value_is_refused_here_just_where_the_core_refuses_it(value: str) -> None:
    told = list(refused({"R2CC_LOCATE_MS": value}))
    try:
        # An empty one in the environment counts as none.
        native.load().open_net(2, [("lo", "127.0.0.1")], {"R2CC_LOCATE_MS": value} if value else {}).close()
    except UsageError as error:
        assert told == [("R2CC_LOCATE_MS", str(error).partition(": ")[2])]
    else:
        assert told == []


def test_numbers_of_any_length_are_one_line() -> None:
    assert [name for name, _ in refused({"R2CC_LOCATE_MS": "9" * 5000})] == ["R2CC_LOCATE_MS"]
    assert list(refused({"R2CC_LOCATE_MS": "0" * 5000 + "7"})) == []


def test_a_mode_that_the_selection_knows_is_taken() -> None:
    assert list(refused({"R2CC_MODE": "3"})) == []


def test_what_is_not_ours_needs_no_core_and_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "load", lambda: pytest.fail("the core was loaded"))
    assert list(refused({"NCCL_DEBUG": "x", "R2CCL_CORE_LIB": "/x", "PATH": ""})) == []


def test_names_are_told_by_the_nearest_one() -> None:
    [(name, answer)] = refused({"R2CC_SLICE_BYTE": "1"})
    assert (name, answer) == ("R2CC_SLICE_BYTE", "no such variable; did you mean R2CC_SLICE_BYTES?")
    assert read_policy(2, {"R2CC_SLICE_BYTE": "1"}).slice_bytes == 256 * 1024  # a rank would not have seen it


@pytest.mark.parametrize(
    ("name", "meant"), [("r2cc_mode", "R2CC_MODE"), ("R2CCL_CORELIB", "R2CCL_CORE_LIB"), ("R2CC_MODES", "R2CC_MODE")]
)
def test_slips_are_told_at_the_line_of_the_program(name: str, meant: str) -> None:
    with pytest.warns(RuntimeWarning, match=rf"{name}: no such variable; did you mean {meant}\?") as told:
        warn_of_unknown({name: "1", "R2CCL_KILLS": "50", "R2CC_MODE": "2", "PATH": "/bin"})
    assert len(told) == 1 and told[0].filename == __file__
