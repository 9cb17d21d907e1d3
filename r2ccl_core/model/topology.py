"""The cluster as the algorithms see it: hosts, GPUs and NICs, and which of them are lost or slowed.

Pure values. A fault turns a topology into a poorer one; bounds, planner and simulator read bandwidths from it. Rates
are bytes per second and hold in each direction (full duplex).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from r2ccl_core.errors import UsageError
from r2ccl_core.units import format_rate

INNER_RATE_BYTES_S = 450e9
"""NVLink of an H100 in one direction; any value far above the NICs' gives the same results."""

MOST_TOLD = 4
"""Most lost and slowed NICs that are listed one by one."""


@dataclass(frozen=True)
class Nic:
    """One port: its rail (switch plane), NUMA domain, nominal rate, and what remains of it (0 = lost)."""

    rail: int
    rate_bytes_s: float
    numa: int = 0
    remaining: float = 1.0

    @property
    def usable_bytes_s(self) -> float:
        """What the NIC still carries."""
        return self.rate_bytes_s * self.remaining


@dataclass(frozen=True)
class Host:
    """A host with one rank per GPU."""

    nics: tuple[Nic, ...]
    gpus: int = 1
    inner_rate_bytes_s: float = INNER_RATE_BYTES_S

    @property
    def nominal_bytes_s(self) -> float:
        """Sum of the NICs' rates when all are whole."""
        return sum(nic.rate_bytes_s for nic in self.nics)

    @property
    def usable_bytes_s(self) -> float:
        """Sum of what the NICs still carry: the host's port when its load is balanced over them."""
        return sum(nic.usable_bytes_s for nic in self.nics)

    @property
    def rails(self) -> frozenset[int]:
        """Rails on which the host can still be reached."""
        return frozenset(nic.rail for nic in self.nics if nic.usable_bytes_s > 0)

    def rate_on(self, rail: int) -> float:
        """Bytes per second the host still carries on ``rail``."""
        return sum(nic.usable_bytes_s for nic in self.nics if nic.rail == rail)


