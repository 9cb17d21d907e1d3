"""Claims: one sweep has a host's network at a time; who comes second learns who has it, and kill -9 frees it."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.hosts.noop import NoopHost
from harness.sweep.current_cluster import claim
from harness.sweep.owner import BusyError, Owner
from harness.sweep.progress import SilentProgress

OTHER = """
import sys
from harness.hosts.noop import NoopHost
from harness.sweep.current_cluster import claim
host = NoopHost("node7")
host.connect()
claim([host], None)
print("claimed", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    """Another sweep that has this machine."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "claimed\n"
        yield popen
        popen.kill()


@pytest.fixture
def host() -> Iterator[NoopHost]:
    host = NoopHost("node7")
    host.connect()
    yield host
    host.close()


def test_the_second_is_refused_with_the_holder_until_kill_9_frees_it(
    other: subprocess.Popen[str], host: NoopHost
) -> None:
    with pytest.raises(BusyError, match=rf"^node7: process {other.pid} of .* since 2.* has this host; wait for it"):
        claim([host], None)
    other.send_signal(signal.SIGKILL)
    other.wait()
    claim([host], SilentProgress())  # the agent of the killed one may need a moment to leave
    assert host.claim(Owner.this().values()) is None


def test_two_names_of_one_machine_belong_to_one_sweep(host: NoopHost) -> None:
    same = NoopHost("node8")
    same.connect()
    try:
        claim([host, same], None)
    finally:
        same.close()


def test_what_is_given_up_is_free(host: NoopHost) -> None:
    first, second = NoopHost("a"), host
    first.connect()
    try:
        ours = {"who": "a", "pid": 1, "since": "now", "command": "x"}
        assert first.claim(ours) is None
        assert second.claim({**ours, "who": "b"}) == ours
        assert first.claim(None) is None
        assert second.claim({**ours, "who": "b"}) is None
    finally:
        first.close()


def test_a_holder_that_says_nonsense_is_a_holder(host: NoopHost) -> None:
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind("\0r2ccl-claim")
        squatter.listen()
        squatter.settimeout(20)

        def answer() -> None:
            asking, _ = squatter.accept()
            with asking:
                asking.sendall(b"[1]\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(BusyError, match="node7: another sweep has this host"):
            claim([host], None)
        thread.join()
