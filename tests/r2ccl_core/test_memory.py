"""What this machine, or a container, can still give."""

from pathlib import Path

from r2ccl_core.host.memory import available_bytes, parse_available


def test_this_machine_tells_what_it_has() -> None:
    available = available_bytes()
    assert available is not None
    assert 0 < available < 2**50


def test_the_least_of_the_machine_and_its_container_counts(tmp_path: Path) -> None:
    meminfo, nowhere = tmp_path / "meminfo", tmp_path / "nowhere"
    meminfo.write_text("MemTotal: 9 kB\nMemAvailable:       3 kB\n")
    assert parse_available("MemTotal: 5 kB\n") is None
    assert available_bytes(meminfo, tmp_path) == 3072
    assert available_bytes(nowhere, tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert available_bytes(meminfo, tmp_path) == 3072
    (tmp_path / "memory.max").write_text("3000\n")
    assert available_bytes(meminfo, tmp_path) == available_bytes(nowhere, tmp_path) == 2000
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory/memory.limit_in_bytes").write_text("5000\n")
    (tmp_path / "memory/memory.usage_in_bytes").write_text("4000\n")
    assert available_bytes(meminfo, tmp_path) == 1000
    (tmp_path / "memory/memory.stat").write_text("total_inactive_file 300\ntotal_active_file 200\ncache 9000\n")
    assert available_bytes(meminfo, tmp_path) == 1500
    (tmp_path / "memory/memory.usage_in_bytes").write_text("9000\n")
    assert available_bytes(meminfo, tmp_path) == 0


def test_the_groups_around_this_process_count(tmp_path: Path) -> None:
    for version, own, root, limit, used in (
        ("2", "0::/user/job\n", "", "memory.max", "memory.current"),
        ("1", "4:cpu:/x\n3:memory:/user/job\n0::/\n", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        cgroup, told = tmp_path / version, tmp_path / f"own{version}"
        told.write_text(own)
        job = cgroup / root / "user" / "job"
        job.mkdir(parents=True)
        for folder, left in ((job, 700), (job.parent, 500)):
            (folder / limit).write_text(str(1000))
            (folder / used).write_text(str(1000 - left))
        assert available_bytes(tmp_path / "none", cgroup, told) == 500
        (job / used).write_text("900")
        assert available_bytes(tmp_path / "none", cgroup, told) == 100
        assert available_bytes(tmp_path / "none", cgroup, tmp_path / "none") is None
