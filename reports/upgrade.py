"""Upgrades files of older schema versions: one function for each version that a file had. Pure.

A step takes the JSON values of a file of its version and returns those of the next version. The result is validated
like any other file, so a step need only be careful with the types of damaged values, not with their content.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

SCHEMA = 5
"""The version of every file of a run folder. It is raised by any change that an old reader would misread."""
OLDEST = 1
"""The oldest version that can be upgraded."""

Kind = Literal["run", "trial"]
Values = dict[str, Any]


def upgraded(kind: Kind, values: Values, version: int) -> Values:
    """Upgrades `values` from schema `version` (`OLDEST` to `SCHEMA`) to the newest version."""
    for step in range(version, SCHEMA):
        values = STEPS[step].get(kind, _same)(dict(values)) | {"schema": step + 1}
    return values


def _same(values: Values) -> Values:
    return values


def _named_scenario(values: Values) -> Values:
    """Version 1 stored the scenario only as the third of four parts of the trial's id."""
    trial_id, attempt = str(values.get("trial_id")), values.get("attempt")
    parts = trial_id.removesuffix(f"-a{attempt}").split("-")
    fault = values.get("fault")
    kind = str(fault.get("kind")) if isinstance(fault, dict) else "healthy"
    return {"scenario": parts[2] if len(parts) == 4 else kind} | values


STEPS: Mapping[int, Mapping[str, Callable[[Values], Values]]] = {1: {"trial": _named_scenario}, 2: {}, 3: {}, 4: {}}
"""By starting version, then by kind of file; kinds that are not named did not change."""
