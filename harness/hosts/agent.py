"""The agent: the one file that runs on a host, sent over SSH, and carries out the harness's requests there.

It needs Python 3.8 and its standard library, nothing installed. Requests arrive as JSON lines on standard input,
replies and events leave as JSON lines on standard output:

    {"id": 7, "op": "run", ...}  ->  {"id": 7, "ok": {...}}  or  {"id": 7, "error": "...", "kind": "..."}
    {"proc": 8, "stream": "stdout", "lines": [...]}   and   {"proc": 8, "exit": 0}   (8: the id of its start)

Promises:
1. Every process it starts leads a process group, and no group outlives its leader or the agent.
2. A fault is armed before it is injected: a detached healer, a process in a session of its own, heals on request, when
   its time to live is over, or when the agent is gone for any reason.
3. When standard input ends (the harness died, the session was cut) the agent kills, heals and exits.
4. Counters are sampled by a separate thread (`harness.hosts.sampler`).
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Callable  # noqa: UP035  (old hosts: Python 3.8)

from harness.hosts.arms import Arm, RefusedError, failed_command, heal_entry, is_healer, journal
from harness.hosts.sampler import Sampler

GRACE_S = 0.5
"""Time between SIGTERM and SIGKILL when a command exceeds its time limit."""

CLAIM = "\0r2ccl-claim"
"""An abstract socket: it has one holder per network namespace, of any user, and the kernel frees it when the holder
ends."""

CLAIM_ANSWER_S = 2.0


def claim_holder() -> dict[str, Any] | None:
    """The holder of this host, as it describes itself; empty if it does not, None if nobody holds the host."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(CLAIM_ANSWER_S)
        try:
            asking.connect(CLAIM)
            with asking.makefile("rb") as told:
                return dict(json.loads(told.readline(65536)))
        except ConnectionRefusedError:
            return None
        except (OSError, ValueError, TypeError):
            return {}


