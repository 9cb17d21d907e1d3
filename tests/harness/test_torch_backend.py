"""The torch backends: with gloo on real sockets where PyTorch is installed, and what is said where it is not."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from torch_ranks import NEEDS_TORCH, torch_forks

from harness.backends.registry import BACKENDS
from harness.workloads.collective import CollectiveWorkload
from r2ccl_core.model.collective import COLLECTIVES

WORKLOAD = CollectiveWorkload(sizes=(1 << 20,))  # type: ignore[call-arg]


Gloo = dict[str, list[tuple[int, list[dict[str, Any]]]]]
RANKS = 2
JOBS = {
    **{collective: (collective,) for collective in COLLECTIVES},
    "told barriers": ("all_reduce", "--nics", "lo"),
    "barriers of another NIC": ("all_reduce", "--nics", "eth9"),
}
"""By name, what torch_rank is given."""


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Gloo:
    """Exit status and events of every rank of every job: PyTorch is imported once for all."""
    jobs = []
    for words in JOBS.values():
        with socket.create_server(("127.0.0.1", 0)) as probe:
            root = f"127.0.0.1:{probe.getsockname()[1]}"
        argv = ["-m", "harness.backends.torch_rank", words[0], "--library", "gloo"]
        argv += ["--size-bytes", "300000", "--iterations", "2", "--warmup", "1", "--root", "1", *words[1:]]
        jobs.append([(argv, {"R2CC_RANK": str(rank), "R2CC_ROOT": root}) for rank in range(RANKS)])
    with torch_forks(R2CC_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo") as forks:
        ended = [forks.run(tmp_path_factory.mktemp("gloo"), job, errors=False) for job in jobs]
    return {
        name: [
            (rank.status, [json.loads(line) for line in rank.out.splitlines() if line.startswith("{")]) for rank in job
        ]
        for name, job in zip(JOBS, ended, strict=True)
    }


@NEEDS_TORCH
@pytest.mark.slow
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_exact_over_gloo(gloo: Gloo, collective: str) -> None:
    assert len(gloo[collective]) == RANKS
    for status, events in gloo[collective]:
        assert status == 0
        kinds = [(event["event"], event.get("iteration")) for event in events]
        assert kinds[0] == ("ready", None) and kinds[-1] == ("done", None)
        assert kinds[1:-1] == [(kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")]
        assert all(event["wrong"] == 0 for event in events if event["event"] == "iteration")


@NEEDS_TORCH
@pytest.mark.slow
def test_a_rank_tells_what_its_barriers_carry(gloo: Gloo) -> None:
    """Otherwise the NIC of gloo's barriers would seem to carry its collectives."""
    for status, (ready, *_) in gloo["told barriers"]:
        assert status == 0 and 100 < ready["barrier_bytes"] < 20_000
    assert [events[0]["barrier_bytes"] for _, events in gloo["barriers of another NIC"]] == [0, 0]


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
