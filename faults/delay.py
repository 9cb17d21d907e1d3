"""Packets that the host sends are late, by a fixed time and a random one."""

from typing import ClassVar

from pydantic import Field

from faults.base import DEGRADED, Effect, PlotHint, Target
from faults.netem import Netem
from faults.quantities import Seconds


class Delay(Netem):
    """Adds `delay` to every packet, plus or minus up to `jitter`."""

    kind: ClassVar[str] = "delay"
    colour: ClassVar[str | None] = DEGRADED

    delay: Seconds = Field(default=0.01, gt=0, le=60, description="such as '10 ms'")
    jitter: Seconds = Field(default=0.0, ge=0, le=60, description="such as '2 ms'")

    def words(self) -> tuple[str, ...]:
        """Whole microseconds."""
        jitter = (f"{round(self.jitter * 1e6)}us",) if self.jitter else ()
        return ("delay", f"{round(self.delay * 1e6)}us", *jitter)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """A longer latency."""
        return (Effect(target.host, target.nic, added_delay_s=self.delay, direction="tx"),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"{target.host} {target.nic} delayed by {self.delay * 1e3:g} ms", self.colour)
