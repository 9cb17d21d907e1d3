"""Memory: sizes that cannot fit are refused in one line before anything is touched."""

from pathlib import Path

import pytest

from harness.errors import ExperimentError
from harness.experiment.file import load
from harness.hosts.noop import NoopHost
from harness.sweep.memory import check_hosts, check_machine
from harness.sweep.plan import plan

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
GIB = 1024**3


def test_the_hosts_of_a_local_cluster_share_this_machine() -> None:
    experiment = load(ALLREDUCE, ['workload.sizes=["1GiB"]', "workload.iterations_by_size={}"])
    assert list(check_machine(experiment, "e.toml", 6 * GIB)) == []
    (mistake,) = check_machine(experiment, "e.toml", 6 * GIB - 1)
    assert str(mistake) == (
        "e.toml: workload.sizes: 1GiB: 3 hosts on this machine need 6.0 GiB, and 6.0 GiB are free; choose a smaller"
    )
    in_place = load(ALLREDUCE, ['workload.sizes=["1GiB"]', "workload.iterations_by_size={}", "workload.place=in"])
    assert list(check_machine(in_place, "e.toml", 3 * GIB)) == []
    two = load(ALLREDUCE, ['workload.sizes=["1GiB"]', "workload.iterations_by_size={}", "workload.gpus=2"])
    assert list(check_machine(two, "e.toml", 12 * GIB)) == []
    assert "3 hosts on this machine need 12.0 GiB" in str(next(iter(check_machine(two, "e.toml", 12 * GIB - 1))))
    noop = load(ALLREDUCE, ['workload.sizes=["1TiB"]', "workload.iterations_by_size={}", "workload.backend=noop"])
    assert list(check_machine(noop, "e.toml", GIB)) == []


def test_hosts_of_their_own_are_asked() -> None:
    experiment = load(ALLREDUCE, ['workload.sizes=["8TiB"]', "workload.iterations_by_size={}"])
    foreign = experiment.model_copy(update={"cluster": experiment.cluster.model_copy(update={"kind": "inventory"})})
    host = NoopHost("node7")
    host.connect()
    try:
        check_hosts(experiment, [host], plan(experiment))
        with pytest.raises(ExperimentError, match=r"^workload\.sizes: 8TiB: node7 needs 16384\.0 GiB for it, and"):
            check_hosts(foreign, [host], plan(experiment))
    finally:
        host.close()