class Child:
    """One process this agent started, with the handling of its output and its end."""

    def __init__(self, request: dict[str, Any], stdin: int) -> None:
        self.request = request
        self.deadline: float | None = None
        self.timed_out = False
        self.unsent = {"stdout": bytearray(), "stderr": bytearray()}
        env = dict(os.environ, **request.get("env", {}))
        own_python = [sys.executable] if request.get("python") else []
        try:
            self.popen = subprocess.Popen(
                [*own_python, *request["argv"]],
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as e:
            raise failed_command(request["argv"], 127, f"{request['argv'][0]}: {e.strerror}") from None
        self.pipes: dict[str, Any] = {"stdout": self.popen.stdout, "stderr": self.popen.stderr}
        for pipe in self.pipes.values():
            os.set_blocking(pipe.fileno(), False)

    def signal(self, number: int) -> None:
        """Signals the whole group. The leader is not reaped until the agent is done with it, so its number cannot be
        reused."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)

    def ended(self) -> bool:
        """True once the leader has exited; it stays a zombie until `reap`."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.popen.pid, flags) is not None

    def reap(self) -> int:
        """Kills the rest of the group, then collects the exit status."""
        self.signal(signal.SIGKILL)
        return self.popen.wait()


class Agent:
    """The loop: requests, output of children, ends of children, deadlines. One thread beside the sampler."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.children: dict[int, Child] = {}
        self.arms: dict[str, Arm] = {}
        self.sampler: Sampler | None = None
        self.claim: socket.socket | None = None
        self.pending = b""
        self.leaving = False
        self.operations: dict[str, Callable[..., Any]] = {
            "run": self.op_run,
            "start": self.op_start,
            "signal": self.op_signal,
            "close_stdin": self.op_close_stdin,
            "sample_start": self.op_sample_start,
            "sample_closely": self.op_sample_closely,
            "sample_stop": self.op_sample_stop,
            "prepare": self.op_prepare,
            "fire": self.op_fire,
            "heal": self.op_heal,
            "moved": self.op_moved,
            "journal": self.op_journal,
            "heal_journal": self.op_heal_journal,
            "claim": self.op_claim,
            "clock": lambda request: time.time_ns(),
        }

    def serve(self) -> None:
        """Runs until standard input ends or a signal asks the agent to exit."""
        woken, waker = os.pipe()
        for fd in (woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.leave)
        self.selector.register(woken, selectors.EVENT_READ, lambda: os.read(woken, 512))
        self.selector.register(0, selectors.EVENT_READ, self.read_requests)
        try:
            self.send({"hello": os.getpid(), "t_ns": time.time_ns()})
            while not self.leaving:
                self.step()
        finally:
            self.clean_up()

    def step(self) -> None:
        for key, _ in self.selector.select(self.until_deadline()):
            key.data()
        for handle, child in list(self.children.items()):
            if child.ended():
                self.finish(handle, child)
            elif child.deadline is not None and time.monotonic() >= child.deadline:
                child.signal(signal.SIGKILL if child.timed_out else signal.SIGTERM)
                child.deadline, child.timed_out = time.monotonic() + GRACE_S, True

    def until_deadline(self) -> float | None:
        deadlines = [c.deadline for c in self.children.values() if c.deadline is not None]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def leave(self, *_: object) -> None:
        self.leaving = True

    def clean_up(self) -> None:
        """Kills every group, heals every arm; a failing heal must not keep the others from healing."""
        for child in self.children.values():
            child.reap()
        for arm in self.arms.values():
            with suppress(RefusedError, OSError):
                arm.heal()

    # Requests -----------------------------------------------------------------------------------------

    def read_requests(self) -> None:
        data = os.read(0, 1 << 16)
        if not data:
            self.leaving = True
        *lines, self.pending = (self.pending + data).split(b"\n")
        for line in lines:
            self.answer(json.loads(line))

    def answer(self, request: dict[str, Any]) -> None:
        try:
            result = self.operations[request["op"]](request)
        except RefusedError as e:
            self.send(dict(e.fields, id=request["id"]))
        except Exception as e:  # reported to the harness: a host without an answer looks dead
            self.send({"id": request["id"], "error": f"{type(e).__name__}: {e}", "kind": "host"})
        else:
            if result is not None or request["op"] != "run":
                self.send({"id": request["id"], "ok": result})

    def send(self, message: dict[str, Any]) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        try:
            while data:
                data = data[os.write(1, data) :]
        except BrokenPipeError:
            self.leaving = True

    def op_run(self, request: dict[str, Any]) -> None:
        child = Child(request, subprocess.DEVNULL)
        child.deadline = time.monotonic() + request["limit_s"]
        self.adopt(request["id"], child)

    def op_start(self, request: dict[str, Any]) -> int:
        child = Child(request, subprocess.PIPE)
        self.adopt(request["id"], child)
        return child.popen.pid

    def op_signal(self, request: dict[str, Any]) -> None:
        child = self.children.get(request["proc"])
        if child is not None:
            child.signal(request["signal"])

    def op_close_stdin(self, request: dict[str, Any]) -> None:
        child = self.children.get(request["proc"])
        if child is not None and child.popen.stdin is not None:
            child.popen.stdin.close()

    def op_sample_start(self, request: dict[str, Any]) -> None:
        if self.sampler is not None:
            self.sampler.stop()
        self.sampler = Sampler(request["nics"], request["interval_s"])
        self.sampler.start()

    def op_sample_closely(self, request: dict[str, Any]) -> None:
        if self.sampler is not None:
            self.sampler.closely()

    def op_sample_stop(self, request: dict[str, Any]) -> dict[str, Any]:
        sampler, self.sampler = self.sampler, None
        return {"nics": sampler.nics, "rows": sampler.stop()} if sampler else {"nics": [], "rows": ""}

    def op_prepare(self, request: dict[str, Any]) -> None:
        if request["arm"] in self.arms:
            raise RefusedError("host", f"{request['arm']!r} is armed already; heal it first")
        self.arms[request["arm"]] = Arm(request["arm"], request["healer"], request["orders"], request["ttl_s"])

    def op_fire(self, request: dict[str, Any]) -> tuple[int, int]:
        arm = self.arms.get(request["arm"])
        if arm is None:
            raise RefusedError("host", f"{request['arm']!r} is not armed")
        if arm.healer.poll() is not None:
            raise RefusedError("host", f"the healer of {request['arm']!r} has ended already; arm it again")
        if request.get("after"):
            self.await_bytes(**request["after"])
        try:
            with self.sampler.hurrying() if self.sampler else nullcontext():
                return arm.fire()
        except RefusedError:
            del self.arms[request["arm"]]  # it has healed itself
            raise

    def op_heal(self, request: dict[str, Any]) -> int | None:
        arm = self.arms.pop(request["arm"], None)
        return None if arm is None else arm.heal()

    def await_bytes(self, nic: str, begin_ns: int, period_ns: int, share: float, limit_s: float) -> None:
        """Waits until the NIC has moved, since `begin_ns`, `share` of the bytes of the `period_ns` before it. From
        about half a second before, samples are close."""
        if self.sampler is None:
            raise RefusedError("host", "no counters are sampled")
        begin = self.sampler.moved_at(nic, begin_ns)
        whole = begin - self.sampler.moved_at(nic, begin_ns - period_ns)
        deadline = time.monotonic() + limit_s
        until, is_close = begin + share * whole, False
        while (moved := self.sampler.moved_now(nic)) < until and time.monotonic() < deadline:
            if not is_close and moved >= until - whole * 0.5e9 / period_ns:
                self.sampler.closely()
                is_close = True
            time.sleep(0.0002)

    def op_moved(self, request: dict[str, Any]) -> dict[str, int]:
        """Bytes that each NIC has moved, in both directions, since sampling began."""
        if self.sampler is None:
            raise RefusedError("host", "no counters are sampled")
        sampler = self.sampler
        return {nic: int(sampler.moved_now(nic) - sampler.moved_at(nic, 0)) for nic in sampler.nics}

    def op_journal(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The armed faults of all agents of this user on this host, and whether the healer of each is alive."""
        return [{"name": path.stem, "alive": is_healer(entry)} for path, entry in journal()]

    def op_heal_journal(self, request: dict[str, Any]) -> list[str]:
        """Heals faults that other agents left armed; with `all` also those with a living healer."""
        own = {arm.journal for arm in self.arms.values()}
        others = [(path, entry) for path, entry in journal() if path not in own]
        chosen = [(path, entry) for path, entry in others if request["all"] or not is_healer(entry)]
        failures = []
        for path, entry in chosen:
            try:
                heal_entry(path, entry)
            except RefusedError as e:
                failures.append(e)
        if failures:
            raise failures[0]
        return [path.stem for path, _ in chosen]

    def op_claim(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Claims this host's network for one harness while the agent lives. Returns None, or the present holder.
        Without a holder in the request: releases it."""
        if self.claim is not None:
            self.selector.unregister(self.claim)
            self.claim.close()
            self.claim = None
        holder, found = request["holder"], None
        for _ in range(3 if holder else 0):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                claim.bind(CLAIM)
            except OSError:
                claim.close()
                found = claim_holder()
                if found is not None:
                    return found
                continue  # it has ended meanwhile
            claim.listen(8)
            self.claim = claim
            self.selector.register(claim, selectors.EVENT_READ, partial(self.tell_claim, claim, holder))
            return None
        return found

    def tell_claim(self, claim: socket.socket, holder: dict[str, Any]) -> None:
        asking, _ = claim.accept()
        with asking, suppress(OSError):
            asking.sendall(json.dumps(holder).encode() + b"\n")

    # Children -----------------------------------------------------------------------------------------

    def adopt(self, handle: int, child: Child) -> None:
        self.children[handle] = child
        for stream, pipe in child.pipes.items():
            self.selector.register(pipe, selectors.EVENT_READ, partial(self.drain, handle, child, stream))

    def drain(self, handle: int, child: Child, stream: str) -> bool:
        """Reads the content of one pipe; False once it has no more for now, or ever."""
        try:
            data = os.read(child.pipes[stream].fileno(), 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            self.selector.unregister(child.pipes[stream])
            child.pipes.pop(stream).close()
            return False
        child.unsent[stream] += data
        if child.request["op"] == "start":
            *lines, child.unsent[stream] = child.unsent[stream].split(b"\n")
            self.send_lines(handle, stream, lines)
        return True

    def send_lines(self, handle: int, stream: str, lines: list[bytearray]) -> None:
        if lines:
            texts = [line.decode("utf-8", "replace") for line in lines]
            self.send({"proc": handle, "stream": stream, "lines": texts})

    def finish(self, handle: int, child: Child) -> None:
        """The leader has exited: ends its group, delivers everything it wrote, then its status."""
        returncode = child.reap()
        for stream in list(child.pipes):
            while stream in child.pipes and self.drain(handle, child, stream):
                pass
        for pipe in child.pipes.values():  # a process that left the group may hold the pipe open forever
            self.selector.unregister(pipe)
            pipe.close()
        if child.popen.stdin is not None:
            child.popen.stdin.close()
        del self.children[handle]
        if child.request["op"] == "run":
            self.send({"id": handle, "ok": self.completed(child, returncode)})
            return
        for stream, rest in child.unsent.items():
            self.send_lines(handle, stream, [rest] if rest else [])
        self.send({"proc": handle, "exit": returncode})

    def completed(self, child: Child, returncode: int) -> dict[str, Any]:
        texts = {stream: data.decode("utf-8", "replace") for stream, data in child.unsent.items()}
        return dict(texts, returncode=returncode, timed_out=child.timed_out)


def see_system_programs() -> None:
    """Completes PATH: the session of an ordinary user, or sudo, may lack the folders of ip and tc."""
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    system = ("/usr/local/sbin", "/usr/sbin", "/sbin")
    os.environ["PATH"] = os.pathsep.join([*path, *(folder for folder in system if folder not in path)])


if __name__ == "__main__":
    see_system_programs()
    Agent().serve()
