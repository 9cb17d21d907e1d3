"""A link that comes and goes: down for a part of every period, up for the rest, until it is healed."""

from typing import ClassVar

from pydantic import Field

from faults import link
from faults.base import Effect, Fault, LinkDown, Recipe, Sign, Target
from faults.quantities import Seconds


class Flap(Fault):
    """Takes the NIC down and up again, period after period, by the healer's own clock."""

    kind: ClassVar[str] = "flap"

    period: Seconds = Field(default=0.2, ge=0.01, le=600, description="from one loss to the next, such as '200 ms'")
    duty: float = Field(default=0.5, gt=0, lt=1, description="share of the period in which the link is down")

    @property
    def again_s(self) -> float:
        """Every period begins with a loss."""
        return self.period

    def recipe(self, target: Target) -> Recipe:
        """Down at once, then up and down alternately."""
        up, *routes = link.up_again(target)
        down_s = self.period * self.duty
        back = tuple((0.0, route) for route in routes)
        repeat = ((down_s, up), *back, (self.period - down_s, link.down(target)))
        return Recipe((link.down(target),), (up, *routes), repeat)

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """At times there is no carrier."""
        return (LinkDown(target.host, target.nic, always=False),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """Dead while it is down: a transport that gives up at the first loss ends here."""
        return (Effect(target.host, target.nic, rate_factor=0.0),)
