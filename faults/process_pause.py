"""A rank freezes: a process that is stopped, swapped out or stuck, while its NICs and its kernel continue."""

from typing import ClassVar

from faults import process
from faults.base import HALTED, Fault, PlotHint, Probe, Recipe, Scope, Sign, Target


class ProcessPause(Fault):
    """SIGSTOP to the rank, then SIGCONT; no parameters. Slow is not dead: nothing may fail over."""

    kind: ClassVar[str] = "process_pause"
    colour: ClassVar[str | None] = HALTED
    scope: ClassVar[Scope] = "process"
    needs: ClassVar[frozenset[str]] = frozenset({"kill", "cat"})
    must_end: ClassVar[bool] = True

    def recipe(self, target: Target) -> Recipe:
        """A rank that has ended meanwhile needs no healing."""
        go_on = process.signal(target, "CONT", self.kind, lenient=True)
        return Recipe((process.signal(target, "STOP", self.kind),), (go_on,))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """The kernel reports that it is stopped."""
        return (Probe(process.status(target, self.kind), r"\) [Tt] "),)

    def effects(self, target: Target) -> tuple[()]:
        """The network stays the same."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        return PlotHint(f"rank on {target.host} paused", self.colour)
