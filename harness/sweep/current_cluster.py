"""The cluster that is up, and the testbed on it; both change when a trial needs another cluster.

A new cluster is claimed on every host that has NICs, its memory is checked and its clocks are measured before its first
trial.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from random import uniform
from typing import Any, Self

from harness.cluster.base import Cluster
from harness.cluster.spec import ClusterSpec
from harness.errors import HostError
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.hosts.facts import read_congestion_control
from harness.sweep.memory import check_hosts
from harness.sweep.owner import BusyError, Owner
from harness.sweep.plan import Trial
from harness.sweep.progress import SweepProgress
from harness.sweep.rehearse import rehearse
from harness.sweep.run_folder import RunFolder
from harness.sweep.testbed import HostTestbed

SWITCH_S = 0.0005
AGAIN_S = 2.0
"""Pause between two attempts to claim hosts that another sweep holds."""

MakeCluster = Callable[[ClusterSpec], Cluster]


class CurrentCluster:
    """Makes nothing before the first trial; as a context manager, takes down the cluster that is up at the end."""

    def __init__(
        self, trials: Sequence[Trial], make: MakeCluster, folder: RunFolder, progress: SweepProgress, wait: bool
    ) -> None:
        self._trials, self._make, self._folder, self._progress, self._wait = trials, make, folder, progress, wait
        self._standing = ExitStack()
        self._key: str | None = None
        self._testbed: HostTestbed | None = None
        self._described: dict[str, Any] = {}
        self.has_stood = False
        """A cluster has come up: later failures belong to the sweep, not to its start."""

    def testbed_for(self, trial: Trial) -> HostTestbed:
        """The testbed on the cluster that `trial` needs, set up for it."""
        if self._testbed is None or trial.cluster_key != self._key:
            self._lower(in_order=True)
            self._testbed = self._raise(trial)
            self._key = trial.cluster_key
        self._testbed.set_up_for(trial)
        return self._testbed

    def give_up(self) -> None:
        """Takes down a cluster that lost a host; the next trial gets a new one."""
        self._lower(in_order=False)

    def _raise(self, trial: Trial) -> HostTestbed:
        experiment = trial.variant.experiment
        self._progress.note(f"bringing up {experiment.cluster.summary()}")
        cluster = self._standing.enter_context(self._make(experiment.cluster))
        self.has_stood = True
        # The thread that fires a fault must not wait 5 ms, Python's default, for one that reads a rank's lines.
        sys.setswitchinterval(SWITCH_S)
        claim([host for host in cluster.hosts if host.nics], self._progress if self._wait else None)
        check_hosts(experiment, cluster.hosts, [t for t in self._trials if t.cluster_key == trial.cluster_key])
        tcp = _in_words(all_results(for_each(cluster.hosts, read_congestion_control)))
        if not self._described:
            tcp = _later(self._folder.run().provenance.get("cluster"), tcp)
        self._described.setdefault(trial.cluster_key, cluster.describe() | {"congestion_control": tcp})
        described = list(self._described.values())
        more = {"clusters": described} if len(described) > 1 else {}
        self._folder.add_provenance({"cluster": described[0], **more})
        testbed = HostTestbed(experiment, cluster.hosts, cluster.switches, tell=self._progress.told)
        testbed.measure_clocks()
        self._rehearse(testbed, trial.cluster_key)
        return testbed

    def _rehearse(self, testbed: HostTestbed, key: str) -> None:
        """Rehearses once for each set of faults that points of the axes make on this cluster."""
        trials = [t for t in self._trials if t.cluster_key == key and t.fault is not None]
        labels = {t.fault.label for t in trials if t.fault is not None}
        experiments = [t.variant.experiment for t in trials]
        for faults in dict.fromkeys(str(e.faults) for e in experiments):
            testbed.experiment = next(e for e in experiments if str(e.faults) == faults)
            rehearse(testbed, labels)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._lower(in_order=kind is None)

    def _lower(self, in_order: bool) -> None:
        """Takes down the cluster that is up, and keeps the measurements of its clocks."""
        testbed, self._testbed = self._testbed, None
        with self._standing:
            if testbed is not None and in_order:
                with suppress(HostError):  # the trials are done: a host that is lost now takes nothing from them
                    testbed.measure_clocks()
            if testbed is not None:
                self._folder.add_provenance({"clocks": testbed.describe_clocks()})


def _in_words(of_hosts: Mapping[str, str]) -> str:
    """The value that all hosts share, or each host's own."""
    values = set(of_hosts.values())
    return values.pop() if len(values) == 1 else ", ".join(f"{name} {value}" for name, value in of_hosts.items())


def _later(cluster: object, tcp: str) -> str:
    """`tcp`; if the interrupted run had another value on that `cluster`, preceded by it."""
    before = cluster.get("congestion_control") if isinstance(cluster, dict) else None
    return tcp if before is None or str(before).split(", later ")[-1] == tcp else f"{before}, later {tcp}"


def claim(hosts: Sequence[Host], progress: SweepProgress | None) -> None:
    """Claims all `hosts` for this sweep until their sessions end. Raises `BusyError` if another sweep holds one.

    With `progress` it waits instead, and reports that there. After each failed attempt it releases the hosts that it
    has claimed, so that two sweeps that wait for each other's hosts both get their turn.
    """
    told = False
    while (taken := _taken(hosts)) is not None:
        host, owner = taken
        text = f"{host}: {owner or 'another sweep'} has this host"
        if progress is None:
            raise BusyError(f"{text}; wait for it (--wait does)")
        if not told:
            progress.note(f"waiting: {text}")
            told = True
        all_results(for_each(hosts, lambda h: h.claim(None)))
        time.sleep(uniform(0.5, 1.5) * AGAIN_S)


def _taken(hosts: Sequence[Host]) -> tuple[str, Owner | None] | None:
    """The first host that another sweep holds, with that sweep; None once all are ours."""
    ours = Owner.this()
    for name, found in all_results(for_each(hosts, lambda host: host.claim(ours.values()))).items():
        owner = Owner.read(found)
        if found is not None and not (owner is not None and owner.is_same_sweep(ours)):
            return name, owner
    return None
