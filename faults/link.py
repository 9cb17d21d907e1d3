"""Links taken down and up again: the commands that several faults share."""

from collections.abc import Sequence

from faults.base import Order, Recipe, Target


def down(target: Target) -> Order:
    """The host takes its own NIC down."""
    return target.here("ip", "link", "set", "dev", target.nic, "down")


def up_again(target: Target) -> tuple[Order, ...]:
    """Up; IPv4 addresses and their routes come back by themselves, IPv6 addresses and other routes are put back."""
    lost = [address for address in target.addresses if ":" in address]
    return (target.here("ip", "link", "set", "dev", target.nic, "up"), *configured(target, lost))


def configured(target: Target, addresses: Sequence[str]) -> tuple[Order, ...]:
    """Puts back what is lost of these addresses and of all routes."""
    nic = target.nic
    added = (target.here("-ip", "addr", "add", address, "dev", nic, *_at_once(address)) for address in addresses)
    return (*added, *(target.here("-ip", "route", "add", *route) for route in target.routes))


def _at_once(address: str) -> tuple[str, ...]:
    """The address was there before: nobody else has it, so it need not be probed for a second."""
    return ("nodad",) if ":" in address else ()


def taken_down(target: Target) -> Recipe:
    """The recipe of a NIC that is down from inject to heal."""
    return Recipe((down(target),), up_again(target))
