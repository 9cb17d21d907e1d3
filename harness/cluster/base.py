"""What a cluster is to the harness: hosts that come up, are described, and go down again.

`harness.cluster.local` makes one out of network namespaces, `harness.cluster.existing` takes hosts that are there,
`harness.cluster.noop` is this machine as it is.
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self

from harness.hosts.base import Host


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
