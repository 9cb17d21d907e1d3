"""Links taken down and up again: the commands that several faults share."""

from collections.abc import Sequence

from faults.base import Order, Recipe, Target
from r2ccl_core.model.token_bucket import HANDLE

_AWAIT = """\
import os, sys, time
end = time.monotonic() + 20
while not os.path.exists(sys.argv[1]):
    time.monotonic() < end or sys.exit(sys.argv[1] + " does not come back")
    time.sleep(0.05)
"""
_PRESENCE = """\
import os, sys
print("present" if os.path.exists(sys.argv[1]) else "absent")
"""


def down(target: Target) -> Order:
    """The host takes its own NIC down."""
    return target.here("ip", "link", "set", "dev", target.nic, "down")


def up_again(target: Target) -> tuple[Order, ...]:
    """Up; IPv4 addresses and their routes come back by themselves, IPv6 addresses and other routes are restored."""
    lost = [address for address in target.addresses if ":" in address]
    return (target.here("ip", "link", "set", "dev", target.nic, "up"), *configured(target, lost))


def configured(target: Target, addresses: Sequence[str]) -> tuple[Order, ...]:
    """Restores those of these addresses and routes that are lost."""
    nic = target.nic
    added = (target.here("-ip", "addr", "add", address, "dev", nic, *_at_once(address)) for address in addresses)
    return (*added, *(target.here("-ip", "route", "add", *route) for route in target.routes))


def presence(target: Target) -> Order:
    """Prints whether the interface is ``present`` or ``absent``."""
    return target.here("python3", "-I", "-S", "-c", _PRESENCE, f"/sys/class/net/{target.nic}")


def new_again(target: Target) -> tuple[Order, ...]:
    """Waits for an interface that its driver creates again, then restores it: MTU, rate limit, addresses, routes, and
    the Soft-RoCE device that was on it."""
    nic, shaping = target.nic, target.own.shaping
    mtu = ("mtu", str(target.mtu)) if target.mtu else ()
    add = ("-tc", "qdisc", "add", "dev", nic, "root", "handle", HANDLE)
    soft = ("-rdma", "link", "add", target.soft_rdma or "", "type", "rxe", "netdev", nic)
    return (
        target.here("python3", "-I", "-S", "-c", _AWAIT, f"/sys/class/net/{nic}"),
        *((target.here(*add, *shaping.words),) if shaping else ()),
        target.here("ip", "link", "set", "dev", nic, *mtu, "up"),
        *configured(target, target.addresses),
        *((target.here(*soft),) if target.soft_rdma else ()),
    )


def _at_once(address: str) -> tuple[str, ...]:
    """The host had the address before, so no other host has it; duplicate address detection, which takes a second, is
    skipped."""
    return ("nodad",) if ":" in address else ()


def taken_down(target: Target) -> Recipe:
    """The recipe of a NIC that is down from inject to heal."""
    return Recipe((down(target),), up_again(target))
