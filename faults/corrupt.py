"""Packets arrive with a flipped bit; TCP's checksum detects most of them, and drops them."""

from typing import ClassVar

from pydantic import Field

from faults.base import DEGRADED, Effect, PlotHint, Target
from faults.netem import Netem


class Corrupt(Netem):
    """Flips one bit at a random place in a share of the packets that the host sends."""

    kind: ClassVar[str] = "corrupt"
    colour: ClassVar[str | None] = DEGRADED

    percent: float = Field(default=1.0, gt=0, le=100, description="share of packets that are corrupted, in percent")

    def words(self) -> tuple[str, ...]:
        """A random share."""
        return ("corrupt", f"{self.percent:g}%")

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """For a transport with checksums, the same as loss."""
        return (Effect(target.host, target.nic, loss=self.percent / 100, direction="tx"),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} {target.nic} corrupts {self.percent:g} %", self.colour)
