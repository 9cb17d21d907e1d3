"""What a cluster is to the harness: hosts that come up, are described, and go down again.

`harness.cluster.local` makes one out of network namespaces, `harness.cluster.noop` is this machine as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from harness.hosts.base import Host
from r2ccl_core.errors import UnitError
from r2ccl_core.units import parse_duration, parse_rate

MAX_HOSTS = 250
"""Hosts of a local cluster: the last byte of an address on a rail is the host's number plus one."""

MAX_NICS = 100
"""NICs per host of a local cluster: rail r is the network 10.<100+r>.0.0/24."""

MIN_RATE_BIT_S, MAX_RATE_BIT_S = 1e6, 30e9
"""What a NIC's token bucket takes: its rate is a 32-bit number of bytes per second."""


def _read(parse: Callable[[str], float], text: str) -> float:
    """`parse(text)`, its complaint as the ValueError that pydantic attaches to the key."""
    try:
        return parse(text)
    except UnitError as e:
        raise ValueError(str(e)) from None


class ClusterSpec(BaseModel):
    """The `[cluster]` table of an experiment. Rates and times are text with a unit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["local", "noop"] = "local"
    name: str = Field(default="local", pattern=r"^[A-Za-z0-9_.-]{1,32}$")
    hosts: int = Field(default=3, ge=1, le=MAX_HOSTS)
    nics: int = Field(default=3, ge=1, le=MAX_NICS)
    rate: str | None = "500 Mbit/s"
    """Of every NIC, per direction; None: as fast as the machine goes."""
    mtu: int = Field(default=1500, ge=576, le=65535)
    delay: str | None = None
    """Added one way on every NIC; needs the kernel's netem."""

    @field_validator("rate")
    @classmethod
    def _rate_reads(cls, rate: str | None) -> str | None:
        if rate is not None and not MIN_RATE_BIT_S <= _read(parse_rate, rate) <= MAX_RATE_BIT_S:
            raise ValueError(f"{rate!r} is out of range; choose between '1 Mbit/s' and '30 Gbit/s'")
        return rate

    @field_validator("delay")
    @classmethod
    def _delay_reads(cls, delay: str | None) -> str | None:
        if delay is not None and _read(parse_duration, delay) > 10:
            raise ValueError(f"{delay!r} is too long; choose at most '10 s'")
        return delay

    @property
    def rate_bit_s(self) -> float | None:
        """The rate of a NIC in bits per second."""
        return None if self.rate is None else parse_rate(self.rate)

    @property
    def delay_s(self) -> float:
        """The added one-way delay in seconds."""
        return 0.0 if self.delay is None else parse_duration(self.delay)


class Cluster(Protocol):
    """A set of hosts with a life: `up`, use, `down`; as a context manager, both by itself."""

    @property
    def hosts(self) -> Sequence[Host]:
        """Its hosts in the order of their numbers; connected from `up` to `down`."""
        ...

    @property
    def switches(self) -> Sequence[Host]:
        """Switches that run Linux and are reached like hosts, where faults on their ports run; no ranks."""
        ...

    def up(self) -> None:
        """Makes and connects every host. On an error everything made so far is removed again."""
        ...

    def down(self) -> None:
        """Closes and removes everything that `up` made; harmless twice."""
        ...

    def describe(self) -> dict[str, Any]:
        """What it is made of, as JSON values, for the provenance of a run."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
