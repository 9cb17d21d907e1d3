"""One rank of a campaign's graphs: AllReduces in CUDA graphs and in NCCL's groups, on CUDA tensors.

Each graph has one AllReduce for every array, one after another. A graph stays until the end, so that those captured
before a loss are launched during it, and after the repair.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from worker import RANK, SIZE, Answer, rank_here, serve


class Graphs:
    """Graphs by the name of the state in which they were captured."""

    def __init__(self) -> None:
        self.rank = rank_here()
        self.graphs: dict[str, Any] = {}
        self.arrays: list[tuple[Any, Any, Any]] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.pop("do")
        if what == "join":
            told: dict[str, Any] = self.rank.join(request["id"])
            return told
        if what == "arrays":
            self.arrays = [self.array(nbytes // 4) for nbytes in request["sizes"]]
            return {}
        works: dict[str, Callable[..., dict[str, Any]]] = {
            "outside": self.outside,
            "group": self.group,
            "capture": self.capture,
            "launch": self.launch,
        }
        return works[what](**request)

    def array(self, count: int) -> tuple[Any, Any, Any]:
        """What this rank sends, where it receives, and what must be there then."""
        rank = self.rank
        expected = rank.filled(count, 0)
        for peer in range(SIZE):
            expected += rank.pattern(count, peer)
        return rank.pattern(count, RANK), rank.filled(count, -1), expected

    def issue(self) -> None:
        """Every array's AllReduce."""
        for send, recv, _ in self.arrays:
            self.rank.operation("all_reduce", send, recv, recv.numel())()

    def timed(self, work: Callable[[], None], times: int) -> dict[str, Any]:
        """Seconds of each, all elements checked after each."""
        seconds, wrong = [], 0
        for _ in range(times):
            for _, recv, _ in self.arrays:
                recv.fill_(-1)
            self.rank.wait()
            begin = time.perf_counter()
            work()
            self.rank.wait()
            seconds.append(time.perf_counter() - begin)
            wrong += sum(self.rank.wrong(recv, expected) for _, recv, expected in self.arrays)
        return {"median_s": statistics.median(seconds), "wrong": wrong, "choice": self.rank.choice()}

    def outside(self, times: int) -> dict[str, Any]:
        """In no graph and no group."""
        return self.timed(self.issue, times)

    def group(self, times: int) -> dict[str, Any]:
        """All in one group of NCCL's."""

        def grouped() -> None:
            self.rank.call("ncclGroupStart")
            self.issue()
            self.rank.call("ncclGroupEnd")

        return self.timed(grouped, times)

    def capture(self, name: str, grouped: bool) -> dict[str, Any]:
        """Captures all into a graph of this name, in a group or one after another."""
        torch = self.rank.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.rank.stream):
            if grouped:
                self.rank.call("ncclGroupStart")
            self.issue()
            if grouped:
                self.rank.call("ncclGroupEnd")
        self.graphs[name] = graph
        return {"choice": self.rank.choice()}

    def launch(self, name: str, times: int) -> dict[str, Any]:
        """Launches a graph that was captured before."""
        return self.timed(self.graphs[name].replay, times)


def start() -> tuple[dict[str, Any], Answer]:
    graphs = Graphs()
    return graphs.rank.hello(), graphs.answer


if __name__ == "__main__":
    serve(start)
