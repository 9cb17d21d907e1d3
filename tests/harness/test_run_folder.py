"""Run folders: whole files, resuming only what is unfinished, the same and free."""

import os
import resource
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from harness.hosts.base import Sample
from harness.sweep.owner import BusyError
from harness.sweep.run_folder import RunFolder
from r2ccl_core.errors import UsageError
from reports.errors import SchemaError
from reports.trial import Run, Trial

NOW = datetime(2025, 1, 31, 12, 0, 0, tzinfo=UTC)
RUN = Run(experiment={"name": "e"}, provenance={"commit": "c"}, started="s", tags={"identity": "x"})
RECORD = Trial(
    trial_id="t-r0",
    system="balance",
    mode=2,
    collective="all_reduce",
    size_bytes=8,
    dtype="float32",
    op="sum",
    place="out",
    scenario="nic_down",
    repeat=0,
    attempt=1,
    status="ok",
    expected=True,
)


def test_two_runs_of_one_second_have_two_folders(tmp_path: Path) -> None:
    made = [RunFolder.create(tmp_path, RUN, "name = 'e'", NOW).path.name for _ in range(2)]
    assert made == ["e-20250131-120000", "e-20250131-120000-2"]
    assert (tmp_path / made[0] / "experiment.toml").read_text() == "name = 'e'"


def test_a_run_that_cannot_be_written_leaves_no_folder(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(UsageError, match="no run can be written there") as refused:
            RunFolder.create(tmp_path, RUN, "name = 'e'", NOW)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_newest_unfinished_run_of_the_same_experiment_goes_on(tmp_path: Path) -> None:
    older, newer = (RunFolder.create(tmp_path, RUN, "", NOW.replace(day=day)) for day in (1, 2))
    RunFolder.create(tmp_path, RUN.model_copy(update={"tags": {"identity": "y"}}), "", NOW.replace(day=3))
    assert found(tmp_path) == newer.path
    with newer.locked():
        assert found(tmp_path) == newer.path
    newer.finish(1)
    assert found(tmp_path) == newer.path, "its report is due"
    newer.reported()
    assert found(tmp_path) == older.path
    older.finish(1)
    older.reported()
    assert found(tmp_path) is None


@pytest.mark.parametrize("text", ["", "{", '{"schema": 2}'])
def test_a_folder_without_a_readable_run_is_left_alone(tmp_path: Path, text: str) -> None:
    folder = RunFolder.create(tmp_path, RUN, "", NOW)
    (folder.path / "run.json").write_text(text)
    assert found(tmp_path) is None


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RUN, "", NOW)
    other = RunFolder(folder.path)
    with folder.locked(), pytest.raises(BusyError, match="is running this"):
        other.acquire()
    other.acquire()


def test_a_lock_that_is_no_file_is_refused(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RUN, "", NOW)
    os.mkfifo(folder.path / ".lock")
    with pytest.raises(SchemaError, match=r"\.lock: is not a regular file; remove it"):
        folder.acquire()


def test_a_trial_is_finished_when_its_json_is_there(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RUN, "", NOW)
    torn = folder.trials / "t-r0"
    torn.mkdir()
    (torn / ".trial.json.part").write_text("{")
    (torn / "rank7.log").write_text("old")
    assert folder.records() == []
    folder.write_trial(RECORD, {"host0": [Sample(5, "eth0", 1, 2, True)]}, [["a", "b"], []])
    assert folder.records() == [RECORD]
    assert sorted(p.name for p in torn.iterdir()) == [
        "events.parquet",
        "nics.parquet",
        "rank0.log",
        "rank1.log",
        "trial.json",
        "watch.parquet",
    ]
    assert (torn / "rank0.log").read_text() == "a\nb\n"
    rows = pq.read_table(torn / "nics.parquet").to_pylist()
    kernel = {"t_ns": 5, "host": "host0", "nic": "eth0", "rx_bytes": 1, "tx_bytes": 2, "up": True}
    assert rows == [kernel | {"rdma_rx_bytes": None, "rdma_tx_bytes": None}]


def test_provenance_grows(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, RUN, "", NOW)
    folder.add_provenance({"cluster": {"hosts": 3}})
    assert folder.run().provenance == {
        "commit": "c",
        "cluster": {"hosts": 3},
    }


def found(runs: Path) -> Path | None:
    folder = RunFolder.unfinished(runs, "e", "x")
    return folder.path if folder else None
