"""A system under test: its environment and libraries, the backends that run it, and the required evidence of its
network."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Expectation = Literal["ok", "failed", "either"]
Mode = Literal[0, 1, 2, 3]

PATH = "{path}"
"""Placeholder in an environment's values for the experiment's `path`."""

NCCL_LOG = {"NCCL_DEBUG": "INFO"}
"""Without it, NCCL does not log which network it uses."""


@dataclass(frozen=True)
class System:
    """One entry of the catalogue. `mode` is the meaning of R2CC_MODE, also for systems that do not read it."""

    name: str
    what: str
    """One line for people."""
    needs: str
    """The requirements on hosts, for people."""
    backends: tuple[str, ...]
    """The backends that can run it, the usual one first."""
    mode: Mode
    expect_on_fault: Expectation
    env: Mapping[str, str] = field(default_factory=dict)
    network: str | None = None
    """The name that the log must show as the network used; None: any network."""
    path: Literal["none", "plugin", "library"] = "none"
    """The object that the experiment's `path` names, if the system takes one."""
    nics_in_turn: bool = False
    """Whether one NIC carries each operation, and the next NIC the next one; otherwise all NICs may carry each."""
