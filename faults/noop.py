"""No fault at all: the whole life of a fault trial, with a network that stays healthy."""

from dataclasses import dataclass
from typing import ClassVar

from faults.base import Argv, Effect, PlotHint, Target


@dataclass(frozen=True)
class Noop:
    """Injects nothing, heals nothing; no parameters."""

    kind: ClassVar[str] = "noop"
    needs: ClassVar[frozenset[str]] = frozenset()

    def inject(self, target: Target) -> tuple[Argv, ...]:
        """No command."""
        return ()

    def heal(self, target: Target) -> tuple[Argv, ...]:
        """No command."""
        return ()

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The topology stays as it is."""
        return ()

    def plot(self, target: Target) -> PlotHint:
        """A mark without a shade."""
        return PlotHint("no fault", None)
