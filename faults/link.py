"""Links taken down and up again: the commands that several faults share."""

from faults.base import Order, Recipe, Target


def down(target: Target) -> Order:
    """The host takes its own NIC down."""
    return target.here("ip", "link", "set", "dev", target.nic, "down")


def up_again(target: Target) -> tuple[Order, ...]:
    """Up; its address brings the connected route back by itself, other routes are put back."""
    up = target.here("ip", "link", "set", "dev", target.nic, "up")
    return (up, *(target.here("-ip", "route", "add", *route) for route in target.routes))


def taken_down(target: Target) -> Recipe:
    """The recipe of a NIC that is down from inject to heal."""
    return Recipe((down(target),), up_again(target))
