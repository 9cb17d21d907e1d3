"""`harness simulate` and `harness export`: other simulators' files in, times and files out."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.commands.cli import app
from r2ccl_core.jobs import chakra
from r2ccl_core.jobs import chakra_format as form
from r2ccl_core.jobs.simai import read_topology
from r2ccl_core.model import schedule_file
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate

HEAD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {t} ep: {e} pp: {p} vpp: 1 ga: 2 all_gpus: {n} "
REST = "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 1048576"
LAYERS = (
    "grad_gather -1 1 NONE 0 1 NONE 0 1 ALLGATHER 800000000 100",
    "grad_param_comm -1 1 NONE 0 1 NONE 0 1 REDUCESCATTER 1600000000 100",
    "attention -1 5000000 ALLREDUCE 4000000 6000000 ALLREDUCE 4000000 1 NONE 0 100",
)


def harness(*arguments: object) -> tuple[int, str]:
    ended = CliRunner().invoke(app, [str(one) for one in arguments])
    return ended.exit_code, ended.output


def rows(*arguments: object) -> dict[str, Any]:
    status, told = harness("simulate", *arguments, "--json")
    assert status == 0, told
    return {row["strategy"]: row for row in json.loads(told)["rows"]}


def workload(
    folder: Path, layers: tuple[str, ...] = LAYERS, *, t: int = 8, e: int = 1, p: int = 1, n: int = 32
) -> Path:
    path = folder / "workload.txt"
    path.write_text("\n".join([HEAD.format(t=t, e=e, p=p, n=n) + REST, str(len(layers)), *layers]) + "\n")
    return path


def test_a_workload_on_a_topology_with_a_lost_link(tmp_path: Path) -> None:
    assert harness("export", "simai", tmp_path / "cluster", "--hosts", 4, "--lost", "1:0")[0] == 0
    found = rows(workload(tmp_path), "--topology", tmp_path / "cluster")
    assert found["no failure"]["parts"]["compute"] == pytest.approx(0.011000307)
    assert found["no failure"]["parts"]["tensor"] > 0
    data = {name: row["parts"]["data"] for name, row in found.items()}
    assert data["hot_repair"] / data["no failure"] == pytest.approx(2, rel=0.05)  # one NIC carries two shares
    assert data["balance"] / data["no failure"] == pytest.approx(8 / 7, rel=0.05)
    assert found["auto"]["seconds"] <= found["balance"]["seconds"] < found["hot_repair"]["seconds"]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_gets_whole_numbers(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    status, told = harness("simulate", workload(tmp_path, p=2), "--lost", "0:0")
    assert status == 0 and "\N{HORIZONTAL ELLIPSIS}" not in told
    for row in rows(workload(tmp_path, p=2), "--lost", "0:0").values():
        assert all(f"{1e3 * seconds:.3f}" in told for seconds in (row["seconds"], row["parts"]["data"]))


def test_the_same_hosts_by_options_and_by_a_file(tmp_path: Path) -> None:
    harness("export", "simai", tmp_path / "cluster", "--hosts", 4, "--lost", "1:0")
    file = workload(tmp_path)
    assert rows(file, "--topology", tmp_path / "cluster") == rows(file, "--lost", "1:0")


def test_a_pipeline_adds_its_bubble_and_its_boundaries(tmp_path: Path) -> None:
    parts = rows(workload(tmp_path, p=2))["no failure"]["parts"]
    assert parts["bubble"] == pytest.approx(parts["compute"] / 2)  # (2 - 1) / (1 x 2)
    assert parts["pipeline"] == pytest.approx(2 * (8 * 1048576 / 400e9 + 5e-6))


def test_experts_exchange_between_hosts(tmp_path: Path) -> None:
    layers = ("moe -1 1 ALLTOALL_EP 4000000 1 ALLTOALL_EP 4000000 1 REDUCESCATTER_DP_EP 1000000 1",)
    inside, across = (rows(workload(tmp_path, layers, t=1, e=e))["no failure"]["parts"]["expert"] for e in (8, 32))
    assert 0 < inside < across


@pytest.mark.parametrize(
    ("layers", "sizes", "line"),
    [
        (
            ("moe -1 1 ALLTOALL_EP 4 1 NONE 0 1 NONE 0 1",),
            {},
            "workload.txt:3: ALLTOALL_EP is of expert-parallel ranks",
        ),
        (("one -1 1 GATHER 4 1 NONE 0 1 NONE 0 1",), {}, "workload.txt:3: the collective 'GATHER' is unknown"),
        (LAYERS, {"t": 3}, "workload.txt:1: tensor 3 x pipeline 1 does not divide all_gpus = 32"),
        (LAYERS, {"t": 6, "n": 24}, "workload.txt:1: layout: tensor = 6 neither divides nor fills hosts of 8 GPUs"),
        (LAYERS, {"n": 36, "t": 4}, "--gpus 8: the 36 ranks of"),
    ],
)
def test_a_wrong_workload_is_one_line(
    tmp_path: Path, layers: tuple[str, ...], sizes: dict[str, int], line: str
) -> None:
    status, told = harness("simulate", workload(tmp_path, layers, **sizes))
    assert status == 2
    assert line in told and len(told.strip().splitlines()) == 1


@pytest.mark.parametrize("lost", [(), ("--lost", "0:0")])
def test_an_unknown_strategy_is_one_line_also_where_nothing_is_lost(tmp_path: Path, lost: tuple[str, ...]) -> None:
    status, told = harness("simulate", workload(tmp_path), "--strategy", "best", *lost)
    assert status == 2 and told.startswith("strategy 'best' is unknown; it is one of hot_repair, balance")


def test_hosts_that_do_not_fit_the_ranks_are_one_line(tmp_path: Path) -> None:
    harness("export", "simai", tmp_path / "cluster", "--hosts", 3)
    status, told = harness("simulate", workload(tmp_path), "--topology", tmp_path / "cluster")
    assert status == 2 and f"is of 32 ranks; the hosts of --topology {tmp_path / 'cluster'} have 24 GPUs" in told


def test_a_schedule_of_ours_there_and_back(tmp_path: Path) -> None:
    """It is exported for hosts with a loss, read again, and takes what the simulator says of it."""
    options = ("--hosts", 4, "--nics", 4, "--lost", "1:2", "--size", "64MiB")
    status, told = harness("export", "chakra", tmp_path, *options, "--algorithm", "optcc")
    assert status == 0 and "optcc, all_reduce of 64MiB" in told
    topology = Topology.uniform(4, 4, 100e9 / 8).lost(1, 2)
    made = next(one for one in plan(topology, "all_reduce", 64 << 20, 20e-6).candidates if one.name == "optcc").build()
    assert schedule_file.digest(chakra.schedule_of(chakra.read(tmp_path / "optcc"))) == schedule_file.digest(made)
    hosts = ("--gpus", 1, "--nics", 4, "--rate", "100Gbit/s", "--lost", "1:2", "--alpha", "20us")
    for name in ("optcc", "optcc.2.et"):
        found = rows(tmp_path / name, *hosts)
        expected_s = simulate(made, topology, 64 << 20, alpha_s=20e-6).seconds
        assert found["this schedule"]["seconds"] == pytest.approx(expected_s, rel=1e-9)
        assert found["no failure"]["seconds"] < found["this schedule"]["seconds"]


def test_without_a_name_the_planners_choice_is_exported(tmp_path: Path) -> None:
    assert harness("export", "chakra", tmp_path, "--size", "64MiB")[0] == 0
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["ring.0.et", "ring.1.et", "ring.2.et"]
    status, told = harness("export", "chakra", tmp_path, "--algorithm", "treee")
    assert status == 2 and "--algorithm treee: does not do all_reduce on these hosts; there are" in told


def test_a_topology_is_written_again_without_what_is_lost(tmp_path: Path) -> None:
    harness("export", "simai", tmp_path / "whole", "--hosts", 2, "--gpus", 4)
    harness(
        "export", "simai", tmp_path / "poor", "--topology", tmp_path / "whole", "--lost", "1:3", "--lost", "0:1:0.5"
    )
    assert read_topology(tmp_path / "poor") == Topology.uniform(2, 4, 50e9, gpus=4).lost(1, 3).slowed(0, 1, 0.5)
    status, told = harness("export", "simai", tmp_path / "none" / "file")
    assert status == 2 and "cannot be written" in told


def test_a_file_is_replaced_only_where_it_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    file.write_text("mine")
    status, told = harness("export", "simai", file)
    assert (status, told) == (2, f"{file}: exists already; name another file, or give --force\n")
    assert file.read_text() == "mine"
    assert harness("export", "simai", file, "--force")[0] == 0
    assert read_topology(file) == Topology.uniform(3, 8, 50e9, gpus=8)


def test_what_is_neither_is_one_line(tmp_path: Path) -> None:
    status, told = harness("simulate", tmp_path / "nothing")
    assert status == 2 and "is neither a SimAI workload nor a Chakra trace; there is no nothing.0.et" in told


def trace(folder: Path, *ranks: list[Any]) -> Path:
    for rank, nodes in enumerate(ranks):
        (folder / f"job.{rank}.et").write_bytes(form.to_bytes([form.metadata(), *nodes]))
    return folder / "job"


def compute(number: int, us: int, *waits: int) -> Any:
    made = form.node(number, "compute", form.COMPUTE, ctrl=[], data=list(waits))
    made.duration_micros = us
    return made


def collective(number: int, name: str, size: int, *waits: int, group: str = "") -> Any:
    attributes = {"comm_type": ("int64", form.COLLECTIVES.index(name)), "comm_size": ("int64", size)}
    if group:
        attributes["pg_name"] = ("string", group)  # type: ignore[assignment]
    return form.node(number, name, form.COLLECTIVE, ctrl=[], data=list(waits), **attributes)


def message(number: int, kind: int, source: int, target: int, size: int, *waits: int) -> Any:
    ends = {"comm_src": source, "comm_dst": target, "comm_size": size, "comm_tag": 0}
    return form.node(
        number, "message", kind, ctrl=[], data=list(waits), **{key: ("int64", value) for key, value in ends.items()}
    )


TWO_HOSTS = ("--gpus", 1, "--nics", 2, "--rate", "80Gbit/s", "--alpha", "0us")


def test_a_collective_waits_for_its_last_rank(tmp_path: Path) -> None:
    """1 ms and 3 ms of computation, then 200 MB over 20 GB/s: 10 ms; 20 ms with one of two NICs lost."""
    file = trace(
        tmp_path,
        [compute(0, 1000), collective(1, "all_reduce", 200_000_000, 0)],
        [compute(0, 3000), collective(1, "all_reduce", 200_000_000, 0)],
    )
    found = rows(file, *TWO_HOSTS, "--lost", "0:0")
    assert found["no failure"]["seconds"] == pytest.approx(0.013)
    assert found["no failure"]["parts"] == {"compute": 0.003}
    assert found["balance"]["seconds"] == pytest.approx(0.023)


def test_messages_and_computations_follow_the_graph(tmp_path: Path) -> None:
    """Rank 0 computes twice, one after the other; what it sends after the first arrives while the second runs."""
    file = trace(
        tmp_path,
        [compute(0, 1000), compute(1, 1000), message(2, form.SEND, 0, 1, 20_000_000, 0)],
        [message(0, form.RECEIVE, 0, 1, 20_000_000), compute(1, 500, 0)],
    )
    assert rows(file, *TWO_HOSTS)["no failure"]["seconds"] == pytest.approx(0.001 + 0.001 + 0.0005)


def test_groups_meet_apart(tmp_path: Path) -> None:
    """Two groups of two ranks on two hosts each; the ranks of host 0 wait for their own partner only."""
    ranks = [
        [compute(0, us), collective(1, "barrier", 0, 0, group=name)]
        for us, name in zip((1, 2, 7, 4), "abab", strict=True)
    ]
    file = trace(tmp_path, *ranks)
    found = rows(file, "--gpus", 2, "--nics", 2, "--rate", "80Gbit/s", "--alpha", "1us")
    assert found["no failure"]["seconds"] == pytest.approx(7e-6 + 2e-6, rel=0.02)


@pytest.mark.parametrize(
    ("second", "line"),
    [
        ([collective(1, "all_gather", 100)], "job.1.et: node 1: all_gather of 100 bytes, where rank 0 has all_reduce"),
        ([], "job.0.et: node 2: rank 1 is of this process group and has fewer collectives"),
        ([collective(1, "all_reduce", 100), collective(2, "gather", 8)], "job.1.et: node 2: gather is not simulated"),
    ],
)
def test_ranks_that_disagree_are_one_line(tmp_path: Path, second: list[Any], line: str) -> None:
    first = [collective(1, "all_reduce", 100), collective(2, "all_reduce", 100, 1)]
    file = trace(tmp_path, first, second or [collective(1, "all_reduce", 100)])
    status, told = harness("simulate", file, *TWO_HOSTS)
    assert status == 2
    assert line in told and len(told.strip().splitlines()) == 1


def test_ranks_that_wait_for_each_other_are_one_line(tmp_path: Path) -> None:
    file = trace(
        tmp_path,
        [message(0, form.RECEIVE, 1, 0, 8), message(1, form.SEND, 0, 1, 8, 0)],
        [message(0, form.RECEIVE, 0, 1, 8), message(1, form.SEND, 1, 0, 8, 0)],
    )
    status, told = harness("simulate", file, *TWO_HOSTS)
    assert status == 2 and "job.0.et: node 0: waits for other ranks for ever" in told
