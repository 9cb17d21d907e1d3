"""A silent black hole: the link stays up, and packets in one direction, the other, or both are dropped without a
sign."""

from typing import ClassVar, Literal

from pydantic import Field

from faults import filter as drop
from faults.base import QUEUED_BYTES, SILENT, Argv, Device, Direction, Effect, Fault, Quiet, Recipe, Sign, Target

RESENT_BYTES = 8 << 20
"""What a peer may still send into the black hole: a full window, then retransmissions that become rare."""


class Blackhole(Fault):
    """Drops every packet of the NIC at its host, or at its switch port, where the host cannot even see it."""

    kind: ClassVar[str] = "blackhole"
    colour: ClassVar[str | None] = SILENT
    needs: ClassVar[frozenset[str]] = drop.NEEDS
    rehearsal: ClassVar[tuple[Argv, ...]] = drop.REHEARSAL

    direction: Direction = Field(default="both", description="as the host sees it: tx, rx or both")
    at: Literal["host", "switch"] = Field(default="host", description="where packets are dropped")

    @property
    def uses_port(self) -> bool:
        """If requested."""
        return self.at == "switch"

    def recipe(self, target: Target) -> Recipe:
        """One program that drops everything."""
        device, direction = self._hook(target)
        return drop.recipe(device, direction, drop.DROP_ALL, self.kind)

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The filter is there; a NIC's counters count before its own filter when receiving, after it when sending."""
        device, direction = self._hook(target)
        host, nic = target.host, target.nic
        tx = (
            [Quiet(host, nic, "tx", QUEUED_BYTES if self.at == "host" else RESENT_BYTES)]
            if self.direction != "rx"
            else []
        )
        rx = [Quiet(host, nic, "rx", 10_000 if self.at == "switch" else RESENT_BYTES)] if self.direction != "tx" else []
        return (*drop.signs(device, direction), *tx, *rx)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC is dead in that direction."""
        return (Effect(target.host, target.nic, rate_factor=0.0, direction=self.direction),)

    def _hook(self, target: Target) -> tuple[Device, Direction]:
        """The device, and the direction as it sees it."""
        if self.at == "host":
            return target.own, self.direction
        turned: dict[Direction, Direction] = {"tx": "rx", "rx": "tx", "both": "both"}
        return target.port(f"{self.kind} at the switch"), turned[self.direction]
