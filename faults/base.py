"""The interface of a fault: a pure function from one target to a recipe, signs that prove it, a poorer topology, and a
plot hint.

Nothing here runs anything. The harness arms a recipe's heal commands in detached healers, runs its inject commands and
looks for the signs; the simulator applies the effects to its topology; the report draws the hint. A new fault is one
file: parameters with units, `recipe`, `signs`, `effects`, `plot`, and a line in `faults.registry`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import ConfigDict

from faults.errors import FaultError, NotPossibleError, ProtectedNicError
from faults.numbers import Strict
from r2ccl_core.model.token_bucket import TokenBucket

Argv = tuple[str, ...]
"""One command as the list of its words; no shell ever sees it."""

TAG = "52cc"
"""Identifies our qdiscs (as their handle) and filters (as their preference, hexadecimal)."""

ROUTE_PROTOCOL = "204"
"""Identifies our routes."""

RESERVED_NICS = frozenset({"lo", "mgmt0"})
"""Interfaces that are never a target: loopback, and the one that carries SSH in our own clusters."""

Direction = Literal["tx", "rx", "both"]
"""As the host sees it: what it sends, what it receives."""

Scope = Literal["nic", "rail", "host", "process"]
"""How far one target of a fault extends: itself, all NICs of its rail, all NICs of its host, or a rank's process."""

# Linux: up to 15 bytes, no '/' and no white space; a leading '-' would read as an option of `ip`.
_INTERFACE = re.compile(r"(?!-)[A-Za-z0-9_.:-]{1,15}\Z")


class Order(NamedTuple):
    """A command at a place: a host or a switch by its name.

    A '-' before the first word, as in ``-tc``, means that the command may fail because there was nothing to do.
    """

    place: str
    argv: Argv


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a fault and undoes it. Healing twice, or healing what was never injected, is harmless."""

    inject: tuple[Order, ...] = ()
    """In order; the effect comes with the last command of each place at the latest."""
    heal: tuple[Order, ...] = ()
    repeat: tuple[tuple[float, Order], ...] = ()
    """What repeats after the injection: wait this many seconds, then run the command."""
    beside: tuple[Order, ...] = ()
    """Programs that run from injection to heal. They write a line when they are ready, start when they read one, write
    another once they are working, and end with their input."""

    @property
    def places(self) -> tuple[str, ...]:
        """Every host or switch on which something is done."""
        orders = (*self.inject, *self.heal, *(order for _, order in self.repeat), *self.beside)
        return tuple(dict.fromkeys(order.place for order in orders))


class Probe(NamedTuple):
    """A command that changes nothing: its output matches `while_faulted` during the fault and not afterwards."""

    order: Order
    while_faulted: str


class Quiet(NamedTuple):
    """A NIC's counter that changes by at most this many bytes, and this many per second, while the fault lasts."""

    host: str
    nic: str
    direction: Literal["tx", "rx"]
    slack_bytes: int = 10_000
    """A few frames of ARP or FIN that a NIC may still count while it is taken down."""
    rate_bytes_s: float = 0.0


QUEUED_BYTES = 2 << 20
"""What may still leave a NIC whose link stays up: the content of its queueing disciplines, below the point where a
fault drops."""


class LinkDown(NamedTuple):
    """A NIC without carrier while the fault lasts, or, if not `always`, some of the time."""

    host: str
    nic: str
    always: bool = True


Sign = Probe | Quiet | LinkDown
"""How to see that a fault took effect, and that it is gone."""


@dataclass(frozen=True)
class OvsPort:
    """What Open vSwitch reports about an interface that is a port of one of its bridges."""

    bridge: str
    number: int | None
    """None if the interface cannot be opened: it is configured but does not exist."""
    others: tuple[int, ...] = ()
    """The numbers of the bridge's other ports."""


