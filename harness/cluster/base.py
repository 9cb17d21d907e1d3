"""A cluster as the harness sees it: hosts that come up, are described, and go down again.

`harness.cluster.local` makes one from network namespaces, `harness.cluster.existing` uses existing hosts,
`harness.cluster.noop` is this machine as it is.
"""

from collections.abc import Sequence
from typing import Any, Protocol, Self

from harness.hosts.base import Host


class Cluster(Protocol):
    """A set of hosts with a lifecycle: `up`, use, `down`; a context manager calls both."""

    @property
    def hosts(self) -> Sequence[Host]:
        """Its hosts in the order of their numbers; connected from `up` to `down`."""
        ...

    @property
    def switches(self) -> Sequence[Host]:
        """Switches that run Linux and are reached like hosts. Faults on their ports run there; they have no ranks."""
        ...

    def up(self) -> None:
        """Makes and connects every host. After an error, everything made so far is removed again."""
        ...

    def down(self) -> None:
        """Closes and removes everything that `up` made; harmless twice."""
        ...

    def describe(self) -> dict[str, Any]:
        """The description of the cluster, as JSON values, for the provenance of a run."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
