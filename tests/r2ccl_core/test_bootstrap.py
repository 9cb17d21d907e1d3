"""Ranks find each other, agree, and all hear the same cause, on loopback."""

import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from r2ccl_core.control import resume
from r2ccl_core.control.bootstrap import Bootstrap
from r2ccl_core.control.rendezvous import Place, free_root, greet, parse_root
from r2ccl_core.errors import MismatchedCallError, PeerLostError, R2cclError, TransportError, UsageError

OTHER_RANK = """
import sys
from r2ccl_core.control import resume
from r2ccl_core.control.bootstrap import Bootstrap
group = Bootstrap(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
group.barrier()
print("joined", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def root() -> str:
    return free_root()


def test_a_free_root_is_none_that_the_kernel_would_give_to_somebody_else() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(10_000 <= parse_root(free_root())[1] < first for _ in range(100))


def address(root: str) -> tuple[str, int]:
    return parse_root(root)


def on_ranks(size: int, root: str, work: Callable[[Bootstrap], Any], **options: Any) -> list[Any]:
    """`work` on every rank, each on a thread; the result or the error of each."""

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: on_rank(rank, size, root, work, **options), range(size)))


def on_rank(
    rank: int, size: int, root: str, work: Callable[[Bootstrap], Any] = Bootstrap.barrier, **options: Any
) -> Any:
    """`work` on one rank; its result, or the error that ended it."""
    try:
        with Bootstrap(rank, size, root, **options) as group:
            return work(group)
    except R2cclError as error:
        return error


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("length", [0, 1, 1_000_000])
def test_an_exchange_gives_every_rank_every_part_in_order(root: str, size: int, length: int) -> None:
    parts = [bytes([rank]) * (length + rank) for rank in range(size)]
    gathered = on_ranks(size, root, lambda group: [group.exchange(parts[group.rank]) for _ in range(3)])
    assert gathered == [[parts] * 3] * size


@pytest.mark.parametrize(("asks", "knows"), [(0, 1), (1, 0), (1, 2)])
def test_a_rank_that_waits_elsewhere_says_why_the_connections_of_others_ended(root: str, asks: int, knows: int) -> None:
    def work(rank: int) -> Any:
        why = (lambda: "NIC eth0 was lost") if rank == knows else str
        return on_rank(rank, 3, root, ask if rank == asks else Bootstrap.barrier, on_ask=why)

    def ask(group: Bootstrap) -> None:
        assert group.ask_cause(60) == "NIC eth0 was lost"
        group.barrier()

    with ThreadPoolExecutor(3) as pool:
        told = list(pool.map(work, range(3)))
    assert [(type(error), str(error)) for error in told] == [(PeerLostError, "NIC eth0 was lost")] * 3


def test_an_agreement_that_is_complete_after_the_end_ends_on_no_rank(root: str) -> None:
    given = threading.Event()

    def work(group: Bootstrap) -> None:
        if group.rank == 1:
            group.abort("enough")
            number = group._give(b"", "barrier")
            time.sleep(0.2)  # it is on its way
            given.set()
        else:
            number = group._give(b"", "barrier")
            assert given.wait(60)
        group._await(number, "barrier")

    assert [str(error) for error in on_ranks(2, root, work)] == ["enough"] * 2


def test_a_reason_holds_nothing_that_a_terminal_would_obey(root: str) -> None:
    """Not even what no peer could be sent: half of a surrogate pair."""

    def work(group: Bootstrap) -> str:
        if group.rank == 1:
            return group.abort("red \x1b[31m\a\tand\r\nlines\x00 \udc80 \u202e caf\u00e9")
        group.barrier()
        return ""

    for rank, told in enumerate(on_ranks(3, root, work)):
        assert str(told) == r"red \x1b[31m\x07 and lines\x00 \udc80 \u202e caf" + "\u00e9", rank


def test_a_barrier_lets_nobody_through_before_the_last(root: str) -> None:
    arrived = []

    def work(group: Bootstrap) -> int:
        arrived.append(group.rank)
        group.barrier()
        return len(arrived)

    assert on_ranks(4, root, work) == [4] * 4


def test_a_rank_may_come_before_rank_0(root: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(Bootstrap, 1, 2, root)
        with pytest.raises(TimeoutError):
            early.result(0.05)
        with Bootstrap(0, 2, root), early.result():
            pass


@pytest.mark.parametrize(
    "nonsense", [b"", b"R", b"R2BS", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b"R2BS" + b"\xff" * 200]
)
def test_strangers_are_refused_and_delay_nobody(root: str, nonsense: bytes) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Bootstrap, 0, 2, root)
        strangers = [_connected(address(root)) for _ in range(20)]
        for stranger in strangers:
            stranger.sendall(nonsense)
        strangers[0].close()
        with Bootstrap(1, 2, root) as second, first.result() as group:
            both = ThreadPoolExecutor(1).submit(group.exchange, b"0")
            assert second.exchange(b"1") == [b"0", b"1"] == both.result()
        for stranger in strangers:
            stranger.close()


def _connected(where: tuple[str, int]) -> socket.socket:
    while True:
        try:
            return socket.create_connection(where)
        except ConnectionRefusedError:
            continue


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ({"rank": 1, "size": 2, "secret": "b"}, "R2CC_SECRET differs"),
        ({"rank": 1, "size": 2, "secret": ""}, "R2CC_SECRET differs"),
        ({"rank": 1, "size": 3, "secret": "a"}, "it counts 3 ranks, rank 0 counts 2; check R2CC_SIZE"),
    ],
)
def test_a_rank_that_does_not_belong_is_told_why(root: str, second: dict[str, Any], text: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Bootstrap, 0, 2, root, secret="a")
        with pytest.raises(TransportError, match=text):
            Bootstrap(second.pop("rank"), second.pop("size"), root, **second)
        with Bootstrap(1, 2, root, secret="a"), first.result():
            pass


def test_a_rank_that_comes_twice_is_refused(root: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(Bootstrap, 0, 3, root), pool.submit(Bootstrap, 1, 3, root)
        second_group = second.result()
        with pytest.raises(TransportError, match="come already"):
            Bootstrap(1, 3, root)
        with Bootstrap(2, 3, root), second_group, first.result():
            pass


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ([(1, 2, "b")], r"rank 1 at 127\.0\.0\.1 \(its R2CC_SECRET differs\)"),
        ([(1, 3, "a")], r"rank 1 at 127\.0\.0\.1 \(it counts 3 ranks, rank 0 counts 2; check R2CC_SIZE\)"),
        ([(rank, 99, "b") for rank in range(1, 9)], r"(rank \d at \S+ \(its R2CC_SECRET differs\),? ?){4} and more"),
    ],
)
def test_rank_0_says_whom_it_refused_and_why(root: str, others: list[tuple[int, int, str]], told: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Bootstrap, 0, 2, root, secret="a", timeout_s=1)
        stranger = _connected(address(root))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        for rank, size, secret in others:
            with pytest.raises(TransportError, match="refuses"):
                Bootstrap(rank, size, root, secret=secret)
        with pytest.raises(TransportError, match=rf"^ranks \[1\] did not reach rank 0 at \S+ in 1 s; refused: {told}$"):
            first.result()
        stranger.close()


def attempts(root: str, ranks: list[tuple[int, int, str]]) -> list[str]:
    """What each of these ranks, all of which come at the same time, has for an error."""

    def join(rank: int, size: int, secret: str) -> str:
        with pytest.raises(R2cclError) as caught, Bootstrap(rank, size, root, secret=secret, timeout_s=60) as group:
            group.barrier("start")
        return str(caught.value)

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(lambda one: join(*one), ranks))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ((2, 4, "b"), "rank 2 at 127.0.0.1 (its R2CC_SECRET differs)"),
        ((2, 5, "a"), "rank 2 at 127.0.0.1 (it counts 5 ranks, rank 0 counts 4; check R2CC_SIZE)"),
        ((1, 4, "a"), "rank 1 at 127.0.0.1 (this rank has come already; check R2CC_RANK)"),
        ((7, 8, "a"), "rank 7 at 127.0.0.1 (it counts 8 ranks, rank 0 counts 4; check R2CC_SIZE)"),
    ],
    ids=["secret", "size", "rank", "both"],
)
def test_every_rank_hears_soon_who_was_refused_and_why(root: str, wrong: tuple[int, int, str], reason: str) -> None:
    begin_s = time.monotonic()
    told = attempts(root, [(0, 4, "a"), (1, 4, "a"), (3, 4, "a"), wrong])
    assert time.monotonic() - begin_s < 20, "they would have waited for 60 s"
    refused = [text for text in told if "refuses" in text]
    assert len(refused) == 1, "the wrong one, or of two that are alike the later one"
    assert reason.partition("(")[2].rstrip(")") in refused[0]
    for text in set(told) - set(refused):
        assert text.startswith("ranks [2] did not reach rank 0 at ") and text.endswith(f"; refused: {reason}"), text


def test_a_refusal_does_not_keep_out_who_is_still_to_come(root: str) -> None:
    """One of two missing ranks is refused; the other comes when it likes, and the right one in the first's place."""
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(Bootstrap, 0, 3, root, secret="a")
        with pytest.raises(TransportError, match="R2CC_SECRET differs"):
            Bootstrap(1, 3, root, secret="b")
        time.sleep(2.5)
        with Bootstrap(1, 3, root, secret="a"), Bootstrap(2, 3, root, secret="a"), first.result():
            pass


