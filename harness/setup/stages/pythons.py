"""The choice of a host's Python for the environment that ranks run in. Pure."""

from collections.abc import Mapping
from typing import Any

OLDEST = (3, 11)
"""The oldest Python that runs this package."""

PACKAGED = "python3.11"
"""The Python to install on a host that has only older ones (Ubuntu 22.04: 3.10)."""


def best(pythons: Mapping[str, Mapping[str, Any]], headers: bool) -> tuple[str, str] | None:
    """Name and path of the newest complete Python; the system's own comes before others of its version."""
    fit = [
        (tuple(facts["version"]), name, str(facts["path"]))
        for name, facts in pythons.items()
        if tuple(facts["version"]) >= OLDEST and facts["venv"] and (facts["header"] or not headers)
    ]
    return max(fit, key=lambda python: (python[0], python[1] == "python3"))[1:] if fit else None


def packages(pythons: Mapping[str, Mapping[str, Any]], headers: bool) -> list[str]:
    """The packages of Debian and Ubuntu without which `best` finds none."""
    if best(pythons, headers):
        return []
    recent = [name for name, facts in pythons.items() if tuple(facts["version"]) >= OLDEST]
    name = "python3" if "python3" in recent else next(iter(sorted(recent)), PACKAGED)
    return [*([] if recent else [name]), f"{name}-venv", *([f"{name}-dev"] if headers else [])]
