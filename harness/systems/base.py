"""What a system under test is: environment and libraries, the backends that run it, and what its trial must show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Expectation = Literal["ok", "failed"]
Mode = Literal[0, 1, 2, 3]

PATH = "{path}"
"""In an environment's values: where the experiment's `path` goes."""

NCCL_LOG = {"NCCL_DEBUG": "INFO"}
"""Without it, NCCL does not say which network it uses."""


@dataclass(frozen=True)
class System:
    """One entry of the catalogue. `mode` is what R2CC_MODE means, also for a system that never heard of it."""

    name: str
    what: str
    """One line for people."""
    needs: str
    """What hosts must have, for people."""
    backends: tuple[str, ...]
    """Those that can run it, the usual one first."""
    mode: Mode
    expect_on_fault: Expectation
    env: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    """The name that the log must show as the network used; None: any that is one."""
    path: Literal["none", "plugin", "library"] = "none"
    """What the experiment's `path` names, if it takes one."""
