"""The GPU campaign: network, faults, groups and tables with a stand-in for NCCL; NCCL itself only where GPUs are."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
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
    done = subprocess.run(argv, capture_output=True, text=True, timeout=270, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.mark.netns
def test_a_stand_in_goes_through_sizes_losses_and_failures(tmp_path: Path) -> None:
    sizes = ("--hosts", 3, "--rails", 2, "--rate", 2, "--largest", 1, "--loop", 0.25)
    every = "all_reduce,all_gather,reduce_scatter,broadcast,sendrecv,alltoall,reduce,gather,scatter"
    only = ("--only", "sizes,degraded,failures", "--trials", 2, "--systems", "plugin", "--collectives", every)
    records = campaign(tmp_path / "out", "--stand-in", *sizes, *only)
    cells = [record for record in records if "median_s" in record]
    found = {cell["collective"] for cell in cells}
    assert found == set(every.split(","))
    assert sum(cell["wrong"] for cell in cells) == 0
    failures = {
        record["failure"]: record for record in records if record["section"] == "failures" and "wrong" in record
    }
    assert set(failures) == {"carrier loss", "black hole"}
    assert all(one["wrong"] == 0 and one["trials"] >= 1 for one in failures.values())
    for one in failures.values():
        assert min(one["carried_bytes"]) > 0, "a NIC was struck that nobody used"
        # What stood in the cable's queue may still come.
        assert max(one["leaked_bytes"]) < max(one["carried_bytes"]), "a NIC that was struck went on"
    text = (tmp_path / "out/results.md").read_text()
    assert "| plugin | one rail lost |" in text
    with tarfile.open(tmp_path / "out/campaign.tar.gz") as tar:
        assert "logs/plugin-0.log" in tar.getnames()


@pytest.mark.netns
def test_a_stand_in_has_several_communicators_and_measures_latency_by_turns(tmp_path: Path) -> None:
    sizes = ("--hosts", 3, "--rails", 2, "--rate", 2, "--largest", 1)
    rounds = ("--rounds", 2, "--latency-bytes", "8,1024", "--collectives", "all_reduce,all_gather,sendrecv")
    records = campaign(tmp_path / "out", "--stand-in", *sizes, "--only", "contract,latency", *rounds)
    [contract] = [record for record in records if record["section"] == "contract"]
    assert contract["wrong"] == 0
    # By size: 3 rounds of 2, half and parent, the parent again, the first after the abort on 3 ranks; 2 without the
    # last. And one while the half is destroyed, one before the abort.
    assert contract["cases"] == 2 * (3 * (3 * 2 + 2 + 1 + 1) + 2) + 3 * 2
    assert contract["abort_ms"] < 5000
    cells = [record for record in records if record["section"] == "latency"]
    order = [(cell["round"], cell["system"]) for cell in cells]
    assert list(dict.fromkeys(order)) == [(0, "socket"), (0, "plugin"), (1, "plugin"), (1, "socket")]
    assert sum(cell["wrong"] for cell in cells) == 0
    ratios = [record for record in records if record["section"] == "latency_ratio"]
    assert [(ratio["collective"], ratio["bytes"], ratio["rounds"]) for ratio in ratios] == [
        (collective, nbytes, 2)
        for collective, sizes_of_it in (("all_reduce", (8, 1024)), ("all_gather", (12, 1020)), ("sendrecv", (8, 1024)))
        for nbytes in sizes_of_it
    ]
    text = (tmp_path / "out/results.md").read_text()
    assert "AllReduces on 3 ranks" in text
    assert "| all_gather | 12 |" in text


@pytest.mark.netns
def test_hosts_of_two_ranks_share_their_nics_and_lose_them_together(tmp_path: Path) -> None:
    sizes = ("--hosts", 3, "--ranks", 2, "--rails", 3, "--rate", 1, "--sizes", 1)
    records = campaign(tmp_path / "out", "--stand-in", *sizes, "--only", "several")
    cells = [record for record in records if record["section"] == "several" and "median_s" in record]
    assert [cell["state"].split()[0] for cell in cells] == ["healthy", "one", "one", "two", "two", "back"]
    assert sum(cell["wrong"] for cell in cells) == 0
    shares = {record["state"]: record["shares"] for record in records if record["section"] == "several_ratio"}
    assert min(map(min, shares["healthy"])) > 0
    lost = shares["two hosts without different rails"]
    assert max(lost[1][1], lost[2][2]) < 0.05 < min(lost[1][2], lost[2][1])
    assert "| two hosts without different rails | 1 |" in (tmp_path / "out/results.md").read_text()


@pytest.mark.netns
def test_a_stand_in_has_communicators_that_come_and_go(tmp_path: Path) -> None:
    sizes = ("--hosts", 2, "--rails", 2, "--rate", 2, "--largest", 1)
    records = campaign(tmp_path / "out", "--stand-in", *sizes, "--only", "lives", "--lives", 7)
    [lives] = [record for record in records if record["section"] == "lives"]
    assert (lives["lives"], lives["ranks"], lives["wrong"]) == (7, 2, 0)
    assert set(lives["grown"]) == {"descriptors", "threads", "bytes_a_life"}
    assert (
        "plugin:lives: 7 on 2 ranks, one after another: 0 wrong elements" in (tmp_path / "out/results.md").read_text()
    )


@pytest.mark.netns
def test_a_stand_in_hears_of_a_killed_rank(tmp_path: Path) -> None:
    sizes = ("--hosts", 3, "--rails", 2, "--rate", 2, "--largest", 1)
    records = campaign(tmp_path / "out", "--stand-in", *sizes, "--only", "killed", "--kills", 1)
    deaths = [record for record in records if record["section"] == "killed"]
    cells = [(death["bytes"], death["victim"], len(death["heard_ms"])) for death in deaths]
    assert cells == [(1024, 1, 2), (1 << 20, 1, 2)]
    assert all(min(death["heard_ms"]) > 0 and death["succeeded"] > 0 for death in deaths)
    assert all("rank 1" in failure for death in deaths for failure in death["failures"])


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


def test_the_cost_of_a_switch_is_what_the_hit_and_the_first_one_take_beyond_their_neighbours() -> None:
    results = load("results")
    ms = 1_000_000
    lengths = [10 * ms] * 5 + [14 * ms, 13 * ms, 9 * ms] + [8 * ms] * 5
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    choices = ["nccl"] * 7 + ["forest"] * 6
    found = results.switch_cost(55 * ms, ends, lengths, choices)
    assert found == {
        "ring_iterations": 2, "before_ms": 10.0, "after_ms": 8.0, "hit_ms": 4.0, "first_ms": 1.0, "until_ms": 31.0
    }  # fmt: skip
    assert results.switch_cost(55 * ms, ends, lengths, ["nccl"] * 13)["first_ms"] is None


def test_every_collective_goes_to_the_communicator_and_stream_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMPAIGN_RANK", "0")
    monkeypatch.setenv("CAMPAIGN_SIZE", "2")
    kind = load("worker").NcclRank
    rank = kind.__new__(kind)
    rank.comm, rank.stream = ctypes.c_void_p(1), SimpleNamespace(cuda_stream=2)
    calls: list[list[int | None]] = []
    answers = {"ncclRecv": 0}

    class Library:
        def __getattr__(self, name: str) -> Any:
            def called(*args: Any) -> int:
                if args:  # the ends of a group name none
                    calls.append([arg.value for arg in args[-2:]])
                return answers.get(name, 0)

            return called

    rank.nccl = Library()
    array = SimpleNamespace(data_ptr=lambda: 8)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "sendrecv"):
        rank.operation(collective, array, array, 4)()
        rank.operation(collective, array, array, 4, ctypes.c_void_p(3), SimpleNamespace(cuda_stream=4))()
    assert calls == [[1, 2], [3, 4]] * 4 + [[1, 2], [1, 2], [3, 4], [3, 4]]
    answers["ncclRecv"] = 5
    with pytest.raises(RuntimeError, match="ncclRecv says 5"):
        rank.operation("sendrecv", array, array, 4)()


def test_a_ratio_of_latencies_is_of_medians_over_whole_rounds_and_spreads_as_rounds_do(tmp_path: Path) -> None:
    results = load("results")
    kept = results.Results(tmp_path)
    times = [("socket", 0, 100), ("plugin", 0, 110), ("plugin", 1, 60), ("socket", 1, 50), ("socket", 2, 200)]
    times += [("plugin", 2, 180), ("socket", 3, 1)]  # the fourth round was not finished
    for system, number, us in times:
        kept.add("latency", system=system, round=number, collective="sendrecv", bytes=16, median_s=us / 1e6, wrong=0)
    kept.add("latency", system="socket", round=0, collective="broadcast", bytes=16, median_s=1e-6, wrong=0)
    [ratio] = results.latency_ratios(kept.records, "socket", "plugin")
    assert (ratio["rounds"], round(ratio["socket_us"]), round(ratio["plugin_us"])) == (3, 100, 110)
    assert [round(ratio[key], 3) for key in ("ratio", "low", "high", "least", "greatest")] == [1.1, 0.9, 1.2, 0.9, 1.2]
    kept.add("latency_ratio", **ratio)
    assert "| sendrecv | 16 | 100.0 | 110.0 | 1.100 | 0.900..1.200 | 3 |" in kept.write_tables()


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
