"""torchcomms.new_comm("r2ccl") in three processes: with torchcomms where it can be imported, else with a stand-in."""

import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from torch_ranks import NEEDS_TORCH, needs_entry_point, run, torch_forks

PROGRAM = Path(__file__).with_name("torchcomms_rank.py")
CHECKS = (
    "reductions", "movements", "swaps", "in_any_order", "messages", "parts", "refusals", "same_name_again", "too_late",
)  # fmt: skip

pytestmark = [pytest.mark.slow, NEEDS_TORCH, needs_entry_point("torchcomms.backends")]


@cache
def lacking() -> str:
    """Why torchcomms cannot be used; empty if it can. The package index has a placeholder that cannot be imported."""
    if find_spec("torchcomms") is None:
        return "torchcomms is not installed"
    asked = subprocess.run(
        [sys.executable, "-c", "import torchcomms; torchcomms.register_backend"], capture_output=True, text=True
    )
    return f"torchcomms cannot be used: {asked.stderr.strip().splitlines()[-1]}" if asked.returncode else ""


def test_every_call_over_torchcomms(tmp_path: Path) -> None:
    if why := lacking():
        pytest.skip(why)
    with torch_forks() as forks:
        run(forks, PROGRAM, tmp_path, "data_parallel", *CHECKS)


def test_every_call_over_a_stand_in(tmp_path: Path) -> None:
    path = [str(PROGRAM.with_name("stand_in")), os.environ.get("PYTHONPATH", "")]
    with torch_forks(PYTHONPATH=os.pathsep.join(filter(None, path))) as forks:
        run(forks, PROGRAM, tmp_path, *CHECKS)
