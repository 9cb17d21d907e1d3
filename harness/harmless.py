"""A console on which names from files are text only: no letter of theirs is obeyed by a terminal.

A module of its own, because rich takes a twentieth of a second to import, which `--help` need not wait for.
"""

from typing import Any

from rich.console import Console
from rich.text import Text

from r2ccl_core.output import harmless


class HarmlessConsole(Console):
    """What is printed here as a string, also in the cells of a table, shows its control characters escaped."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Every string becomes text here."""
        return super().render_str(harmless(text), **how)
