"""Several workers of pytest-xdist on one machine that know nothing of each other.

Each has a network (loopback of its own, so every port is free), a /tmp and a /run of its own: what clusters, namespaces
and left-overs are called or where they listen cannot collide, and `harness clean` sees one worker's clusters only.
A file's tests stay together, since they share clusters and builds; what may take longest begins first.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.cluster import rights

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 0x1000, 0x4000, 1 << 18, 2
APART = (
    "tests/native/test_native.py",
    "tests/native/test_explore.py",
    "tests/gpu/test_campaign.py",
    "tests/reports/test_report.py",
)
"""Files whose tests share little and take long: each test is handed out on its own."""

ROOT = Path(__file__).resolve().parents[1]

_libc = ctypes.CDLL(None, use_errno=True)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """In a worker that may: moves it, its threads and all that it starts to places of its own."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not rights.have():
        return
    _check(_libc.unshare(CLONE_NEWNS | CLONE_NEWNET), "unshare")
    _mount("none", "/", "none", MS_REC | MS_PRIVATE)
    _libc.umount2(b"/run/netns", MNT_DETACH)  # a copy of these mounts would keep others' namespaces alive
    _mount("r2ccl", "/run", "tmpfs", 0)
    with suppress(OSError):  # refused in some containers; then the old one stays, as in harness/cluster/keeper.py
        _mount("r2ccl", "/sys", "sysfs", 0)
    basetemp = Path(config.option.basetemp)
    own = basetemp.with_name(f"tmp-{worker}")
    own.mkdir()
    own.chmod(0o1777)
    for needed in (ROOT, Path(sys.prefix), Path(sys.base_prefix)):  # a checkout may lie in /tmp itself
        if needed.is_relative_to("/tmp") and not (there := own / needed.relative_to("/tmp")).exists():
            there.mkdir(parents=True)
            _mount(str(needed), str(there), "none", MS_BIND | MS_REC)
    _mount(str(own), "/tmp", "none", MS_BIND | MS_REC)
    basetemp.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files in the order of the longest time limit of their slow tests, then of how many of those they have: nothing
    else is known beforehand."""
    slow: dict[str, list[float]] = {}
    for item in items:
        limit = item.get_closest_marker("timeout")
        limits = slow.setdefault(_file(item), [0.0])
        if item.get_closest_marker("slow") is not None:
            limits.append(float(limit.args[0]) if limit else 0.0)
    items.sort(key=lambda item: (-max(slow[_file(item)]), -len(slow[_file(item)])))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """File by file, in the order above."""
    from xdist.scheduler import LoadFileScheduling

    class ByFile(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return nodeid if file in APART else file

    config.option.loadscopereorder = False
    return ByFile(config, log)


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    _check(_libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
