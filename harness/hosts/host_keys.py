"""Fetches the SSH host keys of hosts whose keys are not known yet: trust on first use."""

import base64
import hashlib
import socket
from dataclasses import dataclass

import paramiko

from harness.errors import UnreachableError
from harness.hosts.ssh import CONNECT_TIMEOUT_S

SSH_PORT = 22


@dataclass(frozen=True)
class HostKey:
    """One host's public key."""

    address: str
    port: int
    kind: str
    key: str

    @property
    def line(self) -> str:
        """The key as a line of known_hosts."""
        where = self.address if self.port == SSH_PORT else f"[{self.address}]:{self.port}"
        return f"{where} {self.kind} {self.key}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` shows it."""
        digest = hashlib.sha256(base64.b64decode(self.key)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def fetch(name: str, address: str, port: int) -> HostKey:
    """The key of the server at this address, without a log-in. Raises `UnreachableError`."""
    try:
        with socket.create_connection((address, port), timeout=CONNECT_TIMEOUT_S) as connection:
            transport = paramiko.Transport(connection)
            try:
                transport.start_client(timeout=CONNECT_TIMEOUT_S)
                key = transport.get_remote_server_key()
            finally:
                transport.close()
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise UnreachableError(name, f"{address}: shows no host key: {error}") from None
    return HostKey(address, port, key.get_name(), key.get_base64())
