"""The SSH servers of a local cluster: their keys, configurations and accounts, and the keeper that runs them.

A host sees the machine's own files, except for its host name, /run, /sys, and three files bound over the machine's:
/etc/hosts names all hosts, /etc/passwd gives the user a plain shell (so that no slow or chatty ~/.bashrc runs, and an
account without a log-in shell works), and /etc/shadow marks the account as not locked.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from harness.cluster import namespaces
from harness.cluster.layout import HostLayout, Layout
from harness.errors import ClusterError

PORT = 22
CLIENT_CONFIGURATION = "ssh_config"
"""A file in the cluster's directory."""
SHELL = "/bin/sh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LEAVE_S = 5.0


@dataclass(frozen=True)
class Account:
    """The account that logs in: the user that runs the harness."""

    name: str
    uid: int
    gid: int
    home: str

    @classmethod
    def current(cls) -> "Account":
        """This user; a user number without a name (in a container) gets the name r2ccl."""
        home = os.environ.get("HOME", "/")
        try:
            return cls(pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getgid(), home)
        except KeyError:
            return cls("r2ccl", os.getuid(), os.getgid(), home)

    def passwd(self, system: str) -> str:
        """The machine's /etc/passwd with this user's line replaced."""
        others = [line for line in system.splitlines() if line.split(":")[0] != self.name]
        own = f"{self.name}:x:{self.uid}:{self.gid}::{self.home}:{SHELL}"
        return "\n".join([own, *others]) + "\n"


def find_server() -> str:
    """The absolute path of sshd, which it requires. Raises `ClusterError`."""
    path = shutil.which("sshd", path=os.environ.get("PATH", "") + os.pathsep + PATH)
    if path is None:
        raise ClusterError("sshd is missing; install the package openssh-server")
    return path


def configuration(directory: Path, host: HostLayout, account: Account) -> str:
    """The sshd_config of one host: its management address, one user, one key, nothing else."""
    return "\n".join(
        (
            f"ListenAddress {host.address}:{PORT}",
            f"HostKey {directory / host.name}.key",
            f"AuthorizedKeysFile {directory / 'login.pub'}",
            f"AllowUsers {account.name}",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "StrictModes no",  # the directory belongs to the user alone, but lies in /tmp
            "UseDNS no",
            "PidFile none",
            "PrintMotd no",
            "PrintLastLog no",
            "MaxStartups 100",
            "MaxSessions 100",
            "ClientAliveInterval 5",
            "ClientAliveCountMax 3",
            f'SetEnv "PATH={PATH}"',
            "Subsystem sftp internal-sftp",
            "",
        )
    )


def client_configuration(directory: Path, account: Account) -> str:
    """The ssh_config with which the hosts reach each other, as MPI's launchers do: without the user's own settings."""
    return "\n".join(
        (
            "Host *",
            f"User {account.name}",
            f"Port {PORT}",
            f"IdentityFile {directory / 'login'}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"UserKnownHostsFile {directory / 'known_hosts'}",
            "GlobalKnownHostsFile none",
            "StrictHostKeyChecking yes",
            "BatchMode yes",
            "",
        )
    )


def write_files(directory: Path, layout: Layout, account: Account) -> None:
    """Writes all keys and files of all hosts into the cluster's directory."""
    _write_key(directory / "login", directory / "login.pub")
    known = []
    for host in layout.places:
        public = _write_key(directory / f"{host.name}.key", None)
        known.append(f"{host.address} {public}")
        (directory / f"{host.name}.conf").write_text(configuration(directory, host, account))
    (directory / "known_hosts").write_text("\n".join(known) + "\n")
    hosts = [f"{host.address} {host.name}" for host in layout.places]
    (directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *hosts]) + "\n")
    (directory / CLIENT_CONFIGURATION).write_text(client_configuration(directory, account))
    (directory / "passwd").write_text(account.passwd(Path("/etc/passwd").read_text()))
    (directory / "shadow").write_text(f"{account.name}:*:19000:0:99999:7:::\n")


def _write_key(private: Path, public: Path | None) -> str:
    """Writes a new key pair; returns its public line."""
    key = Ed25519PrivateKey.generate()
    private.touch(mode=0o600)
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    if public is not None:
        public.write_text(line + "\n")
    return line


class Keeper:
    """The running servers of one cluster; `pids` by host."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(__file__).with_name("keeper.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the harness handles a Ctrl-C in the terminal
        )
        self.pid = self._popen.pid
        self.pids: dict[str, int] = {}

    def start(self, tasks: Sequence[Mapping[str, object]]) -> None:
        """Starts a process for each of `tasks` (see the module `keeper`). Raises `ClusterError`."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._popen.stdin.write(json.dumps(tasks).encode() + b"\n")
        self._popen.stdin.flush()
        told = json.loads(self._popen.stdout.readline() or b'{"error": "the keeper ended"}')
        if "error" in told:
            raise ClusterError(f"the hosts cannot be started: {told['error']}")
        self.pids = told["pids"]

    def stop(self) -> None:
        """Ends every server and the keeper; harmless twice."""
        assert self._popen.stdin is not None and self._popen.stdout is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(LEAVE_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._popen.stdout.close()


def said(directory: Path, host: str) -> str:
    """The last line of a server's log; empty if there is none."""
    with suppress(OSError):
        lines = (directory / f"{host}.log").read_text().strip().splitlines()
        return f"sshd: {lines[-1]}" if lines else ""
    return ""


def task(directory: Path, host: HostLayout) -> dict[str, object]:
    """One host's server, as the keeper starts it."""
    files = {name: f"/etc/{name}" for name in ("hosts", "passwd", "shadow")}
    log = str(directory / f"{host.name}.log")
    return {
        "host": host.name,
        "namespace": str(namespaces.path_of(host.namespace)),
        "binds": [[str(directory / name), target] for name, target in files.items() if Path(target).exists()],
        "argv": [find_server(), "-D", "-f", str(directory / f"{host.name}.conf"), "-E", log],
    }
