"""A rank dies: the others must report it and end, and must not wait forever."""

from typing import ClassVar

from faults import process
from faults.base import GONE, Fault, PlotHint, Recipe, Scope, Sign, Target


class ProcessKill(Fault):
    """SIGKILL to the rank; no parameters. No transport can hide it."""

    kind: ClassVar[str] = "process_kill"
    colour: ClassVar[str | None] = GONE
    scope: ClassVar[Scope] = "process"
    needs: ClassVar[frozenset[str]] = frozenset({"kill"})
    kills: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """There is nothing to heal."""
        return Recipe((process.signal(target, "KILL", self.kind),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The rank's own exit status is the sign."""
        return ()

    def effects(self, target: Target) -> tuple[()]:
        """The network stays the same."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"rank on {target.host} killed", self.colour)
