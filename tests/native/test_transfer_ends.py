"""What ends in mid-transfer between hosts: cancelled, its memory unregistered at either end, a process that is killed.

Once somebody is told that memory is quiet, the program writes another value into it; none of it may change any more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rails import Rails, rails

from harness.cluster import rights

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]

HAND = Path(__file__).with_name("transfer_hand.py")
SLOW = "200mbit"  # so that what is begun takes more than a second over both rails
MID_S = 0.2
LATE_S = 0.3


class Hand:
    """An engine in a namespace; calling it has it do something."""

    def __init__(self, network: Rails, host: int) -> None:
        env = {**os.environ, "R2CC_SOCKET_IFNAME": "eth"}
        argv = network.inside(host, sys.executable, str(HAND), f"engine{host}")
        self.process = subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address, self.key = self.answer()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def __call__(self, do: str) -> Any:
        assert self.process.stdin is not None
        print(do, file=self.process.stdin, flush=True)
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def hands(network: Rails) -> Iterator[tuple[Hand, Hand]]:
    with_ = (Hand(network, 0), Hand(network, 1))
    try:
        assert with_[0](f"meet {with_[1].address} {with_[1].key}") is None
        yield with_
    finally:
        for hand in with_:
            hand.kill()


def begin(one: Hand, two: Hand, op: str) -> Hand:
    """Begins and lets a part go; where the bytes arrive."""
    source, sink = (one, two) if op == "write" else (two, one)
    source("fill 1")
    sink("fill 2")
    assert one(f"begin {op}") is None
    time.sleep(MID_S)
    return sink


def late_bytes(sink: Hand) -> int:
    """How many still come."""
    sink("fill 3")
    time.sleep(LATE_S)
    return int(sink("others 3"))


@pytest.fixture(scope="module")
def network() -> Iterator[Rails]:
    with rails(2, 2, SLOW) as made:
        yield made


@pytest.mark.parametrize("op", ["write", "read"])
@pytest.mark.parametrize("end", ["cancel", "unregister here", "unregister there", "kill"])
def test_memory_is_quiet_once_somebody_says_so(network: Rails, op: str, end: str) -> None:
    with hands(network) as (one, two):
        sink = begin(one, two, op)
        if end == "cancel":
            one("cancel")
            assert one("wait") == "cancelled"
        elif end == "unregister here":
            assert one("unregister") is None
            if sink is one:
                assert late_bytes(one) == 0  # whatever the transfer says
            assert one("wait") == "UsageError: here, the memory is not registered (any more)"
        elif end == "unregister there":
            assert two("unregister") is None
            if sink is two:
                assert late_bytes(two) == 0
            assert one("wait") == "UsageError: 'engine1' refuses: the memory is not registered (any more)"
        else:
            two.kill()
            assert one("wait").startswith("PeerLostError: the transfer engine 'engine1'")
            sink = one  # the other has no memory any more
        assert late_bytes(sink) == 0


def test_bytes_that_still_come_are_seen(network: Rails) -> None:
    with hands(network) as (one, two):
        assert late_bytes(begin(one, two, "write")) > 0  # nobody has waited
        assert one("wait") == "done"


def test_what_is_left_alone_is_done(network: Rails) -> None:
    with hands(network) as (one, two):
        begin(one, two, "write")
        assert one("wait") == "done"
        assert two("others 1") == 0
