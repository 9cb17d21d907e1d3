"""The specification of a cluster, one model per kind: the `[cluster]` table of an experiment.

    local      hosts and NICs to make from network namespaces
    vms        the same from virtual machines, which have kernels of their own
    noop       this machine as it is; hosts, NICs and their rate only set the pace
    inventory  existing hosts, from an inventory file

An experiment uses only the parts that all kinds have in common (`Described`): names, and NICs by rail.
"""

import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag, field_validator

from harness.cluster.inventory import Inventory, InventoryHost
from harness.cluster.layout import MANAGEMENT_NIC, SUBNETS, lay_out, lay_out_vms
from harness.experiment.tables import Model, Size, read_duration, read_rate
from harness.hosts.base import Nic
from r2ccl_core.units import parse_rate, parse_size

MAX_HOSTS = 250
"""Hosts of a local cluster: the last byte of an address on a rail is the host's number plus one."""

MAX_NICS = 100
"""NICs per host of a local cluster: rail r is the network 10.<100+r>.0.0/24."""

MAX_VMS, MAX_VM_NICS = 32, 24
"""The most virtual machines of a cluster, and NICs of each: a NIC has its own root port, of which the bus holds 32."""

DEBIAN_PYTHON = "/usr/bin/python3"
"""The path of Python in every Debian release."""

MIN_RATE_BIT_S, MAX_RATE_BIT_S = 1e6, 30e9
"""The limits of a NIC's token bucket, whose rate is a 32-bit number of bytes per second."""

UNLIMITED_BIT_S = 10e9
"""The rate assumed for a NIC without one when a duration must be estimated."""


class Described(Model):
    """The description that every kind of cluster gives before it is up."""

    python: str | None = None
    """The Python that runs the ranks; by default the one that runs the harness, or each host's own."""

    def data_nics(self) -> dict[str, tuple[Nic, ...]]:
        """Every host, in the order of ranks, with its data NICs by rail.

        Names and addresses that only the host itself knows are empty.
        """
        raise NotImplementedError

    @property
    def one_machine(self) -> bool:
        """Whether all hosts are this machine, and share its GPUs."""
        return True

    @property
    def slowness(self) -> float:
        """The factor by which ranks may take longer than on hardware to start, and between two lines."""
        return 1.0

    def management_nics(self) -> tuple[str, ...]:
        """The names of the interfaces beside the data NICs, as far as they are known."""
        return ()

    def host_names(self) -> list[str]:
        """Every host, in the order of ranks."""
        return list(self.data_nics())

    def python_on(self, host: str) -> str:
        """The Python that runs the ranks there, for people."""
        return self.python or "python"

    def bandwidth_bit_s(self) -> float:
        """Total bandwidth of all NICs of the host with the least, per direction."""
        hosts = [nics for nics in self.data_nics().values() if nics]
        return min((sum(nic.rate_bit_s or UNLIMITED_BIT_S for nic in nics) for nics in hosts), default=UNLIMITED_BIT_S)

    def summary(self) -> str:
        """Hosts and NICs in a few words."""
        hosts = self.data_nics()
        counts = sorted({len(nics) for nics in hosts.values()})
        shown = f"{counts[0]} NICs" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} NICs"
        return f"{len(hosts)} hosts with {shown} each"


class _Regular(Described):
    """A number of hosts with equal NICs. Rates and times are text with a unit."""

    name: str = Field(default="local", pattern=r"^[A-Za-z0-9_.-]{1,32}$")
    hosts: int = Field(default=3, ge=1, le=MAX_HOSTS)
    nics: int = Field(default=3, ge=1, le=MAX_NICS)
    rate: str | None = "500 Mbit/s"
    """Rate of every NIC, per direction; None: as fast as the machine can."""
    mtu: int = Field(default=1500, ge=576, le=65535)
    delay: str | None = None
    """Delay added in each direction on every NIC; needs the kernel's netem."""

    @field_validator("rate", mode="before")
    @classmethod
    def _rate_reads(cls, rate: object) -> object:
        if rate is not None and not MIN_RATE_BIT_S <= read_rate(rate) <= MAX_RATE_BIT_S:
            raise ValueError(f"{rate!r} is out of range; choose between '1 Mbit/s' and '30 Gbit/s'")
        return rate

    @field_validator("delay", mode="before")
    @classmethod
    def _delay_reads(cls, delay: object) -> object:
        if delay is not None and read_duration(delay) > 10:
            raise ValueError(f"{delay!r} is too long; choose at most '10 s'")
        return delay

    @property
    def rate_bit_s(self) -> float | None:
        """The rate of a NIC in bits per second."""
        return None if self.rate is None else parse_rate(self.rate)

    @property
    def delay_s(self) -> float:
        """The added one-way delay in seconds."""
        return 0.0 if self.delay is None else read_duration(self.delay)

    @property
    def host_python(self) -> str:
        """The Python of every host."""
        return sys.executable

    def data_nics(self) -> dict[str, tuple[Nic, ...]]:
        """``host0``, ``host1``, ... with ``eth0``, ``eth1``, ...: one per rail, the same on every host."""
        return dict(_like_hosts(_Shape(self.hosts, self.nics, self.rate_bit_s)))


