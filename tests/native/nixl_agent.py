"""One agent of NIXL that does what its standard input says, a JSON object a line, and answers likewise.

Runs by itself on the interpreter that has NIXL's wheel, in a namespace: `python nixl_agent.py NAME BACKEND BYTES`.
"""

import ctypes
import json
import sys
import time
from typing import Any

import numpy as np

_LOOK_S = 20e-6
_PR_SET_TIMERSLACK = 29


def pattern(seed: int, size: int) -> np.ndarray:
    """Bytes of which none is where another seed has it, by and large."""
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


class Agent:
    """Memory of `size` bytes and what can be done with it."""

    def __init__(self, name: str, backend: str, size: int) -> None:
        from nixl_cu12 import nixl_agent, nixl_agent_config

        self.memory = np.zeros(size, dtype=np.uint8)
        self.nixl = nixl_agent(name, nixl_agent_config(backends=[backend]))
        self.registered = self.nixl.register_memory([(self.memory.ctypes.data, size, 0, "")], "DRAM")
        self.handle: Any = None

    def about(self) -> dict[str, Any]:
        return {"metadata": self.nixl.get_agent_metadata().hex(), "address": self.memory.ctypes.data}

    def load(self, metadata: str) -> dict[str, Any]:
        return {"peer": self.nixl.add_remote_agent(bytes.fromhex(metadata)).decode()}

    def fill(self, seed: int) -> dict[str, Any]:
        self.memory[:] = pattern(seed, self.memory.size)
        return {}

    def wrong(self, seed: int) -> dict[str, Any]:
        """How many bytes are not as `fill` makes them."""
        return {"wrong": int((self.memory != pattern(seed, self.memory.size)).sum())}

    def spoil(self) -> dict[str, Any]:
        """One byte is another: what a comparison has to notice."""
        self.memory[self.memory.size // 2] ^= 1
        return {}

    def transfer(
        self, op: str, peer: str, address: int, block: int, timeout_s: float, each: int | None = None
    ) -> dict[str, Any]:
        """All of the memory, block i to place i, in transfers of `each` bytes, one after another."""
        own, size = self.memory.ctypes.data, self.memory.size
        each = each or size
        handles = []
        for first in range(0, size, each):
            places = range(first, min(size, first + each), block)
            here = self.nixl.get_xfer_descs([(own + at, min(block, size - at), 0) for at in places], "DRAM")
            there = self.nixl.get_xfer_descs([(address + at, min(block, size - at), 0) for at in places], "DRAM")
            handles.append(self.nixl.initialize_xfer(op, here, there, peer, b"all is there"))
        self.say({"started": True})
        began, state = time.monotonic(), "DONE"
        for self.handle in handles:
            state = self.nixl.transfer(self.handle)
            while state == "PROC" and time.monotonic() - began < timeout_s:
                time.sleep(_LOOK_S)
                state = self.nixl.check_xfer_state(self.handle)
            if state != "DONE":
                break
        seconds = time.monotonic() - began
        if state == "DONE":
            for handle in handles:
                self.nixl.release_xfer_handle(handle)
        return {"state": state, "seconds": seconds}

    def used(self) -> dict[str, Any]:
        """Processor time until now, of all threads."""
        return {"cpu_s": time.process_time()}

    def release(self) -> dict[str, Any]:
        """Gives up what still goes on: how often that was refused, and how long it took."""
        began, refused = time.monotonic(), 0
        while True:
            try:
                self.nixl.release_xfer_handle(self.handle)
                return {"refused": refused, "seconds": time.monotonic() - began}
            except Exception:
                refused += 1

    def deregister(self) -> dict[str, Any]:
        began = time.monotonic()
        self.nixl.deregister_memory(self.registered)
        return {"seconds": time.monotonic() - began}

    def notifications(self, timeout_s: float) -> dict[str, Any]:
        found: dict[str, list[bytes]] = {}
        deadline = time.monotonic() + timeout_s
        while not found and time.monotonic() < deadline:
            found = self.nixl.get_new_notifs()
        return {name: [text.decode() for text in texts] for name, texts in found.items()}

    @staticmethod
    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), flush=True)


def main() -> None:
    name, backend, size = sys.argv[1:]
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # ns: who looks every 20 us does not look every 70
    agent = Agent(name, backend, int(size))
    agent.say(agent.about())
    for line in sys.stdin:
        call = json.loads(line)
        try:
            agent.say(getattr(agent, call.pop("do"))(**call))
        except Exception as error:  # what the driver wants to see, whatever it is
            agent.say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
