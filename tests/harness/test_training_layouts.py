"""Layouts of a model in training: what does not divide is one line, and every layout learns what one process would."""

import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch_ranks import NEEDS_TORCH, needs_entry_point

from harness.errors import InvalidExperimentError
from harness.experiment.file import load
from harness.workloads.layout import LayoutModel, Shape
from r2ccl_core.control.rendezvous import free_root

TRAINING = Path(__file__).parents[2] / "experiments" / "training.toml"
PROGRAM = Path(__file__).with_name("parallel_program.py")
RANKS = 4
MINOR = ".".join(version("torch").split(".")[:2]) if find_spec("torch") else ""
LAYOUTS_OF = {"2.6": 5, "2.9": 5}
"""Of eight, on versions of PyTorch that cannot run them all (`parallel_program.lacks`)."""


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["workload.layout={tp=2}"], "2 ranks, and the cluster has 3, one per host; dp x tp x pp must be the number"),
        (["workload.layout={dp=2, tp=2}"], "4 ranks, and the cluster has 3"),
        (["workload.layout={tp=3}"], "tp = 3 does not divide the 4 heads of the model"),
        (["workload.layout={pp=3}"], "pp = 3 does not divide the 4 layers of the model"),
        (
            ["cluster.hosts=4", "workload.layout={pp=2}", "workload.micro_batches=3"],
            "workload.micro_batches: 3: does not divide workload.batch, which is 4",
        ),
        (
            ["cluster.hosts=4", "workload.layout={pp=4}", "workload.micro_batches=2"],
            "give at least as many as stages, which are 4",
        ),
        (["cluster.hosts=2", "workload.layout={data='fsdp2', tp=2}"], "fsdp2 shards over dp, which is 1 here"),
        (["workload.layout=fdsp2"], "workload.layout"),
        (
            ["cluster.hosts=4", "workload.layout={pp=4}", "workload.forward_at_least=1 s"],
            "workload.forward_at_least: 1 s: the passes of a pipeline's stages alternate",
        ),
        (["workload.layout={ep=2}"], "workload.layout.ep: unknown key"),
        (
            ["cluster.hosts=4", "workload.layout={tp=2}", "system[0].backend=simulate"],
            "simulate supports only ddp; leave its systems out",
        ),
    ],
)
def test_a_layout_that_does_not_fit_is_one_line(settings: list[str], line: str) -> None:
    with pytest.raises(InvalidExperimentError) as caught:
        load(TRAINING, settings)
    assert line in str(caught.value) and len(str(caught.value).splitlines()) == 1


def test_a_layout_is_a_word_or_a_table() -> None:
    assert load(TRAINING, ["workload.layout=fsdp2"]).workload.layout.told(3) == "fsdp2 3"
    layout = load(TRAINING, ["cluster.hosts=4", "workload.layout={tp=2}"]).workload.layout
    assert layout.on(4) == (2, 2, 1) and layout.told(4) == "ddp 2 x tp 2" and layout.told() == "tp 2, the rest ddp"


def test_what_a_host_sends_is_counted_by_layout() -> None:
    shape, parameters = Shape(4, 144, 4), Shape(4, 144, 4).parameters(64)
    sent = {text: LayoutModel.model_validate(text).least_host_bytes(4, shape, 64, 2) for text in ("ddp", "fsdp2")}
    assert sent == {"ddp": 2 * 3 / 4 * 4 * parameters, "fsdp2": 3 * 3 / 4 * 4 * parameters}
    activation = 4 * 2 * 64 * 144
    assert LayoutModel(tp=4).least_host_bytes(4, shape, 64, 2) == 4 * 4 * 2 * 3 / 4 * activation
    assert LayoutModel(pp=4).least_host_bytes(4, shape, 64, 2) == activation


@pytest.mark.long
@pytest.mark.slow
@NEEDS_TORCH
@needs_entry_point("torch.backends")
def test_every_layout_learns_what_one_process_learns() -> None:
    host, _, port = free_root().partition(":")
    rendezvous = {"WORLD_SIZE": str(RANKS), "MASTER_ADDR": host, "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(PROGRAM)],
            env=os.environ
            | rendezvous
            | {"RANK": str(rank), "R2CC_SOCKET_IFNAME": f"lo@127.{rank + 1}.0.1,lo@127.{rank + 1}.0.2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        for process in started:
            out, _ = process.communicate(timeout=270)
            assert process.returncode == 0, out
            assert len([line for line in out.splitlines() if line.startswith("ok ")]) == LAYOUTS_OF.get(MINOR, 8), out
    finally:
        for process in started:
            process.kill()
            process.communicate()
