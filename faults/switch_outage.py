"""A whole rail fails: all ports of one switch plane are taken down together."""

from typing import ClassVar

from faults.base import Scope
from faults.switch_port_down import SwitchPortDown


class SwitchOutage(SwitchPortDown):
    """`switch_port_down` for every NIC of the rail at once; no parameters."""

    kind: ClassVar[str] = "switch_outage"
    scope: ClassVar[Scope] = "rail"