@dataclass(frozen=True)
class Device:
    """An interface on a host or a switch, and what is attached to it."""

    place: str
    name: str
    shaping: TokenBucket | None = None
    """Our permanent rate limit at its root, for what it sends."""
    occupied: str | None = None
    """The queueing discipline at its root that somebody else made, such as ``htb``."""
    hooked: bool = False
    """Whether a clsact hook exists already."""
    reserved: bool = False
    """Whether it carries SSH or the default route of its place."""
    ovs: OvsPort | None = None
    """The port of an Open vSwitch bridge that it is, if a fault asks for it."""

    def run(self, *argv: str) -> Order:
        """A command at its place."""
        return Order(self.place, argv)

    def free_root(self, kind: str) -> Self:
        """Itself; raises `NotPossibleError` if its root queueing discipline is somebody else's."""
        if self.occupied:
            raise NotPossibleError(
                f"{kind}: {self.place} {self.name} has a {self.occupied} qdisc that is not ours; "
                "remove it, or choose another NIC"
            )
        return self

    def free_hook(self, kind: str) -> Self:
        """Itself; raises `NotPossibleError` if somebody else, or a fault of ours, uses its clsact hook."""
        if self.hooked:
            raise NotPossibleError(
                f"{kind}: {self.place} {self.name} has a clsact qdisc already; "
                "remove it if nobody needs it, or choose another NIC"
            )
        return self


@dataclass(frozen=True)
class Slot:
    """Where a virtual machine's NIC sits: what QEMU can do to it, and to the machine.

    The NIC's device has the id `device`, its back end the id ``net-<device>``, its PCI port ``port-<device>``.
    """

    place: str
    """The host or switch where QEMU runs."""
    qmp: str
    """The path of the machine's QMP socket there."""
    device: str
    mac: str

    @property
    def arguments(self) -> dict[str, str]:
        """What QEMU makes the NIC from, as ``device_add`` takes it."""
        device = self.device
        return {
            "driver": "virtio-net-pci",
            "id": device,
            "netdev": f"net-{device}",
            "bus": f"port-{device}",
            "mac": self.mac,
            "romfile": "",
        }


@dataclass(frozen=True)
class Target:
    """One NIC of one host, or the process of its rank, with what is known about it.

    `reserved` holds the names on that host that carry SSH or the default route. Raises `ProtectedNicError` for a
    reserved NIC and `FaultError` for an invalid interface name, so every existing target may be faulted.
    """

    host: str
    nic: str
    reserved: frozenset[str] = field(default=RESERVED_NICS, compare=False)
    address: str | None = None
    addresses: tuple[str, ...] = ()
    """All its permanent addresses, with their prefixes."""
    mtu: int | None = None
    peers: tuple[str, ...] = ()
    """The addresses of the other hosts' NICs on the same rail."""
    rate_bit_s: float | None = None
    device: Device | None = None
    """What is attached to the NIC itself; by default nothing."""
    switch: Device | None = None
    """The port that it is connected to, on a switch that runs Linux and is reached by SSH."""
    bus_address: str | None = None
    """Address of its PCI function, ``0000:81:00.0``; None for a NIC without hardware of its own."""
    driver: str | None = None
    rdma: tuple[str, int] | None = None
    """Its RDMA device and port."""
    routes: tuple[Argv, ...] = ()
    """Routes that are lost with the link and do not come back by themselves, as words after ``ip route``."""
    pid: int | None = None
    """Of the rank on that host; it leads its own process group."""
    slot: Slot | None = None
    """Its slot, on a virtual machine."""
    rdma_over_ethernet: bool = False
    """Whether that is RoCE, whose port is active while the interface is."""
    soft_rdma: str | None = None
    """The Soft-RoCE device that somebody put on the NIC: it is lost with the NIC and does not come back by itself."""

    def __post_init__(self) -> None:
        _check_name(self.nic)
        if self.nic in self.reserved | RESERVED_NICS:
            raise ProtectedNicError(f"{self.nic!r} carries management traffic of {self.host}; choose a data NIC")

    def here(self, *argv: str) -> Order:
        """A command on the host itself."""
        return Order(self.host, argv)

    @property
    def own(self) -> Device:
        """The NIC as a device."""
        return self.device or Device(self.host, self.nic)

    def port(self, kind: str) -> Device:
        """The switch port; raises `NotPossibleError` if it is not known, and as for the NIC itself."""
        if self.switch is None:
            raise NotPossibleError(
                f"{kind} needs the switch port of {self.host} {self.nic}; name switch and switch_port in the inventory"
            )
        _check_name(self.switch.name)
        if self.switch.reserved or self.switch.name in RESERVED_NICS:
            raise ProtectedNicError(
                f"{self.switch.name!r} carries management traffic of {self.switch.place}; correct switch_port"
            )
        return self.switch

    def machine(self, kind: str) -> Slot:
        """Its slot; raises `NotPossibleError` if the host is not a virtual machine of ours."""
        if self.slot is None:
            raise NotPossibleError(
                f'{kind} needs a virtual machine, and {self.host} is not one; use cluster.kind = "vms"'
            )
        return self.slot


