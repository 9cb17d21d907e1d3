"""How the machines, programs, clusters and experiments of several runs differ: runs on different machines compare
badly, and so do totals over trials of different length. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from r2ccl_core.errors import UnitError
from r2ccl_core.units import parse_duration, parse_rate
from reports.flat import flat
from reports.load import LoadedRun
from reports.source import commit_of, dirty_of

MACHINE = ("cpu", "cpu_count", "machine", "kernel", "platform")
ABOUT = ("machine", "cluster", "program", "experiment")
WORKLOAD = "workload."
KIND = f"{WORKLOAD}kind"
PLANNED = ("workload", "system", "fault")
"""The tables of an experiment that decide what a number is of."""
AXES, SWEPT = "axes", ("retries", "limits")
"""What an experiment varies, and the keys of its sweep that decide which trials count."""
CONTENT = "content"
"""The key of a cluster that holds the inventory's content."""
LONGEST = 120
TORCH = "torch"
"""The package whose version decides how sums are rounded."""
UNKNOWN, NOT_SET = "not known", "not set"
NETWORK = frozenset({"kind", "hosts", "nics", "rate", "delay"})
"""The facts of a cluster without which a time or a bandwidth says nothing of what ran."""
CONGESTION_CONTROL, RATE = ("cluster", "congestion control"), ("cluster", "rate")
"""Facts that older and simulated runs do not record, or an inventory need not give; their absence is no difference."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same in all runs; `about` is machine, program, cluster or experiment."""

    about: str
    what: str
    values: Mapping[str, str]
    """The value by run name; of what one kind of workload has, of the runs of that kind."""

    @property
    def is_of_network(self) -> bool:
        """Whether numbers of such runs are not those of one network, so that none is worse than another."""
        return self.about == "cluster" and self.what in NETWORK

    @property
    def decides_results(self) -> bool:
        """Whether what is computed may be rounded otherwise, or be something else. Of programs only PyTorch counts: a
        commit is what is to be judged."""
        if self.about == "experiment":
            return self.what != AXES and not self.what.startswith("sweep.")
        return self.about != "program" or self.what == TORCH

    def told(self, called: Mapping[str, str] = MappingProxyType({})) -> str:
        """One line: ``machine: cpu: A (run 1), B (run 2, run 3)``; `called` gives the runs other names."""
        groups: dict[str, list[str]] = {}
        for run, value in self.values.items():
            groups.setdefault(value, []).append(called.get(run) or run)
        return f"{self.about}: {self.what}: " + ", ".join(f"{v} ({', '.join(runs)})" for v, runs in groups.items())


def differences(runs: Sequence[LoadedRun]) -> list[Difference]:
    """What differs between `runs`, machines first; empty for one run."""
    facts = {run.name: _facts(run) for run in runs}
    planned = {run.name: _planned(run.run.experiment) for run in runs}
    for name, own in planned.items():
        facts[name] |= {("experiment", key): own[key] for key in own if _is_of_all(key, planned.values())}
    kinds = {name: own.get(KIND) for name, own in planned.items()}
    having = {
        key: {kinds[name] for name, own in planned.items() if key in own} for own in planned.values() for key in own
    }
    keys = dict.fromkeys(key for of_run in facts.values() for key in of_run)
    found = []
    for about, what in sorted(keys, key=lambda key: ABOUT.index(key[0])):
        absent = NOT_SET if about == "experiment" else UNKNOWN
        # What only another kind of workload has is not unset here: the kinds differ, and that says it.
        of_kinds = having[what] if what.startswith(WORKLOAD) else set(kinds.values())
        values = {name: own.get((about, what), absent) for name, own in facts.items() if kinds[name] in of_kinds}
        told = set(values.values())
        if (about, what) in (CONGESTION_CONTROL, RATE):
            told.discard(UNKNOWN)
        if len(told) > 1:
            found.append(Difference(about, what, values))
    return found


