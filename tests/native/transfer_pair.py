"""One end of a transfer without end, for tests in namespaces: `transfer_pair.py source|sink`, addresses by stdin.

The sink registers memory and says where; the source writes into it, another pattern each time, and the sink compares
every byte before it lets the next one come. Each says after every round how many there were; the sink also how many
bytes were wrong.
"""

import json
import sys

import numpy as np

from r2ccl_core.transfer import RemoteMemory, TransferEngine

SIZE = 8 << 20
BLOCK = 48 << 10


def pattern(round_: int) -> np.ndarray:
    return np.random.default_rng(round_).integers(0, 256, SIZE, dtype=np.uint8)


def source(spoil: int) -> None:
    engine = TransferEngine("source")
    memory = np.zeros(SIZE, dtype=np.uint8)
    region = engine.register(memory)
    print(json.dumps(engine.address.hex()), flush=True)
    address, key = json.loads(sys.stdin.readline())
    remote = RemoteMemory(key, SIZE)
    peer = engine.connect(bytes.fromhex(address))
    blocks = [slice(at, min(SIZE, at + BLOCK)) for at in range(0, SIZE, BLOCK)]
    round_ = 0
    while True:
        memory[:] = pattern(round_)
        if round_ == spoil:
            memory[SIZE // 3] ^= 1
        peer.write([(region[part], remote[part]) for part in blocks], notify=str(round_).encode()).wait(60)
        engine.wait_for_notification(60)  # the sink has looked
        round_ += 1
        print(json.dumps({"rounds": round_}), flush=True)


def sink() -> None:
    engine = TransferEngine("sink")
    memory = np.zeros(SIZE, dtype=np.uint8)
    region = engine.register(memory)
    print(json.dumps([engine.address.hex(), region.remote.key]), flush=True)
    peer = engine.connect(bytes.fromhex(json.loads(sys.stdin.readline())))
    wrong = 0
    round_ = 0
    while True:
        ((_, text),) = engine.wait_for_notification(60)
        assert int(text) == round_
        wrong += int((memory != pattern(round_)).sum())
        round_ += 1
        print(json.dumps({"rounds": round_, "wrong": wrong}), flush=True)
        peer.notify(b"")


if __name__ == "__main__":
    source(int(sys.argv[2])) if sys.argv[1] == "source" else sink()
