"""Packets arrive twice, as when a switch floods or a link layer retransmits."""

from typing import ClassVar

from pydantic import Field

from faults.base import DEGRADED, PlotHint, Target
from faults.netem import Netem


class Duplicate(Netem):
    """Sends a share of the packets of the host a second time, right behind the first."""

    kind: ClassVar[str] = "duplicate"
    colour: ClassVar[str | None] = DEGRADED

    percent: float = Field(default=5.0, gt=0, le=100, description="share of packets that are sent twice, in percent")

    def words(self) -> tuple[str, ...]:
        """A random share."""
        return ("duplicate", f"{self.percent:g}%")

    def effects(self, target: Target) -> tuple[()]:
        """The topology stays the same: duplicates are dropped, and do not reach the rate limit."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} {target.nic} duplicates {self.percent:g} %", self.colour)
