"""One agent's JSON lines as calls: replies are matched with their requests, lines and ends with their processes.

The session owns one byte channel and one reader thread. When the channel ends, every pending call or wait, and every
later one, raises `UnreachableError`.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from functools import cache
from importlib.resources import files
from itertools import count
from signal import Signals
from typing import Any, Protocol

from harness.errors import CommandError, HostError, HostTimeoutError, UnreachableError
from harness.hosts.base import OnLine

REPLY_TIMEOUT_S = 120.0
"""How long a request other than a command may take. The agent answers within milliseconds, but a translated guest on a
busy machine has needed more than 30 s. A host that is gone is noticed by its connection, and sooner."""


class Channel(Protocol):
    """The two byte streams of an agent."""

    def send(self, data: bytes) -> None:
        """Writes all of it. Raises OSError."""
        ...

    def recv(self) -> bytes:
        """Some bytes, at least one; empty at the end. Raises OSError."""
        ...

    def close(self) -> str:
        """Ends the agent's input, waits a few seconds for it to exit; returns its stderr."""
        ...


# Unbuffered: the bytes after the source must stay in the pipe, where the agent reads them by descriptor number.
# The argument, if there is one, is the SSH_CONNECTION that sudo drops.
_LOADER = """\
import json, os, sys, types
if sys.argv[1:]: os.environ["SSH_CONNECTION"] = sys.argv[1]
i, s = sys.stdin.buffer.raw, b""
n = int(i.readline())
while len(s) < n: s += i.read(n - len(s)) or sys.exit(1)
for name, source in json.loads(s):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
"""

_PARTS = ("arms", "sampler")
"""Modules beside the agent that it imports and that are sent with it, in the order of their imports."""


def bootstrap(python: str) -> tuple[str, ...]:
    """The command that starts the agent, which reads its own source from its standard input."""
    return (python, "-I", "-S", "-c", _LOADER)


def agent_source() -> bytes:
    """The agent and its parts as JSON, preceded by its length: names and sources, each run when it is read."""
    parts = [(f"harness.hosts.{name}", source_of(name)) for name in _PARTS]
    bundle = json.dumps([*parts, ("__main__", source_of("agent"))]).encode()
    return b"%d\n%s" % (len(bundle), bundle)


@cache
def source_of(name: str) -> str:
    """The text of one of the modules beside this one."""
    return files("harness.hosts").joinpath(f"{name}.py").read_text(encoding="utf-8")


