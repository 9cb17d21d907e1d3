"""The GPU campaign: network, faults, groups and tables with a stand-in for NCCL; NCCL itself only where GPUs are."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
GPUS = shutil.which("nvidia-smi") is not None


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"campaign_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def campaign(out: Path, *options: str | int | float) -> list[dict[str, Any]]:
    argv = [sys.executable, str(HERE / "campaign.py"), str(out), *map(str, options)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.netns
def test_a_stand_in_goes_through_sizes_losses_and_failures(tmp_path: Path) -> None:
    sizes = ("--hosts", 3, "--rails", 2, "--rate", 2, "--largest", 1, "--loop", 0.25)
    only = ("--only", "sizes,degraded,failures", "--trials", 2, "--systems", "plugin")
    records = campaign(tmp_path / "out", "--stand-in", *sizes, *only)
    cells = [record for record in records if "median_s" in record]
    found = {cell["collective"] for cell in cells}
    assert found == {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv"}
    assert sum(cell["wrong"] for cell in cells) == 0
    failures = {
        record["failure"]: record for record in records if record["section"] == "failures" and "wrong" in record
    }
    assert set(failures) == {"carrier loss", "black hole"}
    assert all(one["wrong"] == 0 and one["trials"] >= 1 for one in failures.values())
    assert failures["black hole"]["worst_ms"] > 30, "the hole was not felt"
    text = (tmp_path / "out/results.md").read_text()
    assert "| plugin | one rail lost |" in text
    with tarfile.open(tmp_path / "out/campaign.tar.gz") as tar:
        assert "logs/plugin-0.log" in tar.getnames()


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(not GPUS, reason="no GPU: NCCL is not measured here")
def test_ranks_on_gpus_agree_with_arithmetic(tmp_path: Path) -> None:
    records = campaign(tmp_path / "out", "--only", "sizes", "--largest", 16)
    cells = [record for record in records if "median_s" in record]
    assert cells
    assert sum(cell["wrong"] for cell in cells) == 0


def test_time_lost_is_what_the_longest_iteration_in_the_fault_took_beyond_the_median() -> None:
    results = load("results")
    ms = 1_000_000
    lengths = [2 * ms, 2 * ms, 92 * ms, 2 * ms, 500 * ms]
    ends = [10 * ms, 20 * ms, 120 * ms, 130 * ms, 900 * ms]
    assert results.lost_ms((40 * ms, 125 * ms), ends, lengths) == 90.0
    assert results.lost_ms((5000 * ms, 6000 * ms), ends, lengths) is None
    assert results.percentile(list(range(1, 101)), 0.99) == 99
    assert results.percentile([5.0], 0.99) == 5.0


def test_the_return_is_when_five_iterations_are_as_short_as_before() -> None:
    results = load("results")
    ms = 1_000_000
    lengths = [2 * ms] * 5 + [3 * ms] * 10 + [2 * ms] * 6
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    assert results.return_ms(10 * ms, 22 * ms, ends, lengths) == 12.0  # two long ones do not move the median of five
    assert results.return_ms(10 * ms, 22 * ms, ends[:15], lengths[:15]) is None
    assert results.return_ms(1 * ms, 22 * ms, ends, lengths) is None


def test_tables_show_what_failed_and_what_training_came_to(tmp_path: Path) -> None:
    results = load("results").Results(tmp_path)
    results.add("ddp", system="plugin", state="healthy", seconds=1.0, losses=["0x1p+1"])
    results.add("ddp", system="plugin", state="hole", seconds=2.0, losses=["0x1p+2"])
    results.add("unshaped", error="a rank ended")
    text = results.write_tables()
    assert "| plugin | hole | 1 | 2.0 | NO |" in text
    assert "- unshaped: a rank ended" in text
    assert len((tmp_path / "results.jsonl").read_text().splitlines()) == 3


def test_a_section_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    argv = [sys.executable, str(HERE / "campaign.py"), str(tmp_path), "--only", "sises"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no section sises" in done.stderr
