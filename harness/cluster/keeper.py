"""The keeper: the parent of a cluster's SSH servers and virtual machines. A stand-alone file, so that it starts at
once.

It reads one JSON line: a list of {"host", "namespace", "binds": [[from, to], ...], "argv", "log"}. For each entry it
forks a process that enters the network namespace, gets its own mount and UTS namespaces (host name, an empty /run, a
/sys that shows the host's NICs, the files in `binds`), and becomes the command, whose stderr goes to the file `log` if
there is one. It writes one JSON line: {"pids": {host: pid}} or {"error": "..."}. When its standard input ends, it ends
the processes and itself. So they do not outlive the harness, even if that is killed.
"""

import ctypes
import json
import os
import select
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_BIND, MS_REC, MS_SLAVE, MNT_DETACH = 0x1000, 0x4000, 1 << 19, 2
MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raises OSError if a system call failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """mount(2)."""
    result = libc.mount(source.encode(), target.encode(), kind.encode(), flags, None)
    check(result, f"mount {source} on {target}")


def become(host: dict[str, Any]) -> None:
    """Turns this process into the host's command."""
    os.setsid()
    fd = os.open(host["namespace"], os.O_RDONLY | os.O_CLOEXEC)
    check(libc.setns(fd, CLONE_NEWNET), "enter the network namespace")
    check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS), "make a mount namespace")
    mount("none", "/", "none", MS_REC | MS_SLAVE)
    name = host["host"].encode()
    check(libc.sethostname(name, len(name)), "set the host name")
    # Unmounted, not only hidden: a copy of these mounts would keep every other namespace alive.
    libc.umount2(b"/run/netns", MNT_DETACH)
    mount("r2ccl", "/run", "tmpfs", MS_NOSUID_NODEV_NOEXEC)
    Path("/run/sshd").mkdir(mode=0o755)
    show_nics()
    for source, target in host["binds"]:
        mount(source, target, "none", MS_BIND)
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(host["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if host.get("log") else null
    for standard, target in ((0, null), (1, log), (2, log)):
        os.dup2(target, standard)
    signal.set_wakeup_fd(-1)
    os.execv(host["argv"][0], host["argv"])


def show_nics() -> None:
    """Mounts a /sys of this network namespace. If the kernel refuses (in some containers), the old one stays, which
    shows the caller's NICs: only programs that read rates from /sys notice.
    """
    with suppress(OSError):
        mount("r2ccl", "/sys", "sysfs", MS_NOSUID_NODEV_NOEXEC)


def start(host: dict[str, Any]) -> tuple[int, str]:
    """The process id, and why it did not start (empty if it did)."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            become(host)
        except BaseException as e:
            os.write(writer, str(e).encode())
        os._exit(1)
    os.close(writer)
    said = b""
    while chunk := os.read(reader, 4096):
        said += chunk
    os.close(reader)
    return pid, said.decode()


def main() -> None:
    """Starts, waits for the end of standard input, stops."""
    pids, error, line = {}, "", sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # the harness was stopped before it had told what to start
        return
    for host in json.loads(line):
        pids[host["host"]], error = start(host)
        if error:
            error = f"{host['host']}: {error}"
            break
    print(json.dumps({"error": error} if error else {"pids": pids}), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if not error:
            select.select([0], [], [])
    finally:
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in pids.values():
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
