"""One rank of a check of NCCL's rules for several communicators in one process; each AllReduce is checked whole."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from worker import NO_COLOR, RANK, SIZE, Answer, rank_here, serve

LAST = SIZE - 1
PAUSE_S = 0.5


class Lane(NamedTuple):
    """A communicator, the ranks in it, and the stream that its collectives are issued on."""

    comm: Any
    members: Sequence[int]
    stream: Any


class Contract:
    """Two communicators of all ranks from the beginning. What is issued on several streams is issued in one order on
    every rank: kernels of two communicators that wait for each other's place on a GPU would wait for ever."""

    def __init__(self) -> None:
        self.rank = rank_here()
        self.cases, self.wrong, self.step = 0, 0, 0

    def hello(self) -> dict[str, Any]:
        """On rank 0 the ids of both."""
        return {} if RANK else {"id": ",".join(self.rank.unique_id() for _ in range(2))}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.pop("do")
        return self.join(request["id"]) if what == "join" else self.check(**request)

    def join(self, keys: str) -> dict[str, Any]:
        """All ranks at once."""
        first, second = keys.split(",")
        told: dict[str, Any] = self.rank.join(first)
        self.first = Lane(self.rank.comm, range(SIZE), self.rank.new_stream())
        self.second = Lane(self.rank.communicator(second), range(SIZE), self.rank.new_stream())
        return told

    def check(self, sizes: Sequence[int], rounds: int) -> dict[str, Any]:
        """Once: no communicator is left. `sizes` in bytes."""
        for number in range(rounds):
            self.say(f"two communicators, round {number}")
            self.each(sizes, self.first, self.second)
        self.halves(sizes)
        self.all_but_the_last(sizes)
        abort_ms = self.abort(sizes[-1])
        self.say("the first communicator after the abort of the second")
        self.each(sizes, self.first)
        self.say("destroys the first communicator")
        self.rank.destroy(self.first.comm)
        return {"cases": self.cases, "wrong": self.wrong, "abort_ms": abort_ms}

    def halves(self, sizes: Sequence[int]) -> None:
        """Even and odd ranks, together with the parent; then the halves go, in the middle of the parent's work."""
        self.say("splits into even and odd ranks")
        half = self.split([rank % 2 for rank in range(SIZE)])
        assert half is not None
        self.each(sizes, half, self.first)
        self.say("destroys its half")
        self.together(sizes[-1], self.first, meanwhile=lambda: self.rank.destroy(half.comm))
        self.each(sizes, self.first)

    def all_but_the_last(self, sizes: Sequence[int]) -> None:
        """The last rank has no color: it gets no communicator."""
        self.say("splits off the last rank")
        most = self.split([NO_COLOR if rank == LAST else 0 for rank in range(SIZE)])
        if (most is None) != (RANK == LAST):
            raise RuntimeError("a split gave a communicator to a rank without a color, or none to one with it")
        self.each(sizes, *([] if most is None else [most]))
        if most is not None:
            self.rank.destroy(most.comm)

    def split(self, colors: Sequence[int]) -> Lane | None:
        """From the first communicator, beside which it works: on the second's stream."""
        comm = self.rank.split(self.first.comm, colors)
        members = [rank for rank, color in enumerate(colors) if color == colors[RANK]]
        return None if comm is None else Lane(comm, members, self.second.stream)

    def abort(self, nbytes: int) -> float:
        """Milliseconds until the second communicator was gone, in the middle of an AllReduce that lacks the last rank.
        It has run one of this size: connections that are still to be made would block who issues it."""
        self.say("aborts the second communicator")
        comm, _, stream = self.second
        count = nbytes // 4
        send, recv = self.rank.pattern(count, RANK), self.rank.filled(count, -1)
        self.rank.wait()
        self.together(nbytes, self.first)  # a barrier: the last rank had nothing to do before
        if RANK != LAST:
            self.rank.operation("all_reduce", send, recv, count, comm, stream)()
        time.sleep(PAUSE_S / 2)
        # Long before the first rank aborts, which ends it on others, too, where these are told.
        if RANK != LAST and not self.rank.busy(stream):
            raise RuntimeError("an AllReduce ended without the last rank")
        time.sleep(PAUSE_S / 2)
        begin = time.perf_counter()
        self.rank.abort(comm, stream)
        return (time.perf_counter() - begin) * 1e3

    def each(self, sizes: Sequence[int], *lanes: Lane) -> None:
        for nbytes in sizes:
            self.together(nbytes, *lanes)

    def together(self, nbytes: int, *lanes: Lane, meanwhile: Callable[[], None] = lambda: None) -> None:
        """An AllReduce on each; all are issued before one is waited for. All ranks call this, with or without lanes."""
        rank, count = self.rank, nbytes // 4
        self.step += 1
        arrays = []
        for index, lane in enumerate(lanes):
            # Nobody may take for its own what another communicator, or an earlier AllReduce, left or sent.
            salt = self.step + 31 * index
            expected = rank.filled(count, 0)
            for peer in lane.members:
                expected += rank.pattern(count, peer + salt)
            arrays.append((rank.pattern(count, RANK + salt), rank.filled(count, -1), expected))
        rank.wait()
        for lane, (send, recv, _) in zip(lanes, arrays, strict=True):
            rank.operation("all_reduce", send, recv, count, lane.comm, lane.stream)()
        meanwhile()
        for lane in lanes:
            rank.wait(lane.stream)
        for _, recv, expected in arrays:
            self.wrong += rank.wrong(recv, expected)
            self.cases += 1

    @staticmethod
    def say(text: str) -> None:
        """In the log, whose end is told when a rank hangs."""
        print(f"contract: {text}", file=sys.stderr, flush=True)


def start() -> tuple[dict[str, Any], Answer]:
    """Ready to join."""
    contract = Contract()
    return contract.hello(), contract.answer


if __name__ == "__main__":
    serve(start)
