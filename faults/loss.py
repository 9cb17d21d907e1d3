"""Packets are lost at random, as on a bad cable or an overfull port."""

from typing import ClassVar

from pydantic import Field

from faults import filter as drop
from faults.base import DEGRADED, Argv, Direction, Effect, Fault, PlotHint, Recipe, Sign, Target


class Loss(Fault):
    """Drops each packet with the given probability, at the host.

    A packet is what the kernel hands over: with segmentation offload up to 64 KiB at once, so few but large pieces are
    lost; the share of bytes is the same. Needs no netem and does not change the NIC's qdiscs.
    """

    kind: ClassVar[str] = "loss"
    colour: ClassVar[str | None] = DEGRADED
    needs: ClassVar[frozenset[str]] = drop.NEEDS
    rehearsal: ClassVar[tuple[Argv, ...]] = drop.REHEARSAL

    percent: float = Field(default=1.0, gt=0, le=100, description="share of packets that are lost, in percent")
    direction: Direction = Field(default="both", description="as the host sees it: tx, rx or both")

    def recipe(self, target: Target) -> Recipe:
        """One random program for each direction."""
        return drop.recipe(target.own, self.direction, drop.drop_share(self.percent / 100), self.kind)

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The filters are there."""
        return drop.signs(target.own, self.direction)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """A share of the packets is lost; all of them is a dead NIC."""
        share = self.percent / 100
        dead = 0.0 if share >= 1 else 1.0
        return (Effect(target.host, target.nic, dead, loss=share, direction=self.direction),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} {target.nic} loses {self.percent:g} %", self.colour)
