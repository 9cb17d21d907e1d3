"""One rank of the ghost test: rank 0 sends without a copy until rank 1 has had enough; rank 1 overwrites each buffer as
soon as its receive has ended, and tells what became of that.

    R2CC_RANK=0 R2CC_SIZE=2 R2CC_ROOT=... python ghost.py STOP WATCH_S

Rank 1 ends when the file STOP is there, and then looks at its buffers for WATCH_S more seconds.
"""

import sys
import time
from pathlib import Path

import numpy as np

from r2ccl_core.runtime.communicator import Communicator

STREAMS, BYTES, ROUNDS = 8, 1 << 19, 6
SENTINEL = 0x5E


def pattern(stream: int, number: int) -> int:
    """The byte that message `number` of a stream is made of; never the sentinel."""
    byte = (31 * stream + 7 * number) % 255
    return byte + (byte >= SENTINEL)


def send(comm: Communicator) -> None:
    arrays = [np.empty(BYTES, np.uint8) for _ in range(STREAMS)]
    memories = [comm.register(array) for array in arrays]
    goes_on, number = np.ones(1, np.uint8), 0
    while goes_on[0]:
        for stream, array in enumerate(arrays):
            array[:] = pattern(stream, number)
        for pending in [comm.isend(array, 1, stream) for stream, array in enumerate(arrays)]:
            pending.wait()
        comm.recv(goes_on, 1, STREAMS)
        number += 1
    for memory in memories:
        memory.close()


def receive(comm: Communicator, stop: Path, watch_s: float) -> tuple[int, int, int]:
    """Rounds, wrong messages, and buffers that were destroyed after their receives had ended."""
    arrays = np.full((ROUNDS, STREAMS, BYTES), SENTINEL, np.uint8)
    memories = [comm.register(array) for array in arrays.reshape(-1, BYTES)]
    goes_on, number, wrong, destroyed = True, 0, 0, 0
    while goes_on:
        row = arrays[number % ROUNDS]
        destroyed += int(np.count_nonzero(np.any(row != SENTINEL, axis=1)))
        for pending in [comm.irecv(array, 0, stream) for stream, array in enumerate(row)]:
            pending.wait()
        for stream, array in enumerate(row):
            wrong += bool(np.any(array != pattern(stream, number)))
            array[:] = SENTINEL
        goes_on, number = not stop.exists(), number + 1
        comm.send(np.array([goes_on], np.uint8), 0, STREAMS)
    deadline = time.monotonic() + watch_s
    found = 0
    while time.monotonic() < deadline and found == 0:
        found = int(np.count_nonzero(np.any(arrays != SENTINEL, axis=2)))
        time.sleep(0.2)
    for memory in memories:
        memory.close()
    return number, wrong, destroyed + found


def main() -> None:
    with Communicator.from_env(timeout_s=200.0) as comm:
        if comm.rank == 0:
            send(comm)
        else:
            rounds, wrong, destroyed = receive(comm, Path(sys.argv[1]), float(sys.argv[2]))
            print(f"rounds {rounds} wrong {wrong} destroyed {destroyed}", flush=True)
        comm.barrier()
        print("replayed", comm.stats()["replayed_chunks"])


main()
