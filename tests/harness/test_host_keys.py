"""Keys that hosts show: fetched from a real SSH server, and what they are in a known_hosts file."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

import paramiko
import pytest

from harness.errors import UnreachableError
from harness.hosts.host_keys import HostKey, fetch


def test_the_key_that_a_server_shows_is_the_one_it_has(tmp_path: Path) -> None:
    key = paramiko.RSAKey.generate(2048)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            # The other side hangs up as soon as it has the key.
            with suppress(EOFError, ConnectionError, paramiko.SSHException):
                transport.start_server(server=paramiko.ServerInterface())
            transport.join(20)

        thread = threading.Thread(target=serve)
        thread.start()
        port = server.getsockname()[1]
        found = fetch("node0", "127.0.0.1", port)
        thread.join()
    assert found == HostKey("127.0.0.1", port, "ssh-rsa", key.get_base64())
    assert found.fingerprint == key.fingerprint
    known = tmp_path / "known_hosts"
    known.write_text(found.line + "\n")
    assert paramiko.HostKeys(str(known)).check(f"[127.0.0.1]:{port}", key)
    assert HostKey("a", 22, "ssh-rsa", "AA==").line == "a ssh-rsa AA==", "the usual port is left out"


def test_a_host_that_shows_none_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(UnreachableError, match=r"^node0: 127\.0\.0\.1: shows no host key: "):
        fetch("node0", "127.0.0.1", port)