class Session:
    """Requests to one agent, from any thread. `host` is the name with which errors begin."""

    def __init__(self, host: str, channel: Channel) -> None:
        self.host = host
        self.lost: str | None = None
        self._channel = channel
        self._numbers = count(1)
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._replies: dict[int, Future[Any]] = {}
        self._processes: dict[int, AgentProcess] = {}
        self._hello: Future[Any] = Future()
        self._reader = threading.Thread(target=self._read, name=f"agent of {host}", daemon=True)

    def open(self, timeout_s: float = REPLY_TIMEOUT_S) -> None:
        """Sends the agent to the host and waits until it answers."""
        self._reader.start()
        try:
            self._channel.send(agent_source())
            self._hello.result(timeout_s)
        except FutureTimeoutError:
            self.close()
            raise UnreachableError(self.host, f"the agent did not answer within {timeout_s:g} s") from None
        except (OSError, UnreachableError) as e:
            said = self.close().strip().splitlines()
            reason = said[-1] if said else self.lost or str(e)
            raise UnreachableError(self.host, f"the agent did not start: {reason}") from None

    def close(self) -> str:
        """Ends the agent; harmless twice."""
        said = self._channel.close()
        if self._reader.is_alive() and threading.current_thread() is not self._reader:
            self._reader.join(5)
        return said

    def call(self, op: str, *, timeout_s: float = REPLY_TIMEOUT_S, **fields: Any) -> Any:
        """Sends one request and returns its reply."""
        number, reply = next(self._numbers), Future[Any]()
        self._send(number, reply, {"id": number, "op": op, **fields})
        try:
            return reply.result(timeout_s)
        except FutureTimeoutError:
            raise HostTimeoutError(self.host, f"no answer to {op!r} within {timeout_s:g} s") from None
        finally:
            with self._lock:
                self._replies.pop(number, None)

    def start(
        self, argv: Sequence[str], env: Mapping[str, str], on_line: OnLine, *, python: bool = False
    ) -> "AgentProcess":
        """Starts a process; its lines go to `on_line`. With `python`, `argv` follows the agent's own Python."""
        number, reply = next(self._numbers), Future[Any]()
        process = AgentProcess(self, number, tuple(argv), on_line)
        with self._lock:
            self._processes[number] = process
        try:
            self._send(number, reply, _started(number, argv, env, python))
            process.pid = reply.result(REPLY_TIMEOUT_S)
        except BaseException:
            with self._lock:
                self._processes.pop(number, None)
            raise
        return process

    def _send(self, number: int, reply: "Future[Any]", message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"
        with self._lock:
            if self.lost is not None:
                raise UnreachableError(self.host, self.lost)
            self._replies[number] = reply
        try:
            with self._sending:
                self._channel.send(data)
        except OSError as e:
            raise UnreachableError(self.host, f"the session was lost: {e}") from None

    def _read(self) -> None:
        pending, reason = bytearray(), "the session has ended"
        try:
            while data := self._channel.recv():
                pending += data
                if b"\n" in data:
                    *lines, pending = pending.split(b"\n")
                    for line in lines:
                        self._deliver(json.loads(line))
        except OSError as e:
            reason = f"the session was lost: {e}"
        except (ValueError, KeyError, TypeError):
            reason = f"the host says something that is not the agent's: {line[:80].decode('utf-8', 'replace')!r}"
        self._lose(reason)
        with suppress(OSError):
            while self._channel.recv():
                pass

    def _deliver(self, message: dict[str, Any]) -> None:
        if "proc" in message:
            process = self._processes.get(message["proc"])
            if process is not None:
                process.deliver(message)
                if "exit" in message:
                    del self._processes[message["proc"]]
        elif "hello" in message:
            self._hello.set_result(message["hello"])
        else:
            reply = self._replies.pop(message["id"], None)
            if reply is not None:
                _settle(reply, self.host, message)

    def _lose(self, reason: str) -> None:
        with self._lock:
            self.lost = self.lost or reason
            futures = [*self._replies.values(), *(p.ended for p in self._processes.values()), self._hello]
            self._replies.clear()
            self._processes.clear()
        for future in futures:
            if not future.done():
                future.set_exception(UnreachableError(self.host, reason))


class AgentProcess:
    """A process that the agent started; see `harness.hosts.base.RemoteProcess`."""

    def __init__(self, session: Session, number: int, argv: tuple[str, ...], on_line: OnLine) -> None:
        self.pid = 0
        self.ended: Future[int] = Future()
        self._session, self._number, self._argv, self._on_line = session, number, argv, on_line

    def deliver(self, message: dict[str, Any]) -> None:
        """Called by the session's reader with each event of this process."""
        if "exit" in message and not self.ended.done():
            self.ended.set_result(message["exit"])
        try:
            for line in message.get("lines", ()):
                self._on_line(message["stream"], line)
        except Exception as e:  # the caller's mistake must reach the caller, not end the reader
            if not self.ended.done():
                self.ended.set_exception(e)

    def wait(self, timeout_s: float | None = None) -> int:
        """Its exit status, after its last line was delivered."""
        try:
            return self.ended.result(timeout_s)
        except FutureTimeoutError:
            what = f"{self._argv[0]} (process {self.pid}) has not ended within {timeout_s:g} s"
            raise HostTimeoutError(self._session.host, what) from None

    def poll(self) -> int | None:
        """Its exit status, or None while it runs."""
        return self.ended.result() if self.ended.done() else None

    def signal(self, sig: Signals) -> None:
        """Sends `sig` to its whole process group; harmless once it has ended."""
        if not self.ended.done():
            self._session.call("signal", proc=self._number, signal=int(sig))

    def close_stdin(self) -> None:
        """Ends its standard input; harmless twice."""
        if not self.ended.done():
            self._session.call("close_stdin", proc=self._number)


def _started(number: int, argv: Sequence[str], env: Mapping[str, str], python: bool) -> dict[str, Any]:
    return {"id": number, "op": "start", "argv": list(argv), "env": dict(env), "python": python}


def _settle(reply: "Future[Any]", host: str, message: dict[str, Any]) -> None:
    """Turns the agent's answer into a result, or into the corresponding error."""
    if "error" not in message:
        reply.set_result(message["ok"])
    elif message["kind"] == "command":
        reply.set_exception(CommandError(host, message["argv"], message["returncode"], message["stderr"]))
    else:
        reply.set_exception(HostError(host, message["error"]))
