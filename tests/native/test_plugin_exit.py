"""A process that ends right after its last small messages, which were done because they were copied.

Its NIC is dead by then and nothing has noticed yet: what was copied has to go by the other NIC before the process ends.
``_exit`` ends a process where it stands, so nothing can be promised there, and it shows that the check can fail.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from plugin_build import MARKS, build_plugin, build_program
from rails import Rails, rails

from harness.cluster import rights

LAST = ("plugin_last.c", "plugin_peer.c", "plugin_tables.c")

pytestmark = [
    *MARKS,
    pytest.mark.netns,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="module")
def two() -> Iterator[Rails]:
    with rails(2, 2) as network:
        yield network


@pytest.fixture(scope="module")
def plugin() -> Path:
    return build_plugin("plain")


@pytest.fixture(scope="module")
def last() -> Path:
    return build_program("plain", *LAST)


def end(network: Rails, last: Path, plugin: Path, how: str) -> tuple[int, str]:
    """Exit code and words of the two processes."""
    argv = [str(last), str(plugin), network.place(0), network.place(1), how]
    env = {**os.environ, "R2CC_SOCKET_IFNAME": "eth"}
    with subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        network.drop(0, 0)
        try:
            _, words = process.communicate("go\n", timeout=60)
        finally:
            network.heal(0, 0)
    return process.returncode, words


@pytest.mark.parametrize("how", ["exit", "leave"])
def test_the_last_messages_arrive(two: Rails, last: Path, plugin: Path, how: str) -> None:
    assert end(two, last, plugin, how) == (0, "")


def test_a_process_that_is_cut_off_loses_them(two: Rails, last: Path, plugin: Path) -> None:
    code, words = end(two, last, plugin, "_exit")
    assert code != 0
    assert "side 1, the last messages: message 500 failed" in words
