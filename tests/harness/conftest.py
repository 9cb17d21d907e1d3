"""The hosts of tests without SSH, and the Pythons that they run under: this one, and the oldest one available."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripts import importable

from harness.hosts.base import Nic
from harness.hosts.noop import NoopHost

importable(Path(__file__).with_name("link_facts.py"))


@pytest.fixture(params=["this_python", "old_python"])
def host_python(request: pytest.FixtureRequest) -> str:
    """A Python for hosts. PyPy 7.3 is a 3.9; Debian has no 3.8, which is also supported (see test_old_python.py)."""
    if request.param == "this_python":
        return sys.executable
    if shutil.which("pypy3") is None:
        pytest.skip("pypy3 is not installed (on Debian: apt install pypy3)")
    return str(Path(__file__).with_name("pypy_as_host.py"))


@pytest.fixture
def host(host_python: str) -> Iterator[NoopHost]:
    """A connected host on this machine; its first NIC exists, its second does not."""
    host = NoopHost("host7", nics=[Nic("lo", 0, "127.0.0.1"), Nic("absent0", 1, "192.0.2.1")], python=host_python)
    host.connect()
    yield host
    host.close()