def test_ranks_that_came_hear_who_is_missing(root: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Bootstrap, 0, 3, root, timeout_s=1)
        with (
            Bootstrap(1, 3, root) as second,
            pytest.raises(TransportError, match=r"^ranks \[2\] did not reach .* in 1 s$"),
        ):
            second.barrier()
        with pytest.raises(TransportError, match=r"^ranks \[2\] did not"):
            first.result()


def test_rank_0_names_who_came_twice_and_where_another_release_runs(root: str) -> None:
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(Bootstrap, 0, 3, root, timeout_s=1), pool.submit(Bootstrap, 1, 3, root)
        second.result()
        with pytest.raises(TransportError, match="come already"):
            Bootstrap(1, 3, root)
        with _connected(address(root)) as other:
            other.sendall(b"R2BS\0\7" + bytes(4 + 4 + 16 + 32))
            other.recv(4096, socket.MSG_WAITALL)
        with pytest.raises(
            TransportError, match=r"refused: rank 1 at \S+ \(this rank has .*\), 127.0.0.1 \(it runs anot"
        ):
            first.result()


def test_a_rank_does_not_trust_a_root_without_the_secret(root: str) -> None:
    """Somebody who listens at the root's address and welcomes everybody."""
    with socket.create_server(address(root)) as server, ThreadPoolExecutor(1) as pool:
        rank = pool.submit(Bootstrap, 1, 2, root, secret="a")
        stream, _ = server.accept()
        stream.sendall(b"R2BS\0\3" + bytes(16))
        stream.recv(4096)
        stream.sendall(b"R2BS\0\3" + bytes(32 + 120 + 2 + 16))
        with pytest.raises(TransportError, match="does not know R2CC_SECRET"):
            rank.result()
        stream.close()


