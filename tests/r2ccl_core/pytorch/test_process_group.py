"""init_process_group("r2ccl") in three processes: everything that DDP, FSDP2, pipelines and experts call."""

from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch_ranks import run

PROGRAM = Path(__file__).with_name("rank_program.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason='PyTorch is not installed (pip install "r2ccl[torch]")'),
    pytest.mark.skipif(
        not any(found.name == "r2ccl" for found in entry_points(group="torch.backends")),
        reason="this checkout was installed before it had the entry point (pip install -e .)",
    ),
]


def test_everything_that_training_calls() -> None:
    """One start of the ranks for all: importing PyTorch is what takes the time."""
    # FSDP2 of PyTorch 2.6 uses a method of streams that its streams for CPUs lack.
    fsdp2 = () if version("torch").startswith("2.6.") else ("fsdp2",)
    run(
        PROGRAM, "reductions", "movements", "strided", "zero_copy", "in_any_order", "lock_is_free", "messages",
        "objects", "subgroups", "beside_another", "tensor_parallel", "refusals", "ddp", *fsdp2, "too_late", "aborted",
        "ddp_aborted",
    )  # fmt: skip
