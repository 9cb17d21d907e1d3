"""A host over SSH: one Fabric connection that carries the agent on its standard input and output.

Host keys are checked: a key that is not in the given known_hosts file (or the user's own) is refused. Nothing is
installed on the host, which needs an SSH server, a POSIX shell and Python 3.8.
"""

import contextlib
import logging
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko
from fabric import Config, Connection
from paramiko.ssh_exception import NoValidConnectionsError, PasswordRequiredException

from harness.errors import UnreachableError
from harness.hosts.agent_host import AgentHost
from harness.hosts.base import Nic
from harness.hosts.session import Channel, bootstrap

# Its warnings would appear on stderr beside our own error about the same failure.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

CONNECT_TIMEOUT_S = 10
KEEPALIVE_S = 5
LOST_AFTER_MS = 15_000
"""Bytes that stay unacknowledged for this long end the session, so that a dead host is noticed in seconds."""

SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts"

LEAVE_S = 10.0
"""How long an agent may take to kill, heal and exit."""


@dataclass(frozen=True)
class SshLogin:
    """How to log in to a host. None: as OpenSSH would, from the user's own configuration and agent."""

    address: str
    port: int | None = None
    user: str | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    python: str = "python3"
    become_root: tuple[str, ...] = ()
    """The words before a command that run the agent, and its commands, as root; they must not prompt."""


class SshChannel:
    """One SSH session channel that runs the agent; owns its Fabric connection."""

    def __init__(self, connection: Connection, channel: Any) -> None:
        self._connection, self._channel = connection, channel

    def send(self, data: bytes) -> None:
        """Writes all of it."""
        self._channel.sendall(data)

    def recv(self) -> bytes:
        """Some bytes; empty at the end."""
        return bytes(self._channel.recv(1 << 16))

    def close(self) -> str:
        """Ends the agent's input, waits for it to exit, closes the connection."""
        said = b""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.shutdown_write()
            self._channel.status_event.wait(LEAVE_S)
            while self._channel.recv_stderr_ready():
                said += self._channel.recv_stderr(1 << 16)
        self._connection.close()
        return said.decode("utf-8", "replace")


class SshHost(AgentHost):
    """A host that is reached by `login`."""

    def __init__(self, name: str, login: SshLogin, nics: Sequence[Nic]) -> None:
        super().__init__(name, login.address, nics)
        self.login = login

    @property
    def python(self) -> str:
        """The Python named by the log-in."""
        return self.login.python

    def connect(self) -> None:
        """Opens the connection and starts the agent; harmless twice. Raises `UnreachableError`."""
        try:
            super().connect()
        except UnreachableError as e:
            raise UnreachableError(self.name, _with_remedy(self.login, e.message)) from None

    def open_channel(self) -> Channel:
        """Connects, checks the host's key, logs in, starts the agent's loader."""
        connection = open_connection(self.name, self.login)
        try:
            transport = connection.transport
            transport.set_keepalive(KEEPALIVE_S)
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LOST_AFTER_MS)
            channel = transport.open_session(timeout=CONNECT_TIMEOUT_S)
            words = shlex.join([*self.login.become_root, *bootstrap(self.python)])
            channel.exec_command(f'exec {words} "$SSH_CONNECTION"')
        except (paramiko.SSHException, OSError, EOFError) as e:
            connection.close()
            raise UnreachableError(self.name, f"{self.login.address}: no session: {e}") from None
        return SshChannel(connection, channel)


_ASKS = ("a password is required", "a terminal is required", "authentication is required", "Authentication required")
"""Messages of sudo, sudo-rs and doas when they would have to ask for a password."""


def _with_remedy(login: SshLogin, message: str) -> str:
    """`message`, with a remedy if the agent did not start for a known reason."""
    if not message.startswith("the agent did not start"):
        return message
    user = login.user or "this user"
    if any(words in message for words in _ASKS):
        return f"{login.become_root[0]} asks for a password; let {user} run it without (NOPASSWD), or leave out sudo"
    if login.become_root and ("not in the sudoers" in message or "not allowed" in message):
        return f"{login.become_root[0]} does not let {user} become root; add {user} to the sudoers, or leave out sudo"
    if "not found" in message or "No such file" in message:
        words = " or ".join(repr(word) for word in (*login.become_root[:1], login.python))
        return f"{message}; {words} is missing there: install it, or name another"
    if "Permission denied" in message:
        return f"{message}; {user} must be allowed to run it: choose another python in the inventory"
    return message


def open_connection(name: str, login: SshLogin) -> Connection:
    """A Fabric connection with the host's key checked. Raises `UnreachableError` in one line."""
    connection = Connection(
        login.address,
        user=login.user,
        port=login.port,
        # If the log-in is complete, the user's own ~/.ssh/config must not add to it.
        config=Config(overrides={"load_ssh_configs": login.key_file is None}),
        connect_timeout=CONNECT_TIMEOUT_S,
        connect_kwargs=_connect_kwargs(login),
    )
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    try:
        if login.known_hosts is None:
            connection.client.load_system_host_keys()
            with contextlib.suppress(OSError):
                connection.client.load_system_host_keys(SYSTEM_KNOWN_HOSTS)
        else:
            connection.client.load_host_keys(str(login.known_hosts))
        connection.open()
    except (paramiko.SSHException, OSError, EOFError) as e:
        connection.close()
        where = "" if login.address == name else f"{login.address}: "
        raise UnreachableError(name, where + explain(e)) from None
    return connection


def explain(error: Exception) -> str:
    """The description of a failed connection, with a remedy if there is one."""
    match error:
        case paramiko.BadHostKeyException():
            return "its host key is not the known one; if that is right, correct known_hosts"
        case PasswordRequiredException():
            return "the key has a passphrase; add it to your ssh-agent, and leave out the key"
        case paramiko.AuthenticationException():
            return f"log-in refused: {error}; check the user and the key"
        case paramiko.SSHException() if "not found in known_hosts" in str(error):
            return "its host key is not known; log in once with ssh, or name a known_hosts file"
        case NoValidConnectionsError():
            reasons = {cause.strerror or str(cause) for cause in error.errors.values()}
            return f"cannot connect: {', '.join(sorted(reasons))}; check address and port, and that its sshd runs"
        case socket.gaierror():
            return "no such name in DNS; check the address"
        case FileNotFoundError():
            return f"{error.filename}: no such file; check the key and known_hosts"
        case TimeoutError():
            return f"no answer within {CONNECT_TIMEOUT_S} s; check the address"
        case _:
            return f"cannot connect: {error}"


def _connect_kwargs(login: SshLogin) -> dict[str, Any]:
    if login.key_file is None:
        return {}
    return {"key_filename": str(login.key_file), "allow_agent": False, "look_for_keys": False}