class _Shape(NamedTuple):
    hosts: int
    nics: int
    rate_bit_s: float | None


@lru_cache(maxsize=64)
def _like_hosts(shape: _Shape) -> dict[str, tuple[Nic, ...]]:
    """Cached, because thousands of variants of an experiment may share one cluster."""
    return {host.name: host.nics for host in lay_out(shape, "00000000", SUBNETS[0]).hosts}


class LocalSpec(_Regular):
    """A local cluster."""

    kind: Literal["local"] = "local"

    def management_nics(self) -> tuple[str, ...]:
        """The same on every host."""
        return (MANAGEMENT_NIC,)


class VmsSpec(_Regular):
    """A cluster of virtual machines."""

    kind: Literal["vms"] = "vms"
    name: str = Field(default="vms", pattern=r"^[A-Za-z0-9_.-]{1,32}$")
    hosts: int = Field(default=3, ge=1, le=MAX_VMS)
    nics: int = Field(default=2, ge=1, le=MAX_VM_NICS)
    rate: str | None = "200 Mbit/s"
    kernel: str = "linux-image-amd64"
    """The Debian package of the kernel that the guests run."""
    memory_bytes: Size = Field(default=parse_size("768MiB"), alias="memory", ge=parse_size("256MiB"))
    """Memory of every guest."""
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """``auto``: KVM if it boots a guest, else QEMU's own translation."""
    rdma: Literal["rxe"] | None = None
    """``rxe``: every data NIC carries a Soft-RoCE device, ``rxe0`` on ``eth0`` and so on."""
    disk_bytes: Size | None = Field(default=None, alias="disk", ge=parse_size("16MiB"))
    """Disk of every guest: its writes then survive its restarts, until the cluster goes down. None: writes stay in
    memory."""
    debian: str | None = Field(default=None, pattern=r"^[a-z]{3,16}$")
    """The release of Debian that the guests run, such as ``bullseye``. None: this machine's own files."""

    @field_validator("kernel")
    @classmethod
    def _kernel_is_a_package(cls, kernel: str) -> str:
        if not re.fullmatch(r"linux-image-[a-z0-9.+-]+", kernel):
            raise ValueError("name a Debian package, such as linux-image-amd64")
        return kernel

    @property
    def host_python(self) -> str:
        """The release's own Python for a release of Debian; otherwise the Python that runs the harness, which is among
        this machine's files."""
        return sys.executable if self.debian is None else DEBIAN_PYTHON

    @property
    def one_machine(self) -> bool:
        """False: each guest has a boot, a kernel and an address space of its own, and no GPU."""
        return False

    @property
    def slowness(self) -> float:
        """A translated guest needs 5 s of CPU to start a rank; this machine itself 0.4 s."""
        return 12.0

    def data_nics(self) -> dict[str, tuple[Nic, ...]]:
        """As in a local cluster, and each in a slot."""
        return {host.name: host.nics for host in lay_out_vms(self, "00000000", SUBNETS[0]).hosts}

    def management_nics(self) -> tuple[str, ...]:
        """The same on every host."""
        return (MANAGEMENT_NIC,)


class NoopSpec(_Regular):
    """The noop cluster; it takes the keys of a local one, so that an experiment can be tried without a network."""

    kind: Literal["noop"] = "noop"


class InventorySpec(Described):
    """Existing hosts. Reading the experiment also reads the inventory, into `content`, with these hosts only."""

    kind: Literal["inventory"] = "inventory"
    inventory: str
    """The file; relative to the experiment's folder."""
    hosts: int | tuple[str, ...] | None = None
    """The first N hosts, or the hosts of these names, in this order; by default all."""
    content: Inventory

    @property
    def one_machine(self) -> bool:
        """False: each host is a machine of its own."""
        return False

    def data_nics(self) -> dict[str, tuple[Nic, ...]]:
        """In the order of the file, or as `hosts` names them."""
        return {host.name: _planned(host) for host in self.content.hosts}

    def python_on(self, host: str) -> str:
        """The experiment's Python, else the host's own."""
        return self.python or next(entry.python for entry in self.content.hosts if entry.name == host)


def _planned(host: InventoryHost) -> tuple[Nic, ...]:
    return tuple(
        Nic(nic.name or "", nic.rail, nic.address or "", nic.rate_bit_s, nic.switch, nic.switch_port)
        for nic in sorted(host.nics, key=lambda nic: nic.rail)
    )


def _kind(table: Any) -> object:
    return table.get("kind", "local") if isinstance(table, Mapping) else getattr(table, "kind", None)


ClusterSpec = Annotated[
    Annotated[LocalSpec, Tag("local")]
    | Annotated[VmsSpec, Tag("vms")]
    | Annotated[NoopSpec, Tag("noop")]
    | Annotated[InventorySpec, Tag("inventory")],
    Discriminator(_kind),
]
"""Any of these models; the table's `kind` selects it, and the default is a local cluster."""
