"""Runs a command where an ordinary user may make namespaces. A stand-alone file: `user_namespace.py COMMAND...`

It moves itself into new user, mount and network namespaces, keeps the user's own number there (so that sshd, which then
is not root, needs no privilege separation), gets an empty /run (for /run/netns), adds all capabilities to the ambient
set (so that they survive an exec by a user who is not root), and becomes COMMAND. The capabilities apply to the new
namespaces only. Exit code 2 and one line if the kernel refuses.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 1 << 18
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2
CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

REMEDY = (
    "run as root, or allow user namespaces: sysctl kernel.unprivileged_userns_clone=1 (older Debian), "
    "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces=10000"
)

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Raises OSError if a system call failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter() -> None:
    """Moves this process, which must have only one thread."""
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET), "make a user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    check(libc.mount(b"none", b"/", b"none", MS_REC | MS_PRIVATE, None), "make mounts private")
    check(libc.mount(b"r2ccl", b"/run", b"tmpfs", 0, b"mode=755"), "mount /run")


def keep_capabilities() -> None:
    """Makes the permitted capabilities inheritable and ambient."""
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    check(libc.capget(header, data), "read capabilities")
    words = list(struct.unpack("6I", data.raw))  # effective, permitted, inheritable; low words, then high
    words[2], words[5] = words[1], words[4]
    check(libc.capset(header, struct.pack("6I", *words)), "keep capabilities")
    for number in range(64):
        if (words[1] | words[4] << 32) >> number & 1:
            check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, number, 0, 0), "keep capabilities")


def raise_loopback() -> None:
    """Brings `lo` up in the new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s.fileno(), SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP))


def main(command: list[str]) -> None:
    """Becomes `command`."""
    try:
        enter()
        keep_capabilities()
        raise_loopback()
    except OSError as e:
        sys.exit(_refused(e))
    os.execv(command[0], command)


def _refused(error: OSError) -> int:
    print(f"a local cluster cannot be made by this user: {error.strerror}; {REMEDY}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main(sys.argv[1:])
