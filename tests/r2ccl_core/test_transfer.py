"""Transfers between engines over loopback: bytes, refusals, the end of memory and of peers."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from r2ccl_core.errors import PeerLostError, TransportError, UsageError
from r2ccl_core.transfer import RemoteMemory, Span, TransferEngine

BLOCK = 10_007  # bytes, so that nothing is aligned


def nics(host: int) -> list[tuple[str, str]]:
    return [("lo", f"127.{host}.7.1"), ("lo", f"127.{host}.7.2")]


def random_bytes(size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


@contextmanager
def engines(count: int) -> Iterator[list[TransferEngine]]:
    made = [TransferEngine(f"engine {host}", nics=nics(1 + host)) for host in range(count)]
    try:
        yield made
    finally:
        for engine in made:
            engine.close()


OTHER = """
import json, sys
import numpy as np
from r2ccl_core.errors import R2cclError
from r2ccl_core.transfer import RemoteMemory, TransferEngine
engine = TransferEngine("other", nics=[("lo", "127.9.7.1"), ("lo", "127.9.7.2")])
memory = np.full(int(sys.argv[1]), 7, dtype=np.uint8)
region = engine.register(memory)
print(json.dumps([engine.address.hex(), region.remote.key]), flush=True)
address, key, size = json.loads(sys.stdin.readline())
peer = engine.connect(bytes.fromhex(address))
try:
    while True:
        peer.write([(region[0:size], RemoteMemory(key, size)[0:size])], notify=b"again").wait(60)
except R2cclError as error:
    print(type(error).__name__, error, flush=True)
