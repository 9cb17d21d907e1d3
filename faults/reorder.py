"""Packets overtake each other, as when a flow is spread over unequal routes."""

from typing import ClassVar

from pydantic import Field

from faults.base import DEGRADED, Effect, PlotHint, Target
from faults.netem import Netem
from faults.quantities import Seconds


class Reorder(Netem):
    """Sends a share of the packets at once, and the others `delay` later."""

    kind: ClassVar[str] = "reorder"
    colour: ClassVar[str | None] = DEGRADED

    percent: float = Field(default=10.0, gt=0, le=100, description="share of packets that overtake, in percent")
    delay: Seconds = Field(default=0.002, gt=0, le=10, description="such as '2 ms'")

    def words(self) -> tuple[str, ...]:
        """The emulator reorders only what it delays."""
        return ("delay", f"{round(self.delay * 1e6)}us", "reorder", f"{self.percent:g}%")

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """A longer latency."""
        return (Effect(target.host, target.nic, added_delay_s=self.delay, direction="tx"),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} {target.nic} reorders {self.percent:g} %", self.colour)
