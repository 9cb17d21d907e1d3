"""This machine as it is, as a cluster: nothing is made, no SSH. For trials without a network."""

from typing import Any, Self

from harness.cluster.spec import NoopSpec
from harness.hosts.base import Host
from harness.hosts.each import all_results, for_each
from harness.hosts.noop import NoopHost


class NoopCluster:
    """`spec.hosts` agents side by side on this machine; no NICs."""

    def __init__(self, spec: NoopSpec) -> None:
        self.spec = spec
        self._hosts = [NoopHost(f"host{h}") for h in range(spec.hosts)]

    @property
    def hosts(self) -> list[Host]:
        """Its hosts; the noop cluster's exist even while it is down."""
        return list(self._hosts)

    @property
    def switches(self) -> list[Host]:
        """None."""
        return []

    def up(self) -> None:
        """Starts the agents."""
        try:
            all_results(for_each(self.hosts, lambda host: host.connect()))
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Ends the agents."""
        for_each(self.hosts, lambda host: host.close())

    def describe(self) -> dict[str, Any]:
        """Only the hosts' names."""
        return {"kind": "noop", "spec": self.spec.model_dump(), "hosts": [{"name": h.name} for h in self._hosts]}

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *exc: object) -> None:
        self.down()