@dataclass(frozen=True)
class Topology:
    """Hosts on one network. ``isolated_rails``: a NIC reaches only NICs of its own rail."""

    hosts: tuple[Host, ...]
    isolated_rails: bool = False

    @classmethod
    def uniform(
        cls, hosts: int, nics: int, rate_bytes_s: float, *, gpus: int = 1, isolated_rails: bool = False
    ) -> "Topology":
        """``hosts`` equal hosts, each with ``nics`` NICs of ``rate_bytes_s`` on rails 0, 1, ..."""
        if hosts < 1 or nics < 1 or gpus < 1 or rate_bytes_s <= 0:
            raise UsageError(
                f"a topology of {hosts} hosts, {nics} NICs at {rate_bytes_s:g} bytes/s, {gpus} GPUs: "
                "every number must be positive"
            )
        one = Host(tuple(Nic(rail, rate_bytes_s, numa=rail * 2 // nics) for rail in range(nics)), gpus)
        return cls((one,) * hosts, isolated_rails)

    @classmethod
    def of_shares(cls, shares: Iterable[float], rate_bytes_s: float = 1.0) -> "Topology":
        """One NIC per host, slowed to the given share of ``rate_bytes_s``: the theory's vector b."""
        return cls(tuple(Host((Nic(0, rate_bytes_s, remaining=share),)) for share in shares))

    @property
    def nhosts(self) -> int:
        """Number of hosts."""
        return len(self.hosts)

    @property
    def nranks(self) -> int:
        """Number of ranks: one per GPU; the ranks of a host are consecutive."""
        return sum(host.gpus for host in self.hosts)

    @property
    def host_of_rank(self) -> tuple[int, ...]:
        """The host of each rank."""
        return tuple(index for index, host in enumerate(self.hosts) for _ in range(host.gpus))

    @property
    def rates_bytes_s(self) -> tuple[float, ...]:
        """Each host's usable bytes per second, load balanced over its NICs."""
        return tuple(host.usable_bytes_s for host in self.hosts)

    @property
    def shares(self) -> tuple[float, ...]:
        """The vector b: usable rates over the best host's nominal rate."""
        best = max(host.nominal_bytes_s for host in self.hosts)
        return tuple(host.usable_bytes_s / best for host in self.hosts)

    @property
    def healthy(self) -> "Topology":
        """The same cluster with every NIC whole."""
        whole = tuple(
            replace(host, nics=tuple(replace(nic, remaining=1.0) for nic in host.nics)) for host in self.hosts
        )
        return replace(self, hosts=whole)

    def in_words(self) -> str:
        """One line: what there is, and which of it is lost or slowed."""
        kinds = {(len(host.nics), nic.rate_bytes_s, host.gpus) for host in self.hosts for nic in host.nics}
        nics, rate, gpus = min(kinds)
        each = f"{nics} NIC{'s' * (nics > 1)} of {format_rate(8 * rate)} each"
        hosts = f"{self.nhosts} host{'s' * (self.nhosts > 1)}"
        whole = f"{hosts} with {each}" if len(kinds) == 1 else f"{hosts} that differ"
        poor = [
            f"NIC {index} of host {number} {f'at {100 * nic.remaining:.3g}%' if nic.remaining else 'lost'}"
            for number, host in enumerate(self.hosts)
            for index, nic in enumerate(host.nics)
            if nic.remaining < 1
        ]
        more = [f"{len(poor) - MOST_TOLD} more"] if len(poor) > MOST_TOLD else []
        ranks = f", {gpus} GPUs a host" if len(kinds) == 1 and gpus > 1 else ""
        return ", ".join([whole + ranks, *poor[:MOST_TOLD], *more])

    def slowed(self, host: int, nic: int, remaining: float) -> "Topology":
        """This topology with one NIC at ``remaining`` (0 to 1) of its nominal rate."""
        if not 0 <= host < self.nhosts:
            raise UsageError(f"host {host} does not exist; the hosts are 0 to {self.nhosts - 1}")
        nics = self.hosts[host].nics
        if not 0 <= nic < len(nics):
            raise UsageError(f"NIC {nic} of host {host} does not exist; its NICs are 0 to {len(nics) - 1}")
        if not 0.0 <= remaining <= 1.0:
            raise UsageError(f"NIC {nic} of host {host} cannot keep {remaining:g} of its rate; give 0 to 1")
        changed = replace(nics[nic], remaining=remaining)
        poorer = replace(self.hosts[host], nics=(*nics[:nic], changed, *nics[nic + 1 :]))
        return replace(self, hosts=(*self.hosts[:host], poorer, *self.hosts[host + 1 :]))

    def lost(self, host: int, nic: int) -> "Topology":
        """This topology without one NIC."""
        return self.slowed(host, nic, 0.0)

    def pair_rate_bytes_s(self, source: int, destination: int) -> float:
        """What ``source`` can move to ``destination`` at once: all their ports, or only common rails."""
        a, b = self.hosts[source], self.hosts[destination]
        if not self.isolated_rails:
            return min(a.usable_bytes_s, b.usable_bytes_s)
        return sum(min(a.rate_on(rail), b.rate_on(rail)) for rail in a.rails & b.rails)


def hot_repaired(topology: Topology) -> Topology:
    """The bandwidths when a lost NIC's whole share moves to one other NIC (mode 1, hot repair).

    Data is cut evenly over the nominal NICs, so the NIC with the most load per rate sets the host's pace.
    """

    def repaired(host: Host) -> Host:
        alive = [nic for nic in host.nics if nic.remaining > 0]
        if len(alive) == len(host.nics) or not alive:
            return host
        moved = [0] * len(alive)
        for index in range(len(host.nics) - len(alive)):
            moved[index % len(alive)] += 1
        share = 1.0 / len(host.nics)
        pace = min(nic.usable_bytes_s / (share * (1 + extra)) for nic, extra in zip(alive, moved, strict=True))
        factor = pace / host.usable_bytes_s
        nics = tuple(replace(nic, remaining=nic.remaining * factor) for nic in host.nics)
        return replace(host, nics=nics)

    return replace(topology, hosts=tuple(repaired(host) for host in topology.hosts))


def parse_lost(text: str) -> tuple[int, int, float]:
    """``host:nic`` (lost) or ``host:nic:remaining`` (slowed), as the command line writes it."""
    parts = text.split(":")
    try:
        host, nic = int(parts[0]), int(parts[1])
        remaining = float(parts[2]) if len(parts) == 3 else 0.0
    except (ValueError, IndexError):
        parts = []
    if len(parts) not in (2, 3):
        raise UsageError(f"--lost {text!r} cannot be read; write host:nic, or host:nic:remaining as 1:2:0.5")
    return host, nic, remaining
