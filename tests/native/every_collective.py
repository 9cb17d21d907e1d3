"""One rank that calls every collective of the Communicator in turn, every element checked, until rank 0 finds STOP.

    R2CC_RANK=0 R2CC_SIZE=2 R2CC_ROOT=... python every_collective.py STOP

All arrays are registered: unless R2CC_ZERO_COPY_BYTES is 0, they are written to and read without a copy.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from r2ccl_core.runtime.communicator import Communicator

MOST = 1 << 18
"""Elements of the largest array: 1 MiB, or a little less, so that every rank has a block of the same size."""
Array = np.ndarray


class Collectives:
    """Two arrays, and what each collective has to make of them."""

    def __init__(self, comm: Communicator) -> None:
        self.comm, self.rank, self.size = comm, comm.rank, comm.size
        self.block = MOST // self.size
        self.count = self.block * self.size
        self.send, self.recv = np.zeros(self.count, np.int32), np.zeros(self.count, np.int32)
        self.memories = [comm.register(array) for array in (self.send, self.recv)]
        self.calls: list[tuple[str, Callable[[int], bool]]] = [
            ("all_reduce", self.all_reduce),
            ("all_reduce in place", self.all_reduce_in_place),
            ("all_gather", self.all_gather),
            ("reduce_scatter", self.reduce_scatter),
            ("broadcast", self.broadcast),
            ("reduce", self.reduce),
            ("send_recv", self.send_recv),
            ("all_to_all", self.all_to_all),
            ("gather", self.gather),
            ("scatter", self.scatter),
        ]

    def of(self, rank: int, number: int) -> Array:
        """What that rank sends in call `number`: small enough for exact sums."""
        return ((np.arange(self.count) * 31 + 1009 * rank + 17 * number) % 65521).astype(np.int32)

    def all_of(self, number: int) -> Array:
        """A row for each rank."""
        return np.array([self.of(rank, number) for rank in range(self.size)])

    def blocks(self, number: int) -> Array:
        """By rank and block."""
        return self.all_of(number).reshape(self.size, self.size, self.block)

    def prepare(self, number: int) -> None:
        self.send[:], self.recv[:] = self.of(self.rank, number), -1

    def all_reduce(self, number: int) -> bool:
        self.comm.all_reduce(self.send, self.recv)
        return bool((self.recv == self.all_of(number).sum(0)).all())

    def all_reduce_in_place(self, number: int) -> bool:
        self.comm.all_reduce(self.send, self.send, "max")
        return bool((self.send == self.all_of(number).max(0)).all())

    def all_gather(self, number: int) -> bool:
        self.comm.all_gather(self.send[: self.block], self.recv)
        return bool((self.recv == self.all_of(number)[:, : self.block].reshape(-1)).all())

    def reduce_scatter(self, number: int) -> bool:
        mine = self.recv[: self.block]
        self.comm.reduce_scatter(self.send, mine)
        return bool((mine == self.blocks(number).sum(0)[self.rank]).all())

    def broadcast(self, number: int) -> bool:
        root = number % self.size
        self.comm.broadcast(self.send, self.recv, root)
        return bool((self.recv == self.of(root, number)).all())

    def reduce(self, number: int) -> bool:
        root = number % self.size
        self.comm.reduce(self.send, self.recv, root=root)
        return bool((self.recv == (self.all_of(number).sum(0) if self.rank == root else -1)).all())

    def send_recv(self, number: int) -> bool:
        self.comm.send_recv(self.send, self.recv)
        return bool((self.recv == self.of((self.rank - 1) % self.size, number)).all())

    def all_to_all(self, number: int) -> bool:
        self.comm.all_to_all(self.send, self.recv)
        return bool((self.recv == self.blocks(number)[:, self.rank].reshape(-1)).all())

    def gather(self, number: int) -> bool:
        root = number % self.size
        self.comm.gather(self.send[: self.block], self.recv, root)
        wanted = self.all_of(number)[:, : self.block].reshape(-1)
        return bool((self.recv == (wanted if self.rank == root else -1)).all())

    def scatter(self, number: int) -> bool:
        root, mine = number % self.size, self.recv[: self.block]
        self.comm.scatter(self.send, mine, root)
        return bool((mine == self.blocks(number)[root, self.rank]).all())


def main() -> None:
    stop, number, wrong = Path(sys.argv[1]), 0, 0
    with Communicator.from_env(timeout_s=200.0) as comm:
        collectives = Collectives(comm)
        goes_on = np.ones(1, np.int32)
        while goes_on[0]:
            for name, call in collectives.calls:
                collectives.prepare(number)
                if not call(number):
                    print(f"wrong: {name}, call {number}", flush=True)
                    wrong += 1
                number += 1
            goes_on[0] = not stop.exists()
            comm.broadcast(goes_on)
        comm.barrier()
        for memory in collectives.memories:
            memory.close()
        print(f"calls {number} wrong {wrong} replayed {comm.stats()['replayed_chunks']}", flush=True)


main()
