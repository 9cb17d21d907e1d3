"""init_process_group("r2ccl") in three processes: everything that DDP, FSDP2, pipelines and experts call."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from forked import Forks
from torch_ranks import NEEDS_TORCH, needs_entry_point, run, torch_forks

PROGRAM = Path(__file__).with_name("rank_program.py")

pytestmark = [pytest.mark.slow, NEEDS_TORCH, needs_entry_point("torch.backends")]


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Importing PyTorch is what takes the time."""
    with torch_forks() as made:
        yield made


@pytest.mark.parametrize("group", ["r2ccl", "cpu:r2ccl,cuda:nccl", "cuda:nccl,cpu:r2ccl"])
def test_cuda_tensors_go_over_nccl(forks: Forks, group: str, tmp_path: Path) -> None:
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    run(forks, PROGRAM, tmp_path, "on_gpus", env={"GROUP": group}, size=2)


@pytest.mark.parametrize("group", ["cpu:r2ccl", "cpu:r2ccl,cuda:nccl"])
def test_a_group_whose_name_asks_for_devices(forks: Forks, group: str, tmp_path: Path) -> None:
    """Without a GPU its CPU part works all the same."""
    run(forks, PROGRAM, tmp_path, "reductions", "objects", "refusals", env={"GROUP": group})


def test_everything_that_training_calls(forks: Forks, tmp_path: Path) -> None:
    # FSDP2 of PyTorch 2.6 uses a method of streams that its streams for CPUs lack.
    fsdp2 = () if version("torch").startswith("2.6.") else ("fsdp2",)
    run(
        forks, PROGRAM, tmp_path, "reductions", "movements", "types_are_told_apart", "strided", "modes_of_autograd",
        "zero_copy", "in_any_order", "lock_is_free", "messages", "tags_used_once", "objects", "subgroups",
        "beside_another", "tensor_parallel", "refusals", "ddp", *fsdp2, "too_late", "nobody_receives", "aborted",
        "ddp_aborted", "again_in_the_same_store",
    )  # fmt: skip
