"""The NICs for a restarted job: those of its list that work, as an operator's check before a restart would choose them.

A NIC works if it has a carrier and reaches a NIC of every other host, so that those that are left pair up: where two
hosts lost different rails, nobody keeps either. The hosts tell each other where their NICs listen; an answer counts
even if it is a refusal or the end of the connection, since it came over the NIC.
"""

import asyncio
import fcntl
import json
import os
import socket
import struct
from collections.abc import Iterable, MutableMapping, Sequence
from contextlib import ExitStack
from typing import Protocol

from r2ccl_core.errors import UsageError
from r2ccl_core.host.nics import Nic, find_nics

_SIOCGIFFLAGS = 0x8913
_RUNNING = 0x40
_VARIABLE = "R2CC_SOCKET_IFNAME"
_ANSWER_S = 3.0
"""Long enough for the second of TCP's attempts, which follows the first by a second."""

_BACKLOG = 4096
"""Every NIC of every other host may connect to a listener, which accepts none; with a full queue it is silent."""

_End = tuple[str, int]
"""Where a NIC listens."""


class Store(Protocol):
    """What this needs of a store of ``torch.distributed``."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes:
        """Waits until the key is there."""


def leave_out_dead(store: Store, rank: int, size: int, environ: MutableMapping[str, str] = os.environ) -> list[str]:
    """Removes NICs that do not work from ``R2CC_SOCKET_IFNAME``, if the list has exact names and at least one works.

    Every rank calls this, with the same store. Returns the names that were removed.
    """
    names = _exact_names(environ)
    nics = _with_carrier(names)
    with ExitStack() as listening:
        ends = [_listen(listening, address) for _, address in nics]
        store.set(f"nics/{rank}", json.dumps(ends))
        others = [_ends(store.get(f"nics/{other}")) for other in range(size) if other != rank]
        working = asyncio.run(_that_reach_all(nics, others))
    if not working:
        return []
    environ[_VARIABLE] = "=" + ",".join(working)
    return [name for name in names if name not in working]


def _exact_names(environ: MutableMapping[str, str]) -> list[str]:
    chosen = environ.get(_VARIABLE, "")
    return chosen.removeprefix("=").split(",") if chosen.startswith("=") else []


def _with_carrier(names: Iterable[str]) -> list[Nic]:
    running = [name for name in names if has_carrier(name)]
    try:
        return find_nics({_VARIABLE: "=" + ",".join(running)}) if running else []
    except UsageError:  # none of them has an address
        return []


def has_carrier(name: str) -> bool:
    """Whether the kernel reports that the interface is running."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            told = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", name.encode()[:15], 0))
        except OSError:
            return False
    return bool(struct.unpack("16sH14x", told)[1] & _RUNNING)


def _ends(told: bytes) -> list[_End]:
    return [(address, port) for address, port in json.loads(told)]


def _listen(listening: ExitStack, address: str) -> _End:
    server = listening.enter_context(socket.create_server((address, 0), backlog=_BACKLOG))
    host, port = server.getsockname()
    return host, port


async def _that_reach_all(nics: Sequence[Nic], others: Sequence[Sequence[_End]]) -> list[str]:
    """The names of those of `nics` that reach an end of each of the `others`."""

    async def reaches(nic: Nic, ends: Sequence[_End]) -> bool:
        tries = [asyncio.create_task(answers(nic, end)) for end in ends]
        try:
            for answer in asyncio.as_completed(tries):
                if await answer:
                    return True
            return False
        finally:
            for one in tries:
                one.cancel()

    async def reaches_all(nic: Nic) -> bool:
        return all(await asyncio.gather(*(reaches(nic, ends) for ends in others)))

    found = await asyncio.gather(*(reaches_all(nic) for nic in nics))
    return [name for (name, _), reached in zip(nics, found, strict=True) if reached]


async def answers(nic: Nic, end: _End) -> bool:
    """Whether something came back over `nic` from where a NIC of a peer listens, or did."""
    name, address = nic
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.setblocking(False)
        try:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())
            stream.bind((address, 0))
            async with asyncio.timeout(_ANSWER_S):
                await asyncio.get_running_loop().sock_connect(stream, end)
        # Reset: the peer has found all that it looked for and closed its listener before this program looked again.
        except (ConnectionRefusedError, ConnectionResetError):
            return True
        except (OSError, TimeoutError):
            return False
    return True