def _planned(experiment: Mapping[str, Any]) -> dict[str, str]:
    """What decides what a number is of, and which trials count."""
    sweep = _table(experiment.get("sweep"))
    told = flat({key: experiment.get(key) for key in PLANNED} | {"sweep": {k: sweep[k] for k in SWEPT if k in sweep}})
    axes = [_table(axis) for axis in experiment.get("axis") or ()]
    varied = (f"{_keys(axis)} = {', '.join(map(str, axis.get('values') or ()))}" for axis in axes)
    return dict(told) | {AXES: "; ".join(varied) or "none"}


def _keys(axis: Mapping[str, Any]) -> str:
    return str(axis.get("key") or ", ".join(axis.get("keys") or ()))


def _is_of_all(key: str, runs: Collection[Mapping[str, str]]) -> bool:
    """Whether every run has what `key` is of: the same system or fault. Which ones a run has is seen in its tables."""
    of = key.partition("].")[0]
    return of == key or all(any(other.startswith(f"{of}].") for other in run) for run in runs)


def _facts(run: LoadedRun) -> dict[tuple[str, str], str]:
    provenance = run.run.provenance
    facts = {("machine", key): _text(provenance.get(key)) for key in MACHINE}
    facts |= {("program", "commit"): _text(commit_of(run.run)), ("program", "dirty"): _text(dirty_of(run.run))}
    facts |= {("program", name): _text(value) for name, value in _table(provenance.get("versions")).items()}
    facts[CONGESTION_CONTROL] = _text(_table(provenance.get("cluster")).get("congestion_control"))
    cluster = _table(run.run.experiment.get("cluster"))
    cluster = {**cluster, "delay": cluster.get("delay") or "0 s"} if cluster else {}
    if cluster and CONTENT not in cluster:  # the rate of NICs that an inventory does not give is not known
        cluster |= {"rate": cluster.get("rate") or "no limit"}
    facts |= {("cluster", name): _text(_of_network(name, value)) for name, value in cluster.items() if name != CONTENT}
    return facts | {("cluster", name): text for name, text in _of_inventory(_table(cluster.get(CONTENT))).items()}


def _of_inventory(content: Mapping[str, Any]) -> dict[str, str]:
    """What an inventory says of the network: its hosts, in the order of ranks, their NICs by rail, and these NICs'
    rates. In full, since a difference may be at the end."""
    hosts = [_table(host) for host in content.get("host") or ()]
    if not hosts:
        return {}
    nics = [sorted(map(_table, host.get("nics") or ()), key=lambda nic: str(nic.get("rail"))) for host in hosts]
    rates = [[_text(_of_network("rate", nic["rate"]) if "rate" in nic else None) for nic in own] for own in nics]
    alike = {rate for own in rates for rate in own}
    return {
        "hosts": ", ".join(_text(host.get("name")) for host in hosts),
        "nics": _by_host([[f"{_known_by(nic)} on rail {nic.get('rail')}" for nic in own] for own in nics]),
        "rate": alike.pop() if len(alike) == 1 else _by_host(rates),
    }


def _known_by(nic: Mapping[str, Any]) -> str:
    return _text(next((nic[key] for key in ("name", "mac", "ipv4", "ipv6") if nic.get(key)), None))


def _by_host(texts: Sequence[Sequence[str]]) -> str:
    """What the NICs of each host are, once if it is the same for all: ``eth1 on rail 0, eth2 on rail 1``."""
    told = [", ".join(own) for own in texts]
    return told[0] if len(set(told)) == 1 else "; ".join(told)


def _of_network(name: str, value: object) -> object:
    """One text for a rate or a delay, however it was written: 1000 Mbit/s and 1Gbit/s are 1 Gbit/s."""
    try:
        if name == "rate":
            return f"{parse_rate(str(value)) / 1e9:g} Gbit/s"
        return f"{parse_duration(str(value)) * 1e3:g} ms" if name == "delay" else value
    except UnitError:
        return value


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return UNKNOWN if value is None else " ".join(str(value).split())[:LONGEST]