def test_missing_ranks_are_named(root: str) -> None:
    with pytest.raises(TransportError, match=r"ranks \[1, 2\] did not reach rank 0"):
        Bootstrap(0, 3, root, timeout_s=0.1)
    with pytest.raises(TransportError, match=r"ranks \[1, .* 16\] and 983 more did not reach"):
        Bootstrap(0, 1000, root, timeout_s=0.1)
    with pytest.raises(TransportError, match=r"rank 2 cannot reach rank 0 .*(refused|nobody)"):
        Bootstrap(2, 3, root, timeout_s=0.1)


@pytest.mark.parametrize("text", ["", "host", "host:", ":7000", "host:0", "host:65536", "host:x", "host:\u00b2"])
def test_a_bad_root_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="R2CC_ROOT"):
        Bootstrap(0, 2, text)


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_outside_the_group_is_a_usage_error(rank: int, size: int) -> None:
    with pytest.raises(UsageError, match=r"R2CC_RANK|R2CC_SIZE"):
        Bootstrap(rank, size, "127.0.0.1:7000")


def test_an_address_that_is_not_ours_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"cannot listen at R2CC_ROOT=192\.0\.2\.1:7000"):
        Bootstrap(0, 2, "192.0.2.1:7000")


def test_a_port_that_stays_taken_is_a_usage_error_long_before_ranks_are_missing(root: str) -> None:
    with socket.create_server(parse_root(root)):
        begin_s = time.monotonic()
        with pytest.raises(UsageError, match="give an address of its host and a free port"):
            Bootstrap(0, 2, root, timeout_s=60)
        assert time.monotonic() - begin_s < 30


