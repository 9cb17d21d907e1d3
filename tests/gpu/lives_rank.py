"""One rank of a check that communicators come and go in one process: made, used, destroyed or aborted, again and again.

Only one is there at a time, so each is the last of its process when it ends, and NCCL unloads the plugin.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from worker import RANK, SIZE, Answer, rank_here, serve


class Lives:
    """The rank's only communicator."""

    def __init__(self) -> None:
        self.rank = rank_here()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.pop("do")
        if what == "key":
            return {} if RANK else {"key": self.rank.unique_id()}
        if what == "join":
            return self.rank.join(request["id"])
        return self.use(**request) if what == "use" else self.end(**request)

    def use(self, nbytes: int) -> dict[str, Any]:
        """One AllReduce, every element checked."""
        rank, count = self.rank, nbytes // 4
        send, recv = rank.pattern(count, RANK), rank.filled(count, -1)
        expected = rank.filled(count, 0)
        for other in range(SIZE):
            expected += rank.pattern(count, other)
        rank.operation("all_reduce", send, recv, count)()
        rank.wait()
        here = {"descriptors": entries("fd"), "threads": entries("task"), "resident": resident()}
        return {"wrong": rank.wrong(recv, expected), **here}

    def end(self, abort: bool, key: str) -> dict[str, Any]:
        """Ends the communicator, once all ranks have used it; makes the next one by `key`, unless that is empty."""
        rank = self.rank
        if abort:
            rank.abort(rank.comm, rank.new_stream())
        else:
            rank.destroy(rank.comm)
        if key:
            rank.comm = rank.communicator(key)
        return {}


def entries(what: str) -> int:
    """How many of them the process has."""
    return len(list(Path("/proc/self", what).iterdir()))


def resident() -> int:
    """The process' memory in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def start() -> tuple[dict[str, Any], Answer]:
    """Ready to join."""
    lives = Lives()
    return lives.rank.hello(), lives.answer


if __name__ == "__main__":
    serve(start)
