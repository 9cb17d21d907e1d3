"""This machine as a host, without SSH: the agent as a child process. For tests and for runs without a network."""

import os
import subprocess
import sys
from collections.abc import Sequence

from harness.errors import UnreachableError
from harness.hosts.agent_host import AgentHost
from harness.hosts.base import Nic
from harness.hosts.session import Channel, bootstrap

LEAVE_S = 10.0
"""How long an agent may take to kill, heal and exit."""


class PipeChannel:
    """The pipes of an agent that is a child process of the harness."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._popen = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            # The harness handles a Ctrl-C in the terminal: it heals first, then the agent exits.
            start_new_session=True,
        )
        self._said = ""

    @property
    def pid(self) -> int:
        """The agent's process id."""
        return self._popen.pid

    def send(self, data: bytes) -> None:
        """Writes all of it."""
        assert self._popen.stdin is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._popen.stdin.fileno(), view) :]

    def recv(self) -> bytes:
        """Some bytes; empty at the end."""
        assert self._popen.stdout is not None
        if self._popen.stdout.closed:
            return b""
        data = os.read(self._popen.stdout.fileno(), 1 << 16)
        if not data:
            self._popen.stdout.close()
        return data

    def close(self) -> str:
        """Ends the agent's input and waits for it; returns its stderr."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        stderr = self._popen.stderr
        if stderr is not None and not stderr.closed:
            self._said = stderr.read().decode("utf-8", "replace")
            stderr.close()
        return self._said


class NoopHost(AgentHost):
    """This machine; its NICs, if any, are named by the caller and get real faults."""

    def __init__(
        self,
        name: str = "host0",
        address: str = "127.0.0.1",
        nics: Sequence[Nic] = (),
        python: str = sys.executable,
    ) -> None:
        super().__init__(name, address, nics)
        self._python = python

    @property
    def python(self) -> str:
        """By default the Python that runs the harness."""
        return self._python

    def open_channel(self) -> Channel:
        """Starts the agent's loader as a child."""
        try:
            return PipeChannel(bootstrap(self.python))
        except OSError as e:
            raise UnreachableError(self.name, f"{self.python}: {e.strerror}") from None
