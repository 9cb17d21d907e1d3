"""Every data NIC of a host is taken down; the management network is never among them."""

from typing import ClassVar

from faults.base import Scope
from faults.nic_down import NicDown


class HostIsolate(NicDown):
    """`nic_down` on all NICs of the host at once; no parameters."""

    kind: ClassVar[str] = "host_isolate"
    scope: ClassVar[Scope] = "host"
