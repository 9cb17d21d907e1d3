"""Clusters without a sweep: brings one up, fetches what it needs, and lists those in use."""

import signal
from collections.abc import Sequence
from pathlib import Path

from harness.cluster import rights, state
from harness.cluster.clean import living
from harness.cluster.factory import make_cluster
from harness.cluster.spec import LocalSpec, VmsSpec
from harness.errors import ExitCode
from harness.experiment.examples import found
from harness.experiment.file import load
from harness.hosts.base import Host
from harness.interrupt import status_of, stoppable


def up(file: Path, changes: Sequence[str]) -> ExitCode:
    """Brings up the cluster of an experiment and keeps it until Ctrl-C, which is its usual end, or another signal."""
    spec = load(found(file), changes).cluster
    if isinstance(spec, LocalSpec | VmsSpec):
        rights.acquire()
    is_up = False
    try:
        with stoppable(), make_cluster(spec) as cluster:
            for host in cluster.hosts:
                print(host_line(host), flush=True)
            is_up = True
            print("up; Ctrl-C takes it down", flush=True)
            while True:
                signal.pause()
    except KeyboardInterrupt as stop:
        status = status_of(stop)
        return ExitCode.OK if is_up and status == ExitCode.INTERRUPTED else status


def prepare(file: Path, changes: Sequence[str]) -> ExitCode:
    """Fetches everything that the virtual machines of an experiment need. Raises `ClusterError`."""
    spec = load(found(file), changes).cluster
    if not isinstance(spec, VmsSpec):
        print(f'cluster.kind = "{spec.kind}": nothing is fetched for it')
        return ExitCode.OK
    from harness.cluster.vms.cluster import VmsCluster

    with stoppable():
        cluster = VmsCluster(spec)
        cluster.prepare()
    print(f"ready: {cluster.made_of()}")
    return ExitCode.OK


def host_line(host: Host) -> str:
    """One host as a line for people: its name, management address, and NICs."""
    nics = ", ".join(f"{nic.name} {nic.address}" for nic in host.nics)
    return f"{host.name}  {host.address}  {nics or 'no NICs'}"


def show() -> ExitCode:
    """Prints this user's clusters that are in use."""
    records = [record for record in map(state.read, living()) if record is not None]
    for record in records:
        print(f"{record.tag}  {record.name}  since {record.created}  process {record.owner.pid}")
    if not records:
        print("no cluster is up")
    return ExitCode.OK
