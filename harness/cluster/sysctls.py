"""Kernel settings of every namespace of a cluster, so that a run does not depend on how the machine is configured."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

HOST_SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",  # no neighbour discovery in the byte counters
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/rp_filter": "0",  # several NICs; an answer may leave through another one
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/arp_ignore": "1",  # only the NIC that has an address answers for it
    "net/ipv4/conf/all/arp_announce": "2",
    "net/ipv4/tcp_no_metrics_save": "1",  # a trial's losses must not slow the next trial's connections
}

CONGESTION_CONTROL = "net/ipv4/tcp_congestion_control"
CONGESTION_CONTROLS = ("cubic", "reno")
"""TCP's congestion controls in order of preference. Linux has cubic unless somebody set another one, and lets a
namespace choose only among those that the machine permits to all; reno is one of them unless somebody removed it."""


def settle(congestion_controls: Sequence[str] = CONGESTION_CONTROLS) -> None:
    """Applies all settings in the namespace of the calling thread, with the first of the congestion controls that it
    may use.

    If the list is empty, or none is permitted, the machine's own stays. Raises OSError.
    """
    for key, value in HOST_SYSCTLS.items():
        write(key, value)
    for name in congestion_controls:
        with suppress(OSError):
            Path("/proc/sys", CONGESTION_CONTROL).write_text(name)
            return


def congestion_control() -> str:
    """The congestion control of the calling thread's namespace."""
    return Path("/proc/sys", CONGESTION_CONTROL).read_text().strip()


def write(key: str, value: str) -> None:
    """Writes one setting; a kernel without the key (no IPv6) needs none. Raises OSError if the kernel refuses the
    value."""
    with suppress(FileNotFoundError):
        Path("/proc/sys", key).write_text(value)