def _check_name(name: str) -> None:
    if not _INTERFACE.match(name):
        raise FaultError(f"{name!r} is not an interface name; name a NIC such as 'eth0'")


@dataclass(frozen=True)
class Effect:
    """What a fault does to one NIC in a topology, as plain data.

    `rate_factor` scales its rate (0.0: dead), `added_delay_s` is added to its latency, `loss` is the share
    of packets lost, in the given direction.
    """

    host: str
    nic: str
    rate_factor: float = 1.0
    added_delay_s: float = 0.0
    loss: float = 0.0
    direction: Direction = "both"


CUT, SILENT, DEGRADED, SHARED, HALTED, GONE = "#C24A00", "#6A3D9A", "#F0A800", "#56B4E9", "#7F7F7F", "#000000"
"""The colours of faults by what they do: a link is down, packets vanish without a sign, a link is worse, it carries
another flow, a host or rank stands still, it is gone. Colour-blind readers can tell them apart, too."""


@dataclass(frozen=True)
class PlotHint:
    """How a report draws the fault's window: a label and a Matplotlib colour (None: no shade)."""

    label: str
    colour: str | None


class Fault(Strict):
    """One way in which the network, or a rank, can break; its fields are the parameters of an experiment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ClassVar[str]
    """Its name in experiments."""

    scope: ClassVar[Scope] = "nic"

    colour: ClassVar[str | None] = CUT
    """In a report, one of those above; None: no shade."""

    needs: ClassVar[frozenset[str]] = frozenset({"ip"})
    """Programs that its commands call, for example ``{'ip'}``."""

    rehearsal: ClassVar[tuple[Argv, ...]] = ()
    """Commands that succeed in an empty network namespace if the kernel supports the fault."""

    kills: ClassVar[bool] = False
    """Whether a rank cannot survive it, whatever system runs."""

    must_end: ClassVar[bool] = False
    """Whether a rank waits forever if it is not healed."""

    restarts: ClassVar[bool] = False
    """Whether its host reboots, and so loses everything that ran there."""

    needs_machine: ClassVar[bool] = False
    """Whether QEMU makes it, so that its host must be a virtual machine of ours."""

    stops_clock: ClassVar[bool] = False
    """Whether its host's clock stands still while it lasts."""

    @property
    def again_s(self) -> float | None:
        """How long after a loss its NIC is lost again, if it comes and goes by itself."""
        return None

    @property
    def uses_port(self) -> bool:
        """Whether it acts on the NIC's switch port."""
        return False

    def recipe(self, target: Target) -> Recipe:
        """What to run where. Raises `NotPossibleError` if the target lacks something that the fault needs."""
        raise NotImplementedError

    def signs(self, target: Target) -> Sequence[Sign]:
        """What proves that it took effect and, once healed, is gone."""
        raise NotImplementedError

    def effects(self, target: Target) -> Sequence[Effect]:
        """What a simulated topology sees between inject and heal."""
        raise NotImplementedError

    def plot(self, target: Target) -> PlotHint:
        """How the fault's window is drawn."""
        return PlotHint(f"{target.host} {target.nic} {self.kind.replace('_', ' ')}", self.colour)


def severs(effects: Sequence[Effect]) -> bool:
    """Whether a NIC is dead in some direction; a fault that only impairs a NIC ends no job."""
    return any(effect.rate_factor == 0.0 for effect in effects)
