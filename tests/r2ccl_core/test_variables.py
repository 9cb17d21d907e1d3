"""The core's environment variables: every name that a rank reads is known, and limits are those of C++."""

import re
from pathlib import Path

import pytest

import r2ccl_core
from r2ccl_core import native
from r2ccl_core.errors import UsageError
from r2ccl_core.selection import read_settings
from r2ccl_core.variables import refused

ROOT = Path(r2ccl_core.__file__).parent
OF_THE_RANK = {"R2CC_RANK", "R2CC_SIZE", "R2CC_ROOT", "R2CC_SECRET"}  # who the rank is
OF_NCCL = {"R2CC_SCHEDULES", "R2CC_AGREE_EVERY"}  # the preloaded library's


def test_every_variable_that_the_document_and_the_selection_know_is_taken() -> None:
    names = set(re.findall(r"^\| `(R2CC_\w+)`", (ROOT / "PARAMETERS.md").read_text(), re.M))
    names |= set(re.findall(r'"(R2CC_\w+)"', "".join(p.read_text() for p in ROOT.glob("*.py"))))
    assert {"R2CC_MODE", "R2CC_ALGO", "R2CC_SOCKET_IFNAME", "R2CC_STATUS_DIR"} <= names
    assert list(refused(dict.fromkeys(names - OF_THE_RANK - OF_NCCL, ""))) == []


@pytest.mark.parametrize("value", ["0", "600001", "601", "-1", "1.5", "1e3", "²", "x", " 5", "0x10"])
def test_a_value_is_refused_here_just_where_the_core_refuses_it(value: str) -> None:
    told = list(refused({"R2CC_PROBE_MS": value}))
    try:
        native.load().open_net(2, [("lo", "127.0.0.1")], {"R2CC_PROBE_MS": value}).close()
    except UsageError as error:
        assert told == [("R2CC_PROBE_MS", str(error).partition(": ")[2])]
    else:
        assert told == []


def test_what_is_not_ours_is_nobodys_business() -> None:
    assert list(refused({"NCCL_DEBUG": "x", "R2CCL_CORE_LIB": "/x", "PATH": ""})) == []


def test_names_are_told_by_the_nearest_one() -> None:
    assert list(refused({"R2CC_SLICE_BYTE": "1"})) == [
        ("R2CC_SLICE_BYTE", "no such variable; did you mean R2CC_SLICE_BYTES?")
    ]
    assert read_settings(2, {"R2CC_SLICE_BYTE": "1"}).slice_bytes == 256 * 1024  # a rank would not have seen it
