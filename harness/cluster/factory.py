"""The one place that makes a cluster from its spec."""

from harness.cluster.base import Cluster, ClusterSpec


def make_cluster(spec: ClusterSpec) -> Cluster:
    """A cluster of the spec's kind, still down. Imports only what that kind needs."""
    if spec.kind == "noop":
        from harness.cluster.noop import NoopCluster

        return NoopCluster(spec)
    from harness.cluster.local import LocalCluster

    return LocalCluster(spec)
