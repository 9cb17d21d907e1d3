"""Makes a cluster from its spec; no other module does."""

from harness.cluster.base import Cluster
from harness.cluster.spec import ClusterSpec, InventorySpec, NoopSpec, VmsSpec


def make_cluster(spec: ClusterSpec) -> Cluster:
    """A cluster of the spec's kind, still down. Imports only the modules of that kind."""
    if isinstance(spec, NoopSpec):
        from harness.cluster.noop import NoopCluster

        return NoopCluster(spec)
    if isinstance(spec, InventorySpec):
        from harness.cluster.existing import ExistingCluster

        return ExistingCluster(spec)
    if isinstance(spec, VmsSpec):
        from harness.cluster.vms.cluster import VmsCluster

        return VmsCluster(spec)
    from harness.cluster.local import LocalCluster

    return LocalCluster(spec)
