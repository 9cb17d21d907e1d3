"""Kernel settings of every namespace of a cluster, so that a run does not depend on how the machine is configured."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",  # no neighbour discovery in the byte counters
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/rp_filter": "0",  # several NICs; an answer may leave by another one
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/arp_ignore": "1",  # only the NIC that has an address answers for it
    "net/ipv4/conf/all/arp_announce": "2",
    "net/ipv4/tcp_no_metrics_save": "1",  # a trial's losses must not slow the next trial's connections
}

CONGESTION_CONTROL = "net/ipv4/tcp_congestion_control"
CONGESTION_CONTROLS = ("cubic", "reno")
"""Of TCP, in the order of preference. Linux has cubic unless somebody set another one, and lets a namespace choose only
among those that the machine allows everybody; reno is one of them unless somebody took it away."""


def settle(congestion_controls: Sequence[str] = CONGESTION_CONTROLS) -> None:
    """Sets all of it in the namespace of the calling thread: of congestion controls, the first that it may have.

    Without any, or where it may have none of them, it keeps the machine's own. Raises OSError.
    """
    for key, value in HOST_SYSCTLS.items():
        write(key, value)
    for name in congestion_controls:
        with suppress(OSError):
            Path("/proc/sys", CONGESTION_CONTROL).write_text(name)
            return


def congestion_control() -> str:
    """That of the calling thread's namespace."""
    return Path("/proc/sys", CONGESTION_CONTROL).read_text().strip()


def write(key: str, value: str) -> None:
    """One setting; a kernel without the key (no IPv6) needs none. Raises OSError where the kernel refuses the value."""
    with suppress(FileNotFoundError):
        Path("/proc/sys", key).write_text(value)
