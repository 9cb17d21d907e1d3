"""The cluster of a run as far as a report needs it (hosts, NICs and their rate), read from the stored experiment."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from r2ccl_core.errors import UnitError
from r2ccl_core.model.bandwidth import bus_factor
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.model.token_bucket import TokenBucket
from r2ccl_core.units import parse_rate
from reports.trial import Run

BURST_SHARE = 0.1
"""Share of what a host sends in a collective that may pass at once, after a pause, without a limit by the NICs' rate:
about how much faster than the rate such a collective may be. Two NICs of 500 Mbit/s let 266 KB pass, and AllReduces of
64 KiB had 1.4 times what the NICs' rate allows, those of 4 MiB (0.06) less than that."""

MAX_COUNT = 100_000
"""Largest plausible number of hosts, or of NICs per host; a larger number means a damaged file."""


@dataclass(frozen=True)
class Setting:
    """The cluster of a run. None: unknown, or not limited."""

    hosts: int | None = None
    nics: int | None = None
    rate_bit_s: float | None = None
    gpus: int = 1
    """Ranks per host."""
    virtual: bool = False
    """The hosts are virtual machines."""
    soft_rdma: bool = False
    """Their RDMA devices are Soft-RoCE."""
    shaped: bool = False
    """The NICs' rate is that of token buckets, which let a burst pass."""

    @property
    def ranks(self) -> int | None:
        """The number of ranks on all hosts."""
        return self.hosts * self.gpus if self.hosts else None

    @property
    def nics_gbs(self) -> float | None:
        """What all NICs of a host send at their full rate, in GB/s: a ring's greatest bus bandwidth."""
        return self.nics * self.rate_bit_s / 8e9 if self.nics and self.rate_bit_s else None

    def passes_in_burst(self, collective: str, size_bytes: int) -> bool:
        """Whether the NICs' rate is no limit for such a collective, since too much of it passes in the buckets' burst;
        models and bounds by the rate say nothing of it then."""
        if not (self.shaped and self.hosts and self.nics and self.rate_bit_s and collective in COLLECTIVES):
            return False
        burst = self.nics * TokenBucket.for_rate(self.rate_bit_s).burst_bytes
        return burst > BURST_SHARE * size_bytes * bus_factor(collective, self.hosts)

    def limit_gbs(self, collective: str) -> float | None:
        """The greatest bus bandwidth of any schedule, in GB/s.

        Bus bandwidth counts ranks, and the NICs carry what hosts need of each other. With several ranks in a host that
        is less than a ring of all ranks sends, or, for an AllToAll, what all ranks of a host send.
        """
        known = self.hosts is not None and self.hosts > 1 and collective in COLLECTIVES
        if not self.nics_gbs or not self.hosts or not known or self.gpus == 1:
            return self.nics_gbs
        ranks = self.hosts * self.gpus
        if collective == "alltoall":
            return self.nics_gbs * (ranks - 1) / (self.gpus * (ranks - self.gpus))
        return self.nics_gbs * bus_factor(collective, ranks) / bus_factor(collective, self.hosts)

    def limit_after_gbs(self, collective: str) -> float | None:
        """The same limit with one NIC lost."""
        limit = self.limit_gbs(collective)
        return limit * (self.nics - 1) / self.nics if limit and self.nics else None


def setting_of(run: Run, settings: Mapping[str, Any] | None = None) -> Setting:
    """Reads the run's `cluster` table and `workload.gpus`; missing or malformed values become unknown.

    `settings` are those of a trial, if an axis changes the cluster.
    """
    table = _table(run, "cluster", settings or {})
    gpus = _count(_table(run, "workload", settings or {}).get("gpus")) or 1
    if table.get("kind") == "inventory":
        return replace(_of_inventory(table.get("content")), gpus=gpus)
    virtual, soft_rdma = table.get("kind") == "vms", table.get("rdma") == "rxe"
    counts = _count(table.get("hosts")), _count(table.get("nics"))
    shaped = table.get("kind") in ("local", "vms")
    return Setting(*counts, _rate(table.get("rate")), gpus, virtual, soft_rdma, shaped)


def _table(run: Run, name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """One table of the experiment, with the changes by `settings`."""
    stored = run.experiment.get(name)
    changed = {key.removeprefix(f"{name}."): value for key, value in settings.items() if key.startswith(f"{name}.")}
    return (dict(stored) if isinstance(stored, dict) else {}) | changed


def _of_inventory(content: object) -> Setting:
    """Existing hosts: only NIC counts and rates that all of them share are known."""
    hosts = content.get("host") if isinstance(content, dict) else None
    if not isinstance(hosts, list):
        return Setting()
    nics = [nics if isinstance(nics := host.get("nics"), list) else [] for host in hosts if isinstance(host, dict)]
    counts = {len(of_host) for of_host in nics}
    rates = {nic.get("rate") for of_host in nics for nic in of_host if isinstance(nic, dict)}
    return Setting(
        _count(len(hosts)),
        _count(counts.pop()) if len(counts) == 1 else None,
        _rate(rates.pop()) if len(rates) == 1 else None,
    )


def systems_of(run: Run) -> dict[str, Mapping[str, Any]]:
    """The run's systems by name, as in its experiment."""
    systems = run.experiment.get("system")
    tables = [s for s in systems if isinstance(s, dict)] if isinstance(systems, list) else []
    return {str(table.get("name")): table for table in tables}


def env_of(system: Mapping[str, Any]) -> dict[str, str]:
    """The environment that a system sets."""
    env = system.get("env")
    return {str(k): str(v) for k, v in env.items()} if isinstance(env, dict) else {}


def experiment_name(run: Run) -> str:
    """The experiment's name, from its file."""
    return str(run.experiment.get("name", "experiment"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_COUNT else None


def _rate(value: object) -> float | None:
    try:
        return parse_rate(value) if isinstance(value, str) else None
    except UnitError:
        return None
