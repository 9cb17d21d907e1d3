"""Starts the ranks of a test of PyTorch as processes of this machine, two NICs each, and holds them to their checks."""

import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

from r2ccl_core.control.rendezvous import free_root

SIZE = 3
NEEDS_TORCH = pytest.mark.skipif(
    find_spec("torch") is None, reason='PyTorch is not installed (pip install "r2ccl[torch]")'
)


def needs_entry_point(group: str) -> pytest.MarkDecorator:
    """Skips where this checkout was installed before it had the entry point "r2ccl" in the group."""
    return pytest.mark.skipif(
        not any(found.name == "r2ccl" for found in entry_points(group=group)),
        reason=f"this checkout was installed before it had the entry point in {group} (pip install -e .)",
    )


def run(program: Path, *checks: str, env: Mapping[str, str] | None = None, size: int = SIZE) -> None:
    """Runs the checks on each of `size` ranks; each must end well and say so."""
    host, _, port = free_root().partition(":")
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore::FutureWarning", str(program), *checks],
            env=os.environ
            | {
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": host,
                "MASTER_PORT": port,
                "R2CC_SOCKET_IFNAME": f"lo@127.{rank + 1}.0.1,lo@127.{rank + 1}.0.2",
                "OMP_NUM_THREADS": "1",
            }
            | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outs = [process.communicate(timeout=270)[0] for process in started]
        said = "\n".join(f"rank {rank}: {line}" for rank, out in enumerate(outs) for line in out.splitlines())
        assert [process.returncode for process in started] == [0] * size, said
        for out in outs:
            done = [line for line in out.splitlines() if line.startswith("ok ")]
            assert done == [f"ok {name}" for name in checks], said
            assert "leaked" not in out, said
    finally:
        for process in started:
            process.kill()
            process.communicate()
