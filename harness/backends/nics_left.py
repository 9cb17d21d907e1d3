"""The NICs for a restarted job: those of its list that have a carrier, as an operator would choose them."""

import fcntl
import os
import socket
import struct
from collections.abc import MutableMapping

_SIOCGIFFLAGS = 0x8913
_RUNNING = 0x40
_VARIABLE = "R2CC_SOCKET_IFNAME"


def leave_out_lost(environ: MutableMapping[str, str] = os.environ) -> list[str]:
    """Removes interfaces without a carrier from ``R2CC_SOCKET_IFNAME``, if the list has exact names and at least one is
    left.

    Returns the names that it removed.
    """
    chosen = environ.get(_VARIABLE, "")
    if chosen.startswith("="):
        names = chosen.removeprefix("=").split(",")
        left = [name for name in names if has_carrier(name)]
        if left:
            environ[_VARIABLE] = "=" + ",".join(left)
            return [name for name in names if name not in left]
    return []


def has_carrier(name: str) -> bool:
    """Whether the kernel reports that the interface is running."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            told = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode()[:15], 0))
        except OSError:
            return False
    return bool(struct.unpack("16sH14x", told)[1] & _RUNNING)
