"""SimAI's files there and back, and what is wrong with others by file and line."""

from pathlib import Path

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs.iteration import iteration, measured
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import MODELS
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.simai import read_topology, read_workload, write_topology, write_workload
from r2ccl_core.model.topology import Topology

HEAD = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 2 vpp: 8 ga: 4 all_gpus: 32 "
    "checkpoints: 0 checkpoint_initiates: 0 pp_comm: 8388608"
)
LAYERS = """grad_gather\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t2000\t100
attention -1 500 ALLREDUCE 4096 600 ALLREDUCE 4096 1 NONE 0 100
moe -1 500 ALLTOALL_EP 4096 600 ALLTOALL_EP 4096 1 REDUCESCATTER_DP_EP 8 100
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "file.txt"
    path.write_text(text)
    return path


def test_a_workload_there_and_back(tmp_path: Path) -> None:
    first = read_workload(written(tmp_path, f"{HEAD}\n3\n{LAYERS}"))
    assert first.values["model_parallel_NPU_group"] == 8 and first.values["all_gpus"] == 32
    assert first.pipeline_bytes == 8 << 20
    assert [layer.name for layer in first.layers] == ["grad_gather", "attention", "moe"]
    assert first.layers[0].weights.collective == "ALLGATHER" and first.layers[0].weights.size_bytes == 2000
    assert first.layers[2].backward.compute_ns == 600
    assert read_workload(written(tmp_path, write_workload(first))) == first


def test_blank_lines_count(tmp_path: Path) -> None:
    first = read_workload(written(tmp_path, f"{HEAD}\n3\n\n{LAYERS}"))
    assert [layer.line for layer in first.layers] == [4, 5, 6]


def test_computation_as_measured(tmp_path: Path) -> None:
    """An iteration computes as long as the file's layers say, and communicates as before."""
    found = measured(written(tmp_path, f"{HEAD}\n3\n{LAYERS}"))
    assert found.measured_s == pytest.approx(1e-9 * (3 + 100 + 2 * (500 + 600 + 1 + 100)))
    model, layout = MODELS["gpt3-2.7b"], Layout(data=16)
    network = Network(Topology.uniform(2, 8, 50e9, gpus=8))
    by_file, by_flops = iteration(model, layout, network, found), iteration(model, layout, network)
    assert by_file.compute_s == found.measured_s and by_file.data_s == by_flops.data_s
    with pytest.raises(UsageError, match=r"file\.txt:3: no layer computes"):
        measured(written(tmp_path, f"{HEAD}\n1\nnothing -1 0 NONE 0 0 NONE 0 0 NONE 0 0\n"))


@pytest.mark.parametrize("gpus", [2, 8])
def test_a_topology_with_lost_links_there_and_back(tmp_path: Path, gpus: int) -> None:
    topology = Topology.uniform(3, gpus, 50e9, gpus=gpus).lost(1, 0).slowed(2, 1, 0.5)
    text = write_topology(topology)
    assert len(text.splitlines()) == 2 + 2 * 3 * gpus - 1  # one link is not there
    assert read_topology(written(tmp_path, text)) == topology
    assert read_topology(written(tmp_path, text)) != topology.healthy


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("DLRM\n0\n", "file.txt:1: begins with 'DLRM'"),
        (f"{HEAD.replace('ga: 4', '')}\n0\n", "file.txt:1: ga missing"),
        (f"{HEAD.replace('pp: 2', 'pp: 3')}\n0\n", "file.txt:1: tensor 8 x pipeline 3 does not divide all_gpus = 32"),
        (f"{HEAD.replace('ep: 1', 'ep: 5')}\n0\n", "file.txt:1: ep = 5 does not divide the 16 GPUs of a stage"),
        (f"{HEAD.replace('pp: 2', 'pp: 0')}\n0\n", "file.txt:1: pp is 0"),
        (f"{HEAD}\n", "file.txt:2: the number of layers"),
        (f"{HEAD}\n4\n{LAYERS}", "file.txt:2: 4 layers are announced, 3 follow"),
        (f"{HEAD}\n3\n{LAYERS.replace('ALLTOALL_EP', 'GOSSIP')}", "file.txt:5: the collective 'GOSSIP' is unknown"),
        (f"{HEAD}\n3\n{LAYERS.replace('4096', '-1')}", "file.txt:4: '-1' is not a count"),
        (f"{HEAD}\n3\n{LAYERS.replace('attention -1', 'attention')}", "file.txt:4: 11 fields"),
    ],
)
def test_workloads_that_are_none(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_workload(written(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("8 2", "x 2"), "file.txt:1: .* five counts"),
        (("8 2", "12 2"), "file.txt:1: 12 nodes are not 2 hosts"),
        (("0 6 400Gbps", "0 60 400Gbps"), "file.txt:.*node 60 does not exist"),
        (("0 6 400Gbps", "0 6 400"), "file.txt:.*has no unit"),
        (("0 6 400Gbps 0.0005ms 0\n", ""), "7 follow"),
        (("0 6 400Gbps", "0 6 0Gbps"), "file.txt:4: a link of 0Gbps; leave out"),
        (("0 6 400Gbps", "0 0 400Gbps"), "file.txt:4: node 0 is linked to itself"),
        (("0 6 400Gbps", "0 1 400Gbps"), "file.txt:4: GPUs 0 and 1 are linked without a switch"),
        (("0 4 3600Gbps", "0 5 3600Gbps"), "file.txt:3: GPU 0 of host 0 is linked to the inner switch of host 1"),
        (("1 7 400Gbps", "0 7 400Gbps"), "file.txt:6: GPU 0 has a second link to a rail; line 4 has the first"),
    ],
)
def test_topologies_that_are_none(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    whole, (before, after) = write_topology(Topology.uniform(2, 2, 50e9, gpus=2)), change
    assert before in whole
    text = whole.replace(before, after, 1)
    with pytest.raises(UsageError, match=told):
        read_topology(written(tmp_path, text))


def test_links_between_switches_do_not_matter(tmp_path: Path) -> None:
    """SimAI's own files have another layer of switches."""
    topology = Topology.uniform(2, 2, 50e9, gpus=2)
    whole = write_topology(topology)
    text = whole.replace("8 2 2 2 8", "8 2 2 2 9", 1) + "6 7 400Gbps 0.0005ms 0\n"
    assert text.count("\n") == whole.count("\n") + 1 and read_topology(written(tmp_path, text)) == topology


def test_a_host_without_a_path_is_told(tmp_path: Path) -> None:
    text = write_topology(Topology.uniform(2, 2, 50e9, gpus=2).lost(1, 0).lost(1, 1))
    own = next(number for number, line in enumerate(text.splitlines(), 1) if number > 2 and line.startswith("2 "))
    with pytest.raises(UsageError, match=f"file.txt:{own}: host 1 has no link to a switch, so no path"):
        read_topology(written(tmp_path, text))


def test_nics_must_match_gpus() -> None:
    with pytest.raises(UsageError, match="one NIC a GPU"):
        write_topology(Topology.uniform(2, 3, 50e9, gpus=2))