def test_a_port_of_a_group_that_is_just_ending_is_waited_for(root: str) -> None:
    taken = socket.create_server(parse_root(root))
    threading.Timer(0.3, taken.close).start()
    with pytest.raises(TransportError, match=r"ranks \[1\] did not reach"):
        Bootstrap(0, 2, root, timeout_s=2)


@pytest.mark.parametrize("culprit", [0, 1, 2])
def test_one_cause_on_every_rank(root: str, culprit: int) -> None:
    def work(group: Bootstrap) -> None:
        if group.rank == culprit:
            raise PeerLostError(group.abort("a NIC is lost"))
        group.barrier()

    assert {str(error) for error in on_ranks(3, root, work)} == {"a NIC is lost"}


def test_whoever_is_busy_hears_the_cause_by_callback(root: str) -> None:
    heard = [threading.Event() for _ in range(3)]

    def rank_main(rank: int) -> str | None:
        with Bootstrap(rank, 3, root, on_abort=lambda reason: heard[rank].set()) as group:
            if rank == 1:
                group.abort("enough")
            assert heard[rank].wait(10)
            return group.cause

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(rank_main, range(3))) == ["enough"] * 3


def test_an_exception_on_one_rank_ends_the_others(root: str) -> None:
    def work(group: Bootstrap) -> None:
        if group.rank == 1:
            raise UsageError("not like this")
        group.barrier()

    first, _, third = on_ranks(3, root, work)
    assert str(first) == str(third) == "rank 1: UsageError: not like this"


def test_a_rank_that_dies_while_others_are_still_to_come_is_named(root: str) -> None:
    with socket.create_server(("", 0)) as closed:
        port = closed.getsockname()[1]
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(on_rank, 0, 3, root)
        dead = greet(Place(*address(root), rank=1, size=3, own_port=port), 30)[0].stream
        dead.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # as a killed process: a reset
        dead.close()
        told = pool.submit(on_rank, 2, 3, root).result(), first.result()
    assert all(isinstance(error, PeerLostError) and re.match(r"rank 1 .*", str(error)) for error in told), told


@pytest.mark.parametrize("victim", [0, 2])
def test_a_killed_rank_is_noticed_at_once(root: str, victim: int) -> None:
    argv = [sys.executable, "-c", OTHER_RANK, str(victim), "3", root]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        survivors = [rank for rank in range(3) if rank != victim]

        def rank_main(rank: int) -> str:
            group = Bootstrap(rank, 3, root)
            group.barrier()
            if rank == survivors[0]:
                assert process.stdout is not None and process.stdout.readline() == "joined\n"
                process.send_signal(signal.SIGKILL)
            with pytest.raises(PeerLostError) as caught:
                group.barrier()
            group.close()
            return str(caught.value)

        with ThreadPoolExecutor(2) as pool:
            assert all(text.startswith(f"rank {victim} is gone") for text in pool.map(rank_main, survivors))


def test_ranks_that_lost_step_are_told_so(root: str) -> None:
    errors = on_ranks(3, root, lambda group: group.barrier("close" if group.rank == 2 else "connect ring"))
    assert {str(error) for error in errors} == {
        "rank 0 is at 'connect ring' while rank 2 is at 'close': the ranks lost step"
    }


@pytest.mark.parametrize("leaver", [0, 1])
def test_nobody_waits_for_a_rank_that_has_left(root: str, leaver: int) -> None:
    errors = on_ranks(3, root, lambda group: None if group.rank == leaver else group.barrier())
    assert errors.pop(leaver) is None
    assert all("has left the group" in str(error) for error in errors)


def test_an_agreement_has_an_end(root: str) -> None:
    over = threading.Event()

    def work(group: Bootstrap) -> None:
        if group.rank == 1:
            over.wait(10)
            return
        try:
            group.barrier()
        finally:
            over.set()

    assert "no word from ranks [1] for 0.1 s" in str(on_ranks(2, root, work, patience_s=0.1)[0])


def group_of(size: int, root: str, **options: Any) -> list[Bootstrap]:
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: Bootstrap(rank, size, root, **options), range(size)))


