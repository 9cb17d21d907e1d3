"""A NIC that is slowed down: a port that trained to a lower speed, a misconfigured shaper, a throttled card."""

from typing import ClassVar, Literal

from pydantic import Field

from faults.base import (
    DEGRADED,
    TAG,
    Argv,
    Device,
    Direction,
    Effect,
    Fault,
    Order,
    PlotHint,
    Probe,
    Quiet,
    Recipe,
    Sign,
    Target,
)
from faults.errors import NotPossibleError
from faults.quantities import BitRate, ShareOrRate
from r2ccl_core.model.token_bucket import HANDLE, TokenBucket
from r2ccl_core.units import format_rate

QUEUED_S = 0.05
"""If two samples straddle the change, this much may still have passed at the old rate."""


class RateLimit(ShareOrRate, Fault):
    """Limits what the NIC sends (at the host) and receives (at its switch port) by token buckets."""

    kind: ClassVar[str] = "rate_limit"
    colour: ClassVar[str | None] = DEGRADED
    needs: ClassVar[frozenset[str]] = frozenset({"tc"})
    rehearsal: ClassVar[tuple[Argv, ...]] = (
        ("tc", "qdisc", "add", "dev", "lo", "root", *TokenBucket.for_rate(1e9).words),
    )

    share: float = Field(default=0.1, gt=0, lt=1, description="of the NIC's rate that is left")
    rate: BitRate | None = Field(default=None, gt=0, description="what is left, instead of share, such as '50 Mbit/s'")
    direction: Direction = Field(default="tx", description="as the host sees it: tx, rx (at the switch port) or both")

    @property
    def uses_port(self) -> bool:
        """For what the NIC receives."""
        return self.direction != "tx"

    def recipe(self, target: Target) -> Recipe:
        """A smaller bucket if there is one, else a new one."""
        slow = TokenBucket.for_rate(self._left_bit_s(target))
        inject: list[Order] = []
        heal: list[Order] = []
        for device in self._ends(target):
            usual = device.shaping
            change = ("tc", "qdisc", "change" if usual else "add", "dev", device.name, "root", "handle")
            handle = HANDLE if usual else f"{TAG}:"
            inject.append(device.run(*change, handle, *slow.words))
            delete = ("-tc", "qdisc", "del", "dev", device.name, "root", "handle", handle)
            back = (*change, handle, *usual.words) if usual else delete
            heal.append(device.run(*back))
        return Recipe(tuple(inject), tuple(heal))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The kernel shows this rate, and no more bytes pass than it allows."""
        left = self._left_bit_s(target)
        slow, full = TokenBucket.for_rate(left), (target.rate_bit_s or left) / 8
        probes = [
            Probe(device.run("tc", "-j", "qdisc", "show", "dev", device.name, "root"), rf'"rate":{slow.rate_bytes_s}\b')
            for device in self._ends(target)
        ]
        slack = int(slow.burst_bytes + slow.limit_bytes + full * QUEUED_S)
        ways: tuple[Literal["tx", "rx"], ...] = ("tx", "rx") if self.direction == "both" else (self.direction,)
        host, nic = target.host, target.nic
        return (*probes, *(Quiet(host, nic, way, slack, slow.rate_bytes_s * 1.05) for way in ways))

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The NIC keeps a share of its rate."""
        share = self._left_bit_s(target) / target.rate_bit_s if self.rate and target.rate_bit_s else self.share
        return (Effect(target.host, target.nic, rate_factor=min(share, 1.0), direction=self.direction),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        left = format_rate(self.rate) if self.rate else f"{self.share:.0%}"
        return PlotHint(f"{target.host} {target.nic} slowed to {left}", self.colour)

    def _left_bit_s(self, target: Target) -> float:
        if self.rate is not None:
            if target.rate_bit_s is not None and self.rate >= target.rate_bit_s:
                raise NotPossibleError(
                    f"{self.kind}: {format_rate(self.rate)} is no less than the {format_rate(target.rate_bit_s)} "
                    f"of {target.host} {target.nic}; give a lower rate"
                )
            return self.rate
        if target.rate_bit_s is None:
            raise NotPossibleError(
                f"{self.kind}: the rate of {target.host} {target.nic} is not known; give rate instead of share"
            )
        return target.rate_bit_s * self.share

    def _ends(self, target: Target) -> list[Device]:
        """The devices that send what is to be limited."""
        ends = []
        if self.direction in ("tx", "both"):
            ends.append(target.own.free_root(self.kind))
        if self.direction in ("rx", "both"):
            ends.append(target.port(f"{self.kind} of what a NIC receives").free_root(self.kind))
        return ends
