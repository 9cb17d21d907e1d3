"""A transfer engine that does what its standard input says, a line each, and answers in JSON: `transfer_hand.py NAME`.

First it says its address and its memory's key, and is told those of its peer.
"""

import json
import sys

import numpy as np

from r2ccl_core.errors import R2cclError
from r2ccl_core.transfer import Peer, RemoteMemory, Transfer, TransferEngine

SIZE = 64 << 20  # more than is with the transport at a time


class Hand:
    """An engine, its memory, its peer and its last transfer."""

    def __init__(self, name: str) -> None:
        self.engine = TransferEngine(name)
        self.memory = np.zeros(SIZE, dtype=np.uint8)
        self.region = self.engine.register(self.memory)
        self.peer: Peer | None = None
        self.remote = RemoteMemory(0, SIZE)
        self.transfer: Transfer | None = None

    def meet(self, address: str, key: str) -> None:
        self.peer = self.engine.connect(bytes.fromhex(address))
        self.remote = RemoteMemory(int(key), SIZE)

    def fill(self, value: str) -> None:
        self.memory[:] = int(value)

    def others(self, value: str) -> int:
        """How many bytes are not so."""
        return int((self.memory != int(value)).sum())

    def begin(self, what: str) -> None:
        assert self.peer is not None
        make = self.peer.write if what == "write" else self.peer.read
        self.transfer = make([(self.region[0:SIZE], self.remote[0:SIZE])])

    def cancel(self) -> None:
        assert self.transfer is not None
        self.transfer.cancel()

    def wait(self) -> str:
        assert self.transfer is not None
        return self.transfer.wait(60)

    def unregister(self) -> None:
        self.region.close()


def main() -> None:
    hand = Hand(sys.argv[1])
    print(json.dumps([hand.engine.address.hex(), hand.region.remote.key]), flush=True)
    for line in sys.stdin:
        do, *arguments = line.split()
        try:
            answer = getattr(hand, do)(*arguments)
        except R2cclError as error:
            answer = f"{type(error).__name__}: {error}"
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
