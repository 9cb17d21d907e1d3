"""A group of rank processes, one in each host's namespace, that are told what to do and answer in JSON lines."""

from __future__ import annotations

import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_ports = itertools.count(7000)
HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class GroupError(Exception):
    """A rank failed, ended, or did not answer in time."""


def has_gpu_each(gpus: int, per_host: int) -> bool:
    """Whether no two ranks of a host share a GPU, when ranks are dealt out over `gpus`."""
    return gpus % per_host == 0


class Group:
    """Started at once; ready after `start()`. `close()` ends its processes whatever they do."""

    def __init__(
        self,
        name: str,
        places: list[str],
        env: Mapping[str, str],
        folder: Path,
        program: str = "worker.py",
        gpus: int | None = None,
        per_host: int = 1,
    ) -> None:
        self.name, self.size = name, len(places)
        env = {**env, "CAMPAIGN_PORT": str(next(_ports))}
        self.processes: list[subprocess.Popen[bytes]] = []
        self._buffers = [b""] * self.size
        self._pending: list[list[dict[str, Any]]] = [[] for _ in places]
        self.logs = [folder / f"{name}-{rank}.log" for rank in range(self.size)]
        self._selector = selectors.DefaultSelector()
        self._dead: set[int] = set()
        for rank, place in enumerate(places):
            variables = {**os.environ, **env, "PYTHONPATH": path_of(ROOT), "PYTHONUNBUFFERED": "1"}
            variables["NCCL_DEBUG_FILE"] = str(folder / f"{name}-{rank}.nccl")
            variables["CUDA_VISIBLE_DEVICES"] = str(rank % (gpus or self.size))
            variables |= {"CAMPAIGN_RANK": str(rank), "CAMPAIGN_SIZE": str(self.size)}
            host = rank // per_host
            if has_gpu_each(gpus or self.size, per_host):
                variables["NCCL_HOSTID"] = f"host{host}"
                if per_host > 1:  # its sockets between processes of a host do not reach other namespaces
                    variables["NCCL_CUMEM_ENABLE"] = "0"
            else:  # NCCL takes two ranks of one host on one GPU for a mistake; we are told who shares NICs
                variables |= {"NCCL_HOSTID": f"host{rank}", "R2CC_HOSTID": f"host{host}"}
            argv = [sys.executable, str(HERE / program), place]
            with self.logs[rank].open("wb") as log:
                process = subprocess.Popen(
                    argv,
                    env=variables,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            assert process.stdout is not None
            os.set_blocking(process.stdout.fileno(), False)
            self._selector.register(process.stdout, selectors.EVENT_READ, rank)
            self.processes.append(process)

    def start(self, timeout_s: float = 90) -> list[dict[str, Any]]:
        """Returns when all ranks are a group; what they say of themselves."""
        hello = self.answers(timeout_s)
        key = hello[0].get("id", "")
        return self.ask({"do": "join", "id": key}, timeout_s)

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        """Every rank's answer to one request."""
        self.tell(request)
        return self.answers(timeout_s)

    def tell(self, request: Mapping[str, Any]) -> None:
        """The request to every rank; the answers are fetched with `answers`."""
        for process in self.processes:
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            except OSError as error:
                raise GroupError(f"{self.name}: a rank has ended; {self.last_words()}") from error

    def answers(self, timeout_s: float) -> list[dict[str, Any]]:
        """One answer of every rank that was not killed, in their order. `GroupError` when one fails, ends, or takes
        too long."""
        deadline = time.monotonic() + timeout_s
        living = [rank for rank in range(self.size) if rank not in self._dead]
        while silent := [rank for rank in living if not self._pending[rank]]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise GroupError(f"{self.name}: no answer of rank {silent} in {timeout_s:.0f} s; {self.last_words()}")
            self._read(min(left_s, 0.5))
        answers = [self._pending[rank].pop(0) for rank in living]
        for rank, answer in zip(living, answers, strict=True):
            if "error" in answer:
                raise GroupError(f"{self.name}: rank {rank}: {answer['error']}")
        return answers

    def kill(self, rank: int) -> int:
        """Ends a rank as kill -9 does; when that was, in nanoseconds of the monotonic clock."""
        process = self.processes[rank]
        assert process.stdout is not None
        self._selector.unregister(process.stdout)
        self._dead.add(rank)
        begin = time.monotonic_ns()
        os.killpg(process.pid, signal.SIGKILL)
        return begin

    def answered(self) -> bool:
        """Whether every rank has answered; does not wait."""
        self._read(0)
        return all(self._pending)

    def _read(self, timeout_s: float) -> None:
        for key, _ in self._selector.select(timeout_s):
            rank = key.data
            data = os.read(key.fd, 1 << 20)
            if not data:
                self._selector.unregister(key.fileobj)
                code = self.processes[rank].wait()
                raise GroupError(f"{self.name}: rank {rank} ended with {code}; {self.last_words()}")
            *lines, self._buffers[rank] = (self._buffers[rank] + data).split(b"\n")
            self._pending[rank] += [json.loads(line) for line in lines if line.startswith(b"{")]

    def last_words(self) -> str:
        """The ends of the ranks' logs."""
        ends = [log.read_bytes()[-300:].decode(errors="replace").strip() for log in self.logs]
        return " | ".join(f"rank {rank}: {end}" for rank, end in enumerate(ends) if end)[-1500:]

    def network(self) -> str:
        """What NCCL says it uses, from its log; empty without one."""
        for rank in range(self.size):
            for path in self.logs[rank].parent.glob(f"{self.name}-{rank}.nccl*"):
                for line in path.read_text(errors="replace").splitlines():
                    if "Using network" in line:
                        return line.split("Using network", 1)[1].strip()
        return ""

    def close(self) -> None:
        """Idempotent."""
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        continue
        self._selector.close()


def path_of(root: Path) -> str:
    """PYTHONPATH with this checkout in front."""
    return os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH", ""))))
