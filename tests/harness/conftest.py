"""The Pythons that host-side files run under in tests: this one, and the oldest real one that is to be had."""

import shutil
import sys
from pathlib import Path

import pytest


@pytest.fixture(params=["this_python", "old_python"])
def host_python(request: pytest.FixtureRequest) -> str:
    """A Python for hosts. PyPy 7.3 is a 3.9; of 3.8, which is promised, Debian has none (see test_old_python.py)."""
    if request.param == "this_python":
        return sys.executable
    if shutil.which("pypy3") is None:
        pytest.skip("pypy3 is not installed (on Debian: apt install pypy3)")
    return str(Path(__file__).with_name("pypy_as_host.py"))
