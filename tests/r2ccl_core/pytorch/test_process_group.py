"""init_process_group("r2ccl") in three processes: everything that DDP, FSDP2, pipelines and experts call."""

import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path

import pytest

from r2ccl_core.control.rendezvous import free_root

PROGRAM = Path(__file__).with_name("rank_program.py")
SIZE = 3

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("torch") is None, reason='PyTorch is not installed (pip install "r2ccl[torch]")'),
    pytest.mark.skipif(
        not any(found.name == "r2ccl" for found in entry_points(group="torch.backends")),
        reason="this checkout was installed before it had the entry point (pip install -e .)",
    ),
]


def run(*checks: str) -> None:
    """Runs the checks on every rank; each must end well and say so."""
    host, _, port = free_root().partition(":")
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore::FutureWarning", str(PROGRAM), *checks],
            env=os.environ
            | {
                "RANK": str(rank),
                "WORLD_SIZE": str(SIZE),
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "R2CC_SOCKET_IFNAME": f"lo@127.{rank + 1}.0.1,lo@127.{rank + 1}.0.2",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(SIZE)
    ]
    try:
        for process in started:
            out, _ = process.communicate(timeout=270)
            assert process.returncode == 0, out
            assert [line for line in out.splitlines() if line.startswith("ok ")] == [f"ok {name}" for name in checks], (
                out
            )
            assert "leaked" not in out
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_everything_that_training_calls() -> None:
    """One start of the ranks for all: importing PyTorch is what takes the time."""
    # FSDP2 of PyTorch 2.6 uses a method of streams that its streams for CPUs lack.
    fsdp2 = () if version("torch").startswith("2.6.") else ("fsdp2",)
    run(
        "reductions", "movements", "strided", "zero_copy", "in_any_order", "lock_is_free", "messages", "objects",
        "subgroups", "beside_another", "tensor_parallel", "refusals", "ddp", *fsdp2, "too_late", "aborted",
        "ddp_aborted",
    )  # fmt: skip
