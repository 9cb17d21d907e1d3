"""One rank of a check of what the others hear when a rank is killed: AllReduces until the communicator fails."""

from __future__ import annotations

import time
from typing import Any

from worker import RANK, Answer, rank_here, serve


class Survivor:
    """The rank's communicator, until it fails."""

    def __init__(self) -> None:
        self.rank = rank_here()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.pop("do")
        return dict(self.rank.join(request["id"])) if what == "join" else self.loop(**request)

    def loop(self, nbytes: int) -> dict[str, Any]:
        """AllReduce after AllReduce; when one failed (ns of the monotonic clock), why, and how many had succeeded."""
        rank, count, succeeded = self.rank, nbytes // 4, 0
        issue = rank.operation("all_reduce", rank.pattern(count, RANK), rank.filled(count, -1), count)
        while not (failure := rank.run(issue)):
            succeeded += 1
        return {"failed_ns": time.monotonic_ns(), "failure": failure, "succeeded": succeeded}


def start() -> tuple[dict[str, Any], Answer]:
    """Ready to join."""
    survivor = Survivor()
    return survivor.rank.hello(), survivor.answer


if __name__ == "__main__":
    serve(start)
