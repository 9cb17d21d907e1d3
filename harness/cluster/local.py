"""A local cluster: hosts as network namespaces of this machine, reached over SSH like any other host.

Lifecycle: `up` chooses a tag and a management network, writes its record (owner first, so that a crash at any later
time is recognised), builds the network, starts the SSH servers and connects all hosts. `down` undoes these steps in
reverse. Both leave nothing behind, whatever happens in between; after kill -9, `harness.cluster.clean` does the same
from the record and the names.
"""

import os
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harness.cluster import netlink, processes, rights, sshd, state
from harness.cluster.clean import remove
from harness.cluster.layout import MANAGEMENT_NIC, SUBNETS, Layout, lay_out
from harness.cluster.spec import LocalSpec, VmsSpec
from harness.errors import ClusterError, HostError
from harness.hosts.base import Host
from harness.hosts.each import for_each
from harness.hosts.ssh import SshHost, SshLogin


class LocalCluster:
    """See the module. Not to be shared between processes; several may exist side by side.

    `harness.cluster.vms.cluster` overrides the methods without an underscore that `up` calls.
    """

    start_s = 15.0
    """How long an SSH server may take until it answers."""

    def __init__(self, spec: LocalSpec | VmsSpec) -> None:
        self.spec = spec
        self.layout: Layout | None = None
        self._places: list[SshHost] = []
        self._keeper: sshd.Keeper | None = None

    @property
    def hosts(self) -> list[Host]:
        """Its hosts in the order of their numbers; empty while it is down."""
        return list(self._places[:-1])

    @property
    def switches(self) -> list[Host]:
        """The one switch that all rails are on; empty while it is down."""
        return list(self._places[-1:])

    @property
    def tag(self) -> str:
        """The random tag that everything it has made carries; empty while it is down."""
        return self.layout.tag if self.layout else ""

    def up(self) -> None:
        """Makes and connects every host. Raises `RightsError` and `ClusterError`, and then leaves nothing behind."""
        if self.layout is not None:
            return
        rights.require()
        sshd.find_server()
        self.prepare()
        try:
            record = self._build()
            assert self.layout is not None
            self._start_servers(record)
            self._connect()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Removes everything that `up` made; harmless twice."""
        layout = self.layout
        if layout is None:
            return
        for_each(self._places, lambda host: host.close())
        self._places = []
        if self._keeper is not None:
            self._keeper.stop()
            self._keeper = None
        with state.lock():
            remove(layout.tag)
        self.layout = None

    def describe(self) -> dict[str, Any]:
        """The description of the cluster, as JSON values."""
        hosts = [{"name": h.name, "address": h.address, "nics": [asdict(n) for n in h.nics]} for h in self.hosts]
        return {"kind": self.spec.kind, "tag": self.tag, "spec": self.spec.model_dump(), "hosts": hosts}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.down()

    def prepare(self) -> None:
        """Provides the prerequisites, before anything of the cluster is made."""

    def lay_out(self, tag: str, subnet: str) -> Layout:
        """All names and addresses."""
        return lay_out(self.spec, tag, subnet)

    def make_network(self, layout: Layout) -> None:
        """Makes everything except processes."""
        assert isinstance(self.spec, LocalSpec)
        netlink.build(self.spec, layout)

    def account(self) -> sshd.Account:
        """The account that logs in."""
        return sshd.Account.current()

    def tasks(self, layout: Layout, directory: Path) -> list[dict[str, object]]:
        """The processes that the keeper starts: one per host or switch."""
        return [sshd.task(directory, place) for place in layout.places]

    def said(self, host: str) -> str:
        """The last output of the process behind a host or switch."""
        return sshd.said(state.directory(self.tag), host)

    def _build(self) -> state.Record:
        """Reserves a tag and a management network, then makes the network."""
        with state.lock():
            self.layout = self.lay_out(state.new_tag(), _free_subnet())
            record = _record(self.spec, self.layout, self.account().name)
            state.write(record)
            self.make_network(self.layout)
        return record

    def _start_servers(self, record: state.Record) -> None:
        assert self.layout is not None
        directory, account = state.directory(self.layout.tag), self.account()
        sshd.write_files(directory, self.layout, account)
        tasks = self.tasks(self.layout, directory)
        self._keeper = sshd.Keeper()
        self._keeper.start(tasks)
        found = map(processes.identify, [self._keeper.pid, *self._keeper.pids.values()])
        record.processes = [process for process in found if process is not None]
        state.write(record)
        for host in self.layout.places:
            known_hosts = directory / "known_hosts"
            login = SshLogin(host.address, sshd.PORT, account.name, directory / "login", known_hosts, record.python)
            place = SshHost(host.name, login, host.nics)
            place.management, place.ssh_config = MANAGEMENT_NIC, str(directory / sshd.CLIENT_CONFIGURATION)
            self._places.append(place)

    def _connect(self) -> None:
        errors = [e for e in for_each(self._places, self._connect_one).values() if isinstance(e, HostError)]
        if errors:
            raise ClusterError(f"the {self.spec.kind} cluster does not come up: {errors[0]}")

    def _connect_one(self, host: Host) -> None:
        """Waits until the server listens, then connects; if the server has ended, its log has the reason."""
        assert self._keeper is not None
        deadline = time.monotonic() + self.start_s
        while True:
            try:
                return host.connect()
            except HostError as e:
                ended = processes.identify(self._keeper.pids[host.name]) is None
                if ended or time.monotonic() > deadline:
                    raise HostError(host.name, self.said(host.name) or str(e)) from None
            time.sleep(0.02)


def _free_subnet() -> str:
    used = netlink.used_subnets()
    for subnet in SUBNETS:
        if subnet not in used:
            return subnet
    raise ClusterError(f"all {len(SUBNETS)} management networks are in use; run `harness clean`")


def _record(spec: LocalSpec | VmsSpec, layout: Layout, user: str) -> state.Record:
    owner = processes.identify(os.getpid())
    assert owner is not None
    return state.Record(
        tag=layout.tag,
        name=spec.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=sys.orig_argv,
        owner=owner,
        user_namespace=Path("/proc/self/ns/user").stat().st_ino,
        user=user,
        python=spec.host_python,
        layout=asdict(layout),
    )