def test_streams_that_are_reset_are_made_again_and_nothing_is_lost(root: str) -> None:
    """From outside, as a firewall that forgets its streams does, while agreements of many sizes go on."""
    groups = group_of(3, root, secret="a")
    links = [list(group._star._links.values()) for group in groups]  # type: ignore[union-attr]
    over = threading.Event()

    def enough() -> bool:
        return sum(link.attempt for link in links[0]) > 20

    def agree(group: Bootstrap) -> int:
        number, last = 0, False
        while not last:
            number += 1
            body = bytes([group.rank]) * (number * 37 % 5000)
            # Rank 0 says which round is the last, after which all leave.
            parts = group.exchange(body + b"!" * (group.rank == 0 and enough()), f"round {number}")
            last = parts[0].endswith(b"!")
            assert [part.rstrip(b"!") for part in parts] == [bytes([r]) * len(body) for r in range(3)]
        return number

    def disturb() -> None:
        turn = 0
        while not over.wait(0.02):
            turn += 1
            stream = links[turn % 3][-(turn % 2)].stream
            if stream is not None:
                with suppress(OSError):  # not connected any more, or yet
                    # The process knows nothing of it; the peer gets a FIN, and what either sends gets a RST.
                    stream.shutdown(socket.SHUT_RDWR)

    with ThreadPoolExecutor(4) as pool:
        disturbing = pool.submit(disturb)
        try:
            counts = {agreeing.result(60) for agreeing in [pool.submit(agree, group) for group in groups]}
        finally:
            over.set()
        disturbing.result()
        assert len(counts) == 1
        list(pool.map(Bootstrap.close, groups))


def _rest(stream: socket.socket) -> bytes:
    """What comes until the other end closes or resets it."""
    try:
        return stream.recv(4096, socket.MSG_WAITALL)
    except ConnectionResetError:
        return b""


def test_a_stranger_at_the_later_port_gets_nowhere(root: str) -> None:
    groups = group_of(2, root, secret="a")
    port = groups[0]._star._redial_listener.listener.getsockname()[1]  # type: ignore[union-attr]
    for nonsense in (b"", b"R2BR", b"R2BR" + b"\0" * 200, b"GET / HTTP/1.1\r\n\r\n" * 9):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            assert stranger.recv(resume.CHALLENGE_BYTES, socket.MSG_WAITALL).startswith(b"R2BR")
            stranger.settimeout(10)
            with suppress(OSError):
                stranger.sendall(nonsense)
                stranger.shutdown(socket.SHUT_WR)
            assert _rest(stranger) == b""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(Bootstrap.barrier, groups))
        assert groups[0].cause is None
        list(pool.map(Bootstrap.close, groups))


@pytest.mark.parametrize("culprit", [0, 1])
def test_an_unexpected_error_of_the_watching_thread_ends_the_group_with_it(root: str, culprit: int) -> None:
    def bug(rank: int, data: bytes) -> None:
        raise ZeroDivisionError("a bug")

    def join(rank: int) -> Bootstrap:
        return Bootstrap(rank, 3, root, on_note=bug) if rank == culprit else Bootstrap(rank, 3, root)

    with ThreadPoolExecutor(3) as pool:
        groups = list(pool.map(join, range(3)))
        if culprit == 0:
            groups[1].note(b"x")
        else:
            groups[0].note_all(b"x")
        assert all(group.await_cause(10) for group in groups)
        for error in pool.map(lambda group: _error_of(group.barrier), groups):
            assert str(error) == f"rank {culprit}: ZeroDivisionError: a bug"
        list(pool.map(Bootstrap.close, groups))


def _error_of(call: Callable[[], object]) -> R2cclError:
    with pytest.raises(R2cclError) as caught:
        call()
    return caught.value


def test_ranks_that_lost_step_hear_it_as_an_error_of_its_own(root: str) -> None:
    errors = on_ranks(3, root, lambda group: group.barrier("this" if group.rank == 2 else "that"))
    assert [type(error) for error in errors] == [MismatchedCallError] * 3
    assert [type(error) for error in on_ranks(3, free_root(), _gives_up)] == [PeerLostError] * 3, "the control"


def _gives_up(group: Bootstrap) -> None:
    if group.rank == 1:
        raise PeerLostError(group.abort("enough"))
    group.barrier()


def test_closing_tells_even_a_peer_whose_stream_just_broke(root: str) -> None:
    first, second = group_of(2, root)
    link = first._star._links[1]  # type: ignore[union-attr]
    assert link.stream is not None
    link.stream.shutdown(socket.SHUT_RDWR)
    second.close()
    with pytest.raises(PeerLostError, match="rank 1 has left the group"):
        first.barrier()
    first.close()