sys.stdin.readline()
"""


class Other:
    """An engine in a process of its own, which writes again and again what it was given a place for."""

    def __init__(self, size: int) -> None:
        argv = [sys.executable, "-c", OTHER, str(size)]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        address, key = json.loads(self.line())
        self.address, self.memory = bytes.fromhex(address), RemoteMemory(key, size)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, *where: Any) -> None:
        assert self.process.stdin is not None
        print(json.dumps(where), file=self.process.stdin, flush=True)


@contextmanager
def other(size: int) -> Iterator[Other]:
    made = Other(size)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


@pytest.mark.parametrize("reads", [False, True], ids=["write", "read"])
def test_scattered_blocks_land_where_they_belong_and_nowhere_else(reads: bool) -> None:
    with engines(2) as (here, there):
        count = 300
        source, sink = random_bytes(count * BLOCK, 1), np.zeros(2 * count * BLOCK, dtype=np.uint8)
        own = here.register(sink if reads else source)
        remote = there.register(source if reads else sink).remote
        peer = here.connect(there.address)
        places = np.random.default_rng(2).permutation(2 * count)[:count].tolist()
        expected = np.zeros_like(sink)
        spans = []
        for number, place in enumerate(places):
            expected[place * BLOCK : (place + 1) * BLOCK] = source[number * BLOCK : (number + 1) * BLOCK]
            from_ = slice(number * BLOCK, (number + 1) * BLOCK)
            to = slice(place * BLOCK, (place + 1) * BLOCK)
            spans.append((own[to], remote[from_]) if reads else (own[from_], remote[to]))
        begin = peer.read if reads else peer.write
        assert begin(spans, notify=b"done").wait(30) == "done"
        np.testing.assert_array_equal(sink, expected)
        assert there.wait_for_notification(10) == [("engine 0", b"done")]
        sink[places[7] * BLOCK] ^= 1  # the comparison notices a byte
        assert not np.array_equal(sink, expected)


def test_a_notification_comes_after_the_last_byte() -> None:
    with engines(2) as (here, there):
        source, sink = random_bytes(1 << 20, 3), np.zeros(1 << 20, dtype=np.uint8)
        own, remote = here.register(source), there.register(sink).remote
        peer = here.connect(there.address)
        for number in range(20):
            source[:] = number + 1
            transfer = peer.write([(own[:], remote[:])], notify=bytes(str(number), "ascii") * 3000)
            ((name, text),) = there.wait_for_notification(10)
            assert (name, text) == ("engine 0", bytes(str(number), "ascii") * 3000)
            assert (sink == number + 1).all()
            assert transfer.wait(10) == "done"
        peer.notify(b"")
        assert there.wait_for_notification(10) == [("engine 0", b"")]


def test_many_at_once_between_all_of_three() -> None:
    with engines(3) as group:
        size, parts = 1 << 20, 16
        sources = [random_bytes(2 * size, seed) for seed in range(3)]
        sinks = [np.zeros(3 * size, dtype=np.uint8) for _ in range(3)]
        own = [engine.register(source) for engine, source in zip(group, sources, strict=True)]
        remote = [engine.register(sink).remote for engine, sink in zip(group, sinks, strict=True)]
        transfers = []
        for here in range(3):
            for there in {0, 1, 2} - {here}:
                peer = group[here].connect(group[there].address)
                for part in range(parts):
                    step = size // parts
                    at = part * step
                    to = here * size + at
                    transfers.append(peer.write([(own[here][at : at + step], remote[there][to : to + step])]))
        assert {transfer.wait(30) for transfer in transfers} == {"done"}
        for there in range(3):
            for here in {0, 1, 2} - {there}:
                np.testing.assert_array_equal(sinks[there][here * size : (here + 1) * size], sources[here][:size])
            assert not sinks[there][there * size : (there + 1) * size].any()


def test_what_is_not_registered_is_refused_and_stays_as_it_is() -> None:
    with engines(2) as (here, there):
        sink = np.zeros(1000, dtype=np.uint8)
        own, region = here.register(np.ones(5000, dtype=np.uint8)), there.register(sink)
        key = region.remote.key
        peer = here.connect(there.address)
        beyond = "'engine 1' refuses: bytes 600 to 600 \\+ 401 are not within the registered 1000"
        for begin in (peer.write, peer.read):
            with pytest.raises(UsageError, match=beyond):
                begin([(own[0:401], Span(key, 600, 401))]).wait(10)
            with pytest.raises(UsageError, match="the memory is not registered"):
                begin([(own[0:8], Span(key ^ 1, 0, 8))]).wait(10)
            with pytest.raises(UsageError, match="range 1, here: bytes 4999 to 4999 \\+ 2"):
                begin([(own[0:8], region[0:8]), (Span(own.remote.key, 4999, 2), region[0:2])])
            with pytest.raises(UsageError, match="pair 0: 8 bytes here, 9 at the peer"):
                begin([(own[0:8], region[0:9])])
        for asked, start, stop in (
            ("0:1001", 0, 1001), ("1001:", 1001, None), ("-1001:", -1001, None), ("0:-1001", 0, -1001)
        ):  # fmt: skip
            with pytest.raises(UsageError, match=f"bytes {asked} are not within the registered 1000$"):
                region[start:stop]
        with pytest.raises(UsageError, match="a step of 2: a span is of adjacent bytes"):
            region[0:8:2]
        assert region[1000:].nbytes == 0
        assert not sink.any()
        assert peer.write([(own[0:1000], region[:])]).wait(10) == "done"  # the connection is well
        assert (sink == 1).all()
        region.close()
        with pytest.raises(UsageError, match="the memory is not registered"):
            peer.write([(own[0:8], region[0:8])]).wait(10)


def test_bad_input_is_one_line() -> None:
    with engines(1) as (engine,):
        with pytest.raises(UsageError, match="no address of a transfer engine"):
            engine.connect(b"R2KV\x02 and then nothing")
        with pytest.raises(UsageError, match="contiguous and writeable"):
            engine.register(b"constant")
        with pytest.raises(UsageError, match="at least one byte"):
            engine.register(bytearray())
    with pytest.raises(UsageError, match="1 to 256 bytes"):
        TransferEngine("", nics=nics(1))
    with pytest.raises(UsageError, match="closed"):
        engine.connect(engine.address)


def test_memory_that_is_deregistered_in_the_middle_is_quiet_and_the_writer_hears_of_it() -> None:
    size = 8 << 20
    with other(size) as writer, engines(1) as (engine,):
        sink = np.zeros(size, dtype=np.uint8)
        region = engine.register(sink)
        writer.begin(engine.address.hex(), region.remote.key, size)
        engine.wait_for_notification(30)
        region.close()
        sink[:] = 9
        assert writer.line() == "UsageError 'other' refuses: the memory is not registered (any more)".replace(
            "'other'", "'engine 0'"
        )
        assert (sink == 9).all()


def test_a_region_may_be_closed_without_a_limit_but_not_with_none() -> None:
    with engines(1) as (engine,):
        region = engine.register(np.zeros(8, dtype=np.uint8))
        with pytest.raises(UsageError, match="a time-out is a number"):
            region.close(timeout_s=math.nan)
        region.close(timeout_s=math.inf)


def test_a_cancelled_transfer_is_pending_until_its_memory_is_quiet() -> None:
    """The peer stands still, so the transfer cannot end; it ends as cancelled when the peer goes on."""
    size = 64 << 20
    with other(size) as peer_process, engines(1) as (engine,):
        region = engine.register(np.zeros(size, dtype=np.uint8))
        peer = engine.connect(peer_process.address)
        os.kill(peer_process.process.pid, signal.SIGSTOP)
        transfer = peer.write([(region[:], peer_process.memory[:])])
        with pytest.raises(TransportError, match=r"has not ended after 0\.2 s"):
            transfer.wait(0.2)
        transfer.cancel()
        assert transfer.state == "pending"
        os.kill(peer_process.process.pid, signal.SIGCONT)
        assert transfer.wait(60) == "cancelled"
        region.close()


def test_deregistration_does_not_wait_for_a_peer_that_stands_still() -> None:
    size = 64 << 20
    with other(size) as peer_process, engines(1) as (engine,):
        region = engine.register(np.zeros(size, dtype=np.uint8))
        peer = engine.connect(peer_process.address)
        os.kill(peer_process.process.pid, signal.SIGSTOP)
        transfer = peer.write([(region[:], peer_process.memory[:])])
        region.close(timeout_s=0.2)
        with pytest.raises((PeerLostError, UsageError), match=r"deregistered|not registered"):
            transfer.wait(10)


def test_a_peer_that_dies_is_an_error_within_the_limit_and_another_takes_its_place() -> None:
    size = 64 << 20
    with engines(1) as (engine,):
        region = engine.register(np.zeros(size, dtype=np.uint8))
        with other(size) as victim:
            peer = engine.connect(victim.address)
            os.kill(victim.process.pid, signal.SIGSTOP)
            transfer = peer.write([(region[:], victim.memory[:])])
            victim.process.kill()
            with pytest.raises(PeerLostError, match="the transfer engine 'other'"):
                transfer.wait(30)
            with pytest.raises(PeerLostError):
                peer.write([(region[:], victim.memory[:])])
        with other(1000) as next_one:
            peer = engine.connect(next_one.address)
            assert peer.read([(region[0:1000], next_one.memory[:])]).wait(30) == "done"


def test_who_disconnects_may_connect_again() -> None:
    with engines(2) as (here, there):
        own, remote = here.register(np.ones(100, dtype=np.uint8)), there.register(np.zeros(100, dtype=np.uint8)).remote
        for _ in range(3):
            peer = here.connect(there.address)
            assert peer.write([(own[:], remote[:])]).wait(30) == "done"
            peer.close()


def test_what_was_said_before_closing_arrives() -> None:
    with engines(2) as (one, other):
        peer = one.connect(other.address)
        for number in range(100):
            peer.notify(b"%d" % number)
        assert one.close(timeout_s=60) == 0
        with pytest.raises(TransportError, match="closed"):
            peer.notify(b"too late")
        found: list[tuple[str, bytes]] = []
        while len(found) < 100:
            found += other.wait_for_notification(60)
        assert [int(text) for _, text in found] == list(range(100))
