"""Linux's network emulator at the root of a NIC: the commands of the faults that delay, corrupt or reorder.

A permanent rate limit of the NIC moves below the emulator meanwhile, and is restored afterwards.
"""

from typing import ClassVar

from faults.base import TAG, Argv, Fault, Probe, Recipe, Sign, Target
from r2ccl_core.model.token_bucket import HANDLE

QUEUE_PACKETS = "100000"
"""Capacity of the emulator, large enough that it never drops a packet itself."""


BELOW = "52cd:"
"""The handle of the rate limit below the emulator. It differs from the usual one: the kernel moves no qdisc to another
parent, so the usual one could not be restored at the root while the emulator is there."""


class Netem(Fault):
    """A fault that is made by the emulator, for what the host sends."""

    needs: ClassVar[frozenset[str]] = frozenset({"tc"})
    rehearsal: ClassVar[tuple[Argv, ...]] = (("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),)

    def words(self) -> tuple[str, ...]:
        """The emulator's parameters."""
        raise NotImplementedError

    def recipe(self, target: Target) -> Recipe:
        """The emulator at the root; the usual rate limit, if there is one, below it."""
        shaping = target.own.free_root(self.kind).shaping
        root, emulator = ("dev", target.nic, "root", "handle"), ("netem", "limit", QUEUE_PACKETS, *self.words())
        if shaping is None:
            add = target.here("tc", "qdisc", "add", *root, f"{TAG}:", *emulator)
            return Recipe((add,), (target.here("-tc", "qdisc", "del", *root, f"{TAG}:"),))
        emulate = ("tc", "qdisc", "replace", *root, f"{TAG}:", *emulator)
        below = ("tc", "qdisc", "add", "dev", target.nic, "parent", f"{TAG}:1", "handle", BELOW)
        inject = (target.here(*emulate), target.here(*below, *shaping.words))
        return Recipe(inject, (target.here("tc", "qdisc", "replace", *root, HANDLE, *shaping.words),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The emulator is there."""
        return (Probe(target.here("tc", "qdisc", "show", "dev", target.nic, "root"), rf"netem {TAG}:"),)
