"""Which ranks are on one host, and which share its NICs.

Pure, except for `this_host`. Every rank tells the others its `Location`; all compute the same `Layout` from them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2ccl_core.host.nics import Nic

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


@dataclass(frozen=True)
class Location:
    """Where a rank is: a name for its host's network ("": a host of its own), and its NICs."""

    host: str
    nics: tuple[Nic, ...]

    def encode(self) -> str:
        """As JSON."""
        return json.dumps([self.host, self.nics])

    @classmethod
    def decode(cls, text: str) -> "Location":
        """What `encode` made."""
        host, nics = json.loads(text)
        return cls(host, tuple((name, address) for name, address in nics))


def this_host(nics: Sequence[Nic]) -> str:
    """A name that two processes share if the loopback interface connects them. Loopback addresses that stand for NICs
    make a rank a host of its own."""
    if all(name == "lo" for name, _ in nics):
        return ""
    try:
        return f"{_BOOT_ID.read_text().strip()} {_NETWORK.stat().st_ino}"
    except OSError:
        return ""


@dataclass(frozen=True)
class Layout:
    """The host of every rank, and how many ranks share one host's NICs: 1 unless all hosts are alike in this and their
    ranks are consecutive."""

    hosts: tuple[int, ...]
    gpus: int = 1

    @classmethod
    def of(cls, locations: Sequence[Location]) -> "Layout":
        """Hosts are numbered by their first ranks."""
        names = [location.host or f"rank {rank}" for rank, location in enumerate(locations)]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        hosts = tuple(numbers[name] for name in names)
        gpus = len(locations) // len(numbers)
        in_a_row = hosts == tuple(rank // gpus for rank in range(len(locations)))
        alike = in_a_row and all(
            location.nics == locations[rank - rank % gpus].nics for rank, location in enumerate(locations)
        )
        return cls(hosts, gpus if alike else 1)

    def together(self, rank: int, other: int) -> bool:
        """Whether both are on one host."""
        return self.hosts[rank] == self.hosts[other]

    def has_company(self, rank: int) -> bool:
        """Whether another rank is on this one's host."""
        return self.hosts.count(self.hosts[rank]) > 1
