"""Files of older schema versions in the form of today: one function for each version that a file had. Pure.

A step takes the JSON values of a file of its version and returns those of the next one. What comes out is checked
like any other file, so a step need not be careful with damaged values, only with their types.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

SCHEMA = 5
"""The version of every file of a run folder. Any change that an old reader would misread raises it."""
OLDEST = 1
"""The oldest version that can be brought up to date."""

Kind = Literal["run", "trial"]
Values = dict[str, Any]


def upgraded(kind: Kind, values: Values, version: int) -> Values:
    """`values` of schema `version` (`OLDEST` to `SCHEMA`) as the newest version has them."""
    for step in range(version, SCHEMA):
        values = STEPS[step].get(kind, _same)(dict(values)) | {"schema": step + 1}
    return values


def _same(values: Values) -> Values:
    return values


def _named_scenario(values: Values) -> Values:
    """Version 1 had the scenario only as the third of four parts of the trial's id."""
    trial_id, attempt = str(values.get("trial_id")), values.get("attempt")
    parts = trial_id.removesuffix(f"-a{attempt}").split("-")
    fault = values.get("fault")
    kind = str(fault.get("kind")) if isinstance(fault, dict) else "healthy"
    return {"scenario": parts[2] if len(parts) == 4 else kind} | values


STEPS: Mapping[int, Mapping[str, Callable[[Values], Values]]] = {1: {"trial": _named_scenario}, 2: {}, 3: {}, 4: {}}
"""By the version that a step starts from, then by the kind of file; a kind that is not named did not change."""
