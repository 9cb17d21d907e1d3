"""Memory: sizes that cannot fit are refused in one line before anything is touched."""

from pathlib import Path

import pytest

from harness.errors import ExperimentError
from harness.experiment.file import load
from harness.hosts.noop import NoopHost
from harness.sweep.memory import check_hosts, check_machine
from harness.sweep.plan import plan

ALLREDUCE = Path(__file__).parents[2] / "experiments" / "allreduce.toml"
TRAINING = ALLREDUCE.with_name("training.toml")
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


def test_a_model_that_does_not_fit_is_one_line_that_says_what_takes_the_memory() -> None:
    large = load(TRAINING, ["workload.model=120M"])
    needed = large.nranks * large.workload.memory_bytes(0, large.nranks)
    assert list(check_machine(large, "t.toml", needed)) == []
    (mistake,) = check_machine(large, "t.toml", needed - 1)
    assert str(mistake) == (
        "t.toml: workload.model: 120M: 3 hosts on this machine need 7.9 GiB (per rank 2.2 GiB of weights, gradients "
        'and optimizer, 0.2 GiB of activations), and 7.9 GiB are free; choose a smaller model, or layout = "fsdp2"'
    )
    long = load(TRAINING, ["workload.batch=256", "workload.context=1024"])
    (mistake,) = check_machine(long, "t.toml", 8 * GIB)
    assert str(mistake).startswith("t.toml: workload.batch: 256: 3 hosts on this machine need")
    assert str(mistake).endswith("of activations), and 8.0 GiB are free; choose a smaller batch or context")
    assert long.workload.fills_memory(["simulate", "train_gloo"]) and not long.workload.fills_memory(["simulate"])


def test_layouts_divide_what_a_rank_holds() -> None:
    def needed(layout: str, ranks: int = 4) -> int:
        more = [f"workload.layout={layout}", "cluster.hosts=4", "workload.model=120M", "workload.batch=16"]
        return load(TRAINING, more).workload.memory_bytes(0, ranks)

    alone, sharded = needed('"ddp"'), needed('"fsdp2"')
    assert sharded < needed('{data="fsdp2", tp=2}') + alone // 2 and sharded < alone
    assert needed("{tp=4}") < needed("{tp=2}") < alone
    assert needed("{pp=4}") < needed("{pp=2}") < alone
