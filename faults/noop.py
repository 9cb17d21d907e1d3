"""No fault at all: the whole life of a fault trial, with a network that stays healthy."""

from typing import ClassVar

from faults.base import Fault, PlotHint, Recipe, Target


class Noop(Fault):
    """Injects nothing, heals nothing; no parameters."""

    kind: ClassVar[str] = "noop"
    colour: ClassVar[str | None] = None
    needs: ClassVar[frozenset[str]] = frozenset()

    def recipe(self, target: Target) -> Recipe:
        """No command; the host is armed nevertheless."""
        return Recipe()

    def signs(self, target: Target) -> tuple[()]:
        """Nothing to see."""
        return ()

    def effects(self, target: Target) -> tuple[()]:
        """The topology stays the same."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A mark without a shade."""
        return PlotHint("no fault", self.colour)
