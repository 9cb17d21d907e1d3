"""Agents of NIXL in network namespaces, each a process, for tests and for `nixl_compare.py`."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rails import Rails

from r2ccl_core import native

AGENT = Path(__file__).with_name("nixl_agent.py")
WHEEL = "nixl-cu12"
_ANSWER_S = 60.0


def interpreter() -> str | None:
    """The Python that has the wheel: R2CCL_NIXL_PYTHON, or this one; None where neither does."""
    for python in filter(None, (os.environ.get("R2CCL_NIXL_PYTHON"), sys.executable)):
        if subprocess.run([python, "-c", "import nixl_cu12"], capture_output=True, check=False).returncode == 0:
            return python
    return None


class Agent:
    """A process in a namespace; `call` asks it for something."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process, self.log = process, log
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.about = self.answer()

    def answer(self, timeout_s: float = _ANSWER_S) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=timeout_s)
            except queue.Empty:
                line = ""
            assert line, f"no answer: {self.words()}"
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def ask(self, do: str, **arguments: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self.process.stdin.flush()

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.ask(do, **arguments)
        return self.answer()

    def begin(
        self,
        peer: str,
        about: dict[str, Any],
        block: int,
        timeout_s: float,
        op: str = "WRITE",
        each: int | None = None,
    ) -> None:
        """Returns when the transfer is about to begin; `answer` has how it ended."""
        self.ask("transfer", op=op, peer=peer, address=about["address"], block=block, timeout_s=timeout_s, each=each)
        started = self.answer()
        assert started.get("started"), started

    def words(self) -> str:
        return self.log.read_text()[-2000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


def environment(backend: str, nics: int) -> dict[str, str]:
    """The two settings that make NIXL's programs use the plugin, or what UCX needs to see the same NICs."""
    if backend == "R2CCL":
        folder = str(native.nixl_plugin_path().parent)
        return {**os.environ, "NIXL_PLUGIN_DIR": folder, "R2CC_SOCKET_IFNAME": "eth", "NIXL_LOG_LEVEL": "ERROR"}
    names = ",".join(f"eth{nic}" for nic in range(nics))
    # Where there are GPUs, NIXL refuses UCX without their memory.
    ways = "tcp,cuda_copy" if Path("/dev/nvidiactl").exists() else "tcp"
    return {**os.environ, "UCX_TLS": ways, "UCX_NET_DEVICES": names, "UCX_LOG_LEVEL": "error"}


@contextmanager
def agents(network: Rails, folder: Path, backend: str, size: int, **variables: str) -> Iterator[list[Agent]]:
    """One on each host, named by its number."""
    python = interpreter()
    assert python is not None
    env = {**environment(backend, network.nics), **variables}
    with ExitStack() as stack:
        made = []
        for host in range(network.hosts):
            log = folder / f"{backend}{host}.log"
            with log.open("w") as err:
                argv = network.inside(host, python, AGENT, str(host), backend, size)
                pipe = subprocess.PIPE
                process = subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, stderr=err, text=True)
            made.append(Agent(process, log))
            stack.callback(made[-1].kill)
        yield made


def acquaint(initiator: Agent, target: Agent) -> dict[str, Any]:
    """Either loads the other's metadata; what the initiator said."""
    target.call("load", metadata=initiator.about["metadata"])
    return initiator.call("load", metadata=target.about["metadata"])
