"""The torch backends: with gloo on real sockets where PyTorch is installed, and what is said where it is not."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from torch_ranks import NEEDS_TORCH

from harness.backends.registry import BACKENDS
from harness.workloads.collective import CollectiveWorkload
from r2ccl_core.model.collective import COLLECTIVES

WORKLOAD = CollectiveWorkload(sizes=(1 << 20,))  # type: ignore[call-arg]


def gloo(ranks: int, collective: str, *flags: str) -> list[tuple[int, list[dict[str, Any]]]]:
    """Exit status and events of every rank."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        root = f"127.0.0.1:{probe.getsockname()[1]}"
    argv = [sys.executable, "-m", "harness.backends.torch_rank", collective, "--library", "gloo"]
    argv += ["--size-bytes", "300000", "--iterations", "2", "--warmup", "1", "--root", "1", *flags]
    started = [
        subprocess.Popen(
            argv,
            env=os.environ
            | {"R2CC_RANK": str(rank), "R2CC_SIZE": str(ranks), "R2CC_ROOT": root, "GLOO_SOCKET_IFNAME": "lo"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        # Each waits for the end of its stdin, so that is closed only after its end.
        said = [process.stdout.read() for process in started if process.stdout]
        return [
            (process.wait(60), [json.loads(line) for line in out.splitlines() if line.startswith("{")])
            for process, out in zip(started, said, strict=True)
        ]
    finally:
        for process in started:
            process.kill()
            process.communicate()


@NEEDS_TORCH
@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_exact_over_gloo(collective: str) -> None:
    for status, events in gloo(2, collective):
        assert status == 0
        kinds = [(event["event"], event.get("iteration")) for event in events]
        assert kinds[0] == ("ready", None) and kinds[-1] == ("done", None)
        assert kinds[1:-1] == [(kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")]
        assert all(event["wrong"] == 0 for event in events if event["event"] == "iteration")


@NEEDS_TORCH
@pytest.mark.slow
def test_a_rank_tells_what_its_barriers_carry() -> None:
    """Otherwise the NIC of gloo's barriers would seem to carry its collectives."""
    for status, (ready, *_) in gloo(2, "all_reduce", "--nics", "lo"):
        assert status == 0 and 100 < ready["barrier_bytes"] < 20_000
    assert [events[0]["barrier_bytes"] for _, events in gloo(2, "all_reduce", "--nics", "eth9")] == [0, 0]


def test_a_rank_without_pytorch_says_so_in_one_line() -> None:
    code = (
        "import sys, numpy; sys.modules['torch'] = None; sys.argv = ['torch_rank', 'all_reduce', '--library', 'gloo',"
        " '--size-bytes', '8', '--iterations', '1'];"
        "from harness.backends import torch_rank; torch_rank.main()"
    )
    env = os.environ | {"R2CC_RANK": "0", "R2CC_SIZE": "1", "R2CC_ROOT": "127.0.0.1:1"}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    out, err = process.stdout.read(), process.stderr.read()
    assert process.wait(60) == 2
    assert len(err.splitlines()) == 1 and "pip install torch" in err
    assert json.loads(out)["event"] == "error"
    process.communicate()


def test_preflight_names_the_python_that_lacks_pytorch(tmp_path: Any) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    bare.chmod(0o755)
    missing = BACKENDS["torch_gloo"].missing(WORKLOAD, str(bare))
    assert missing is not None and f"{bare} -m pip install torch" in missing
    assert "cannot be asked" in (BACKENDS["torch_gloo"].missing(WORKLOAD, "/no/python") or "")
