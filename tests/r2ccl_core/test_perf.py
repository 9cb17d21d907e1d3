"""The measuring program as its users run it: processes, flags, table, events, exit codes."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from r2ccl_core import native
from r2ccl_core.communicator import DTYPES, OPS
from r2ccl_core.errors import UsageError
from r2ccl_core.perf import pattern, table
from r2ccl_core.perf.flags import parse_flags
from r2ccl_core.perf.table import Result


def perf(ranks: int, *flags: str, **extra: str) -> list[tuple[int, str, str]]:
    """Runs the program on `ranks` processes over loopback: (exit code, stdout, stderr) by rank."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        root = f"127.0.0.1:{probe.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "r2ccl_core.perf", "all_reduce", *flags],
            env={**os.environ, "R2CC_RANK": str(rank), "R2CC_SIZE": str(ranks), "R2CC_ROOT": root}
            | {"R2CC_SOCKET_IFNAME": "=lo", **extra},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    outputs = [process.communicate(timeout=60) for process in started]
    return [(process.returncode, out, err) for process, (out, err) in zip(started, outputs, strict=True)]


def test_the_table_has_nccl_tests_columns() -> None:
    (code, out, err), (other, nothing, _) = perf(2, "-b", "1K", "-e", "4K", "-f", "2", "-n", "3")
    assert (code, other, nothing, err) == (0, 0, "", "")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["1024", "2048", "4096"]
    assert all(len(row) == 13 and row[2:5] == ["float32", "sum", "-1"] for row in rows)
    assert all(row[8] == row[12] == "0" for row in rows)
    assert "# Out of bounds values : 0 OK" in out and "# Avg bus bandwidth" in out


def test_one_spoilt_element_is_found_and_fails_the_run() -> None:
    results = perf(2, "-b", "64K", "-n", "2", "--corrupt", "1:1", "--place", "out")
    assert [code for code, _, _ in results] == [1, 1]
    assert "# Out of bounds values : 1 FAILED" in results[0][1]


def test_the_stream_tells_every_iteration_on_every_rank() -> None:
    for rank, (code, out, _) in enumerate(perf(3, "-b", "8K", "-n", "2", "-w", "1", "--place", "out", "--stream")):
        events = [json.loads(line) for line in out.splitlines()]
        assert code == 0
        kinds = [(e["event"], e.get("iteration")) for e in events]
        assert kinds[0] == ("ready", None) and kinds[-1] == ("done", None)
        assert kinds[1:-1] == [(kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")]
        assert all(e["rank"] == rank and e["t_ns"] > 0 for e in events)
        assert all(e["wrong"] == 0 and e["duration_ns"] > 0 for e in events if e["event"] == "iteration")
        assert events[-1]["core"]["nics"][0]["name"] == "lo"


def test_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    perf(2, "-b", "1K", "-n", "3", "-d", "bfloat16", "-o", "max", "-J", str(path))
    document: dict[str, Any] = json.loads(path.read_text())
    assert (document["schema"], document["ranks"], document["dtype"], document["op"]) == (1, 2, "bfloat16", "max")
    assert [(r["size_bytes"], r["place"], r["wrong"], len(r["times_us"])) for r in document["results"]] == [
        (1024, "out", 0, 3),
        (1024, "in", 0, 3),
    ]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-b", "12Q"], "12Q"),
        (["-b", "2M", "-e", "1M"], "below"),
        (["-n", "0"], "-n 0"),
        (["-f", "1"], "-f 1"),
        (["-d", "int8"], "int8"),
        (["--corrupt", "x"], "RANK:ITER"),
        (["--nonsense"], "--nonsense"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(flags: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_flags(["all_reduce", *flags])
    assert "\n" not in str(caught.value)


def test_bad_input_to_the_program_is_one_line_and_exit_2() -> None:
    for flags, extra in (
        (["-b", "1Q"], {}),
        ([], {"R2CC_MODE": "7"}),
        ([], {"R2CC_ROOT": "nowhere"}),
        ([], {"R2CC_SOCKET_IFNAME": "=nosuchnic"}),
    ):
        for code, out, err in perf(2, *flags, **extra):
            assert code == 2 and out == ""
            assert len(err.strip().splitlines()) == 1 and "Traceback" not in err


def test_sizes_step_as_nccl_tests_steps() -> None:
    assert parse_flags(["all_reduce", "-b", "1M", "-e", "64M", "-f", "8"]).sizes == (1 << 20, 1 << 23, 1 << 26)
    assert parse_flags(["all_reduce", "-b", "1K", "-e", "4K", "-i", "1K"]).sizes == (1024, 2048, 3072, 4096)
    assert parse_flags(["all_reduce", "-b", "0"]).sizes == (0,)
    assert parse_flags(["all_reduce", "-d", "half"]).dtype == "float16"


def test_bus_bandwidth_is_nccl_tests_definition() -> None:
    result = Result(64 << 20, "out", (0.5, 0.5), 0)
    assert result.algbw() == pytest.approx(0.134217728)
    assert result.busbw(3) == pytest.approx(0.134217728 * 4 / 3)
    assert table.bus_factor(1) == 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", DTYPES)
def test_the_native_pattern_is_the_numpy_one(name: str, op: str) -> None:
    core = native.load()
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    for ranks, count in ((1, 100), (3, 5000), (4, 64), (7, 129), (70, 1000), (100, 300), (300, 70)):
        for rank in {0, ranks // 2, ranks - 1}:
            data = np.empty(count, dtype)
            core.pattern_fill(data.view(np.uint8), name, rank, ranks, 3, 11, op)
            assert data.tobytes() == pattern.values(count, rank, ranks, 3, 11, op).astype(dtype).tobytes()
        right = pattern.result(count, ranks, 3, 11, op).astype(dtype)
        assert core.pattern_check(right.view(np.uint8), name, ranks, 3, 11, op) == 0
        wrong = right.copy()
        wrong.view(np.uint8)[5 * dtype.itemsize] ^= 1
        assert core.pattern_check(wrong.view(np.uint8), name, ranks, 3, 11, op) == 1


def test_the_pattern_sees_a_chunk_in_another_chunks_place() -> None:
    core = native.load()
    for ranks in (2, 3, 4, 8):
        right = pattern.result(1 << 18, ranks, 0, 0, "sum").astype(np.float32)
        shifted = np.roll(right, 1 << 15)
        assert core.pattern_check(shifted.view(np.uint8), "float32", ranks, 0, 0, "sum") > len(right) // 4
        other = pattern.result(1 << 18, ranks, 1, 0, "sum").astype(np.float32)
        assert core.pattern_check(other.view(np.uint8), "float32", ranks, 0, 0, "sum") > len(right) // 4
