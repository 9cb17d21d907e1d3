"""Restarts a host and waits for it: it goes away, comes back, and its kernel reports another boot ID."""

import time
from contextlib import suppress
from threading import Event

from harness.errors import HostError, HostTimeoutError
from harness.hosts.base import Argv, Host

BOOT_ID = "/proc/sys/kernel/random/boot_id"
AWAKE_S = 1800.0
"""How long a host may take: a server with much memory and firmware on its cards takes ten minutes and more."""
PAUSE_S = 1.0


def boot_id(host: Host) -> str:
    """The boot ID of the running kernel."""
    return host.run(["cat", BOOT_ID]).stdout.strip()


def reboot(
    host: Host, argv: Argv, stopped: Event | None = None, limit_s: float = AWAKE_S, pause_s: float = PAUSE_S
) -> None:
    """Restarts a connected host by `argv` and returns when it is connected again after another boot.

    Raises `HostTimeoutError` if this takes too long, `HostError` once `stopped` is set meanwhile.
    """
    stopped = stopped or Event()
    before = boot_id(host)
    with suppress(HostError):  # it may go down before it answers
        host.run(argv, timeout_s=30.0)
    deadline = time.monotonic() + limit_s
    last = "it has not gone down"
    while time.monotonic() < deadline:
        host.close()
        try:
            host.connect()
            if boot_id(host) != before:
                return
            last = "it answers, and is still the boot before"
        except HostError as error:
            last = error.message
        if stopped.wait(pause_s):
            raise HostError(host.name, "was restarted, and nobody waits for it any more")
    raise HostTimeoutError(host.name, f"has not come back within {limit_s:g} s of its restart: {last}")
