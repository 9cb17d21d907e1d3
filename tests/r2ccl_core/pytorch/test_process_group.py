"""init_process_group("r2ccl") in three processes: everything that DDP, FSDP2, pipelines and experts call."""

from importlib.metadata import version
from pathlib import Path

import pytest
from torch_ranks import NEEDS_TORCH, needs_entry_point, run

PROGRAM = Path(__file__).with_name("rank_program.py")

pytestmark = [pytest.mark.slow, NEEDS_TORCH, needs_entry_point("torch.backends")]


def test_everything_that_training_calls() -> None:
    """One start of the ranks for all: importing PyTorch is what takes the time."""
    # FSDP2 of PyTorch 2.6 uses a method of streams that its streams for CPUs lack.
    fsdp2 = () if version("torch").startswith("2.6.") else ("fsdp2",)
    run(
        PROGRAM, "reductions", "movements", "strided", "zero_copy", "in_any_order", "lock_is_free", "messages",
        "objects", "subgroups", "beside_another", "tensor_parallel", "refusals", "ddp", *fsdp2, "too_late", "aborted",
        "ddp_aborted",
    )  # fmt: skip
