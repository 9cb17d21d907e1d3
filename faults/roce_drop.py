"""Only RoCE is dropped, without a sign, as by a switch that filters it or whose lossless class is stuck; TCP passes."""

from typing import ClassVar

from pydantic import Field

from faults import filter as drop
from faults.base import SILENT, Argv, Direction, Effect, Fault, Recipe, Sign, Target
from faults.errors import NotPossibleError

DROP_ROCE = f"9,40 0 0 12,21 0 6 2048,48 0 0 23,21 0 4 17,177 0 0 14,72 0 0 16,21 0 1 4791,{drop.DROP},{drop.PASS}"
"""ldh [12]; jne 0x800, pass; ldb [23]; jne UDP, pass; ldxb 4*([14]&0xf); ldh [x+16]; jne PORT, pass; drop; pass.
From the Ethernet header on; InfiniBand has none."""


class RoceDrop(Fault):
    """Drops RoCE v2 packets (UDP port 4791) of the NIC at its host. TCP traffic is not affected. The host's kernel sees
    nothing of hardware RDMA, so this acts on Soft-RoCE only."""

    kind: ClassVar[str] = "roce_drop"
    colour: ClassVar[str | None] = SILENT
    needs: ClassVar[frozenset[str]] = drop.NEEDS
    rehearsal: ClassVar[tuple[Argv, ...]] = drop.REHEARSAL

    direction: Direction = Field(default="both", description="as the host sees it: tx, rx or both")

    def recipe(self, target: Target) -> Recipe:
        """One program that drops them."""
        if target.soft_rdma is None:
            raise NotPossibleError(
                f"{self.kind}: {target.host} {target.nic} has no Soft-RoCE device; hardware's packets pass the host's "
                "kernel by: filter UDP port 4791 at the switch"
            )
        return drop.recipe(target.own, self.direction, DROP_ROCE, self.kind)

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The filters are there."""
        return drop.signs(target.own, self.direction)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """None if TCP takes over on the same NIC."""
        return ()
