"""Tables of rounds: what goes in, when it pays, and that the file comes back as it was written."""

from dataclasses import replace
from pathlib import Path

import pytest

from r2ccl_core.errors import ScheduleError, UsageError
from r2ccl_core.gpu import gains
from r2ccl_core.gpu.__main__ import main
from r2ccl_core.gpu.table import MARGIN, SIZES, Entry, Network, entries, from_bytes, losses, ring_s, run_s, to_bytes

NETWORK = Network(4, 4, 0.5e9)


def test_losses_leave_every_rank_a_nic_and_come_by_their_number() -> None:
    found = list(losses(3, 2, 2))
    assert found[0] == (2, 2, 2)
    assert set(found[1:4]) == {(1, 2, 2), (2, 1, 2), (2, 2, 1)}
    assert set(found[4:]) == {(1, 1, 2), (1, 2, 1), (2, 1, 1)}  # and none with two lost on one host
    assert len(list(losses(16, 8, 1))) == 17


def test_healthy_and_small_is_nccls_and_a_large_vector_after_a_loss_is_a_forest() -> None:
    table = entries(NETWORK, [(4, 4, 4, 4), (4, 3, 4, 4)])
    assert {entry.left for entry in table} == {(4, 3, 4, 4)}
    assert min(entry.least_bytes for entry in table) > 4 << 20
    assert {entry.rounds.name for entry in table} == {"forest"}
    assert ring_s(NETWORK, (1, 0.5, 1, 1), 1 << 30) == 2 * ring_s(NETWORK, (1, 1, 1, 1), 1 << 30)


@pytest.mark.parametrize("algorithm", ["ring", "r2cc", "optcc", "leaf_ring", "owner_skewed"])
def test_any_algorithm_can_be_asked_for(algorithm: str) -> None:
    table = entries(NETWORK, [(4, 3, 4, 4)], algorithm)
    assert len(table) == len(SIZES)
    assert table[0].least_bytes == 0


def test_the_file_comes_back() -> None:
    table = entries(NETWORK, [(4, 4, 2, 4)])
    data = to_bytes(4, 1, 4, table)
    assert from_bytes(data) == table
    for damaged in (data[:-1], b"R2CCLG99" + data[8:], b""):
        with pytest.raises(ScheduleError):
            from_bytes(damaged)


def test_hosts_of_several_gpus_run_the_same_rounds_with_parts_of_the_vector() -> None:
    several = replace(NETWORK, gpus=8)
    assert several.nranks == 32 and ring_s(several, (1, 1, 1, 1), 1 << 20) > ring_s(NETWORK, (1, 1, 1, 1), 1 << 20)
    table = entries(several, [(4, 4, 4, 4), (4, 3, 4, 4)])
    assert {(entry.left, entry.rounds.nranks) for entry in table} == {((4, 3, 4, 4), 4)}
    assert not list(entries(replace(several, inner_bytes_s=0.5e9), [(4, 3, 4, 4)]))  # inside it would take longer
    assert from_bytes(to_bytes(4, 8, 4, table)) == table


def test_what_is_inside_the_hosts_is_hidden_behind_the_network() -> None:
    """Eight NICs of 100 Gbit/s: without segments nothing pays with one of them lost, as ReduceScatter and AllGather
    take a quarter of the time."""
    left, shares = (8, 7, 8, 8), (1, 7 / 8, 1, 1)
    hosts = Network(4, 8, 12.5e9, gpus=8)
    assert not entries(replace(hosts, most_segments=1), [left])
    table = entries(hosts, [left])
    assert [entry.least_bytes >> 20 for entry in table] == [256, 512, 1024, 2048]
    for entry in table:
        assert 8 <= len(entry.segments) <= 16 and entry.segments[-1] == entry.rounds.nchunks
        for nbytes, limit in ((entry.least_bytes, 1.0), (entry.least_bytes * 3 // 2, 1 - MARGIN)):
            assert run_s(hosts, shares, nbytes, entry.rounds, entry.segments) < limit * ring_s(hosts, shares, nbytes)


def test_one_gpu_has_one_segment() -> None:
    for entry in entries(NETWORK, [(4, 3, 4, 4)]):
        assert entry.segments == (entry.rounds.nchunks,)


def test_a_table_without_entries_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight NICs of 400 Gbit/s carry as much as is reduced inside a host, where a ReduceScatter and an AllGather of 2
    GiB take 7/4 of it by 350 GB/s."""
    common = ["--hosts", "4", "--gpus", "8", "--nics", "8", "--lost", "1", "-o", str(tmp_path / "table.r2g")]
    assert main([*common, "--rate", "400 Gbit/s"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "NCCL's ring runs everything: with a NIC lost, 2GiB take it 11.9 ms; any schedule takes at least 8.31 ms on "
        "the network, and 10.7 ms inside the hosts"
    )
    assert main([*common, "--rate", "50 Gbit/s"]) == 0
    assert "NCCL's ring" not in capsys.readouterr().out


def test_the_table_of_gains_says_where_segments_pay(capsys: pytest.CaptureFixture[str]) -> None:
    assert gains.main(["--hosts", "4", "--gpus", "8", "--nics", "8", "--rates", "100 Gbit/s"]) == 0
    head, line, *rows = capsys.readouterr().out.splitlines()
    assert head.count("|") == line.count("|") == rows[0].count("|")
    cells = [cell.strip() for cell in rows[0].split("|")]
    assert cells[1:4] == ["100 Gbit/s", "7 8 8 8", "ring"]
    without, ratio = cells[-2].split(", ")
    assert without == "ring" and 0.7 < float(ratio) < 0.8
    assert gains.main(["--hosts", "4", "--nics", "0"]) == 2
    assert capsys.readouterr().err == "r2ccl_core.gpu.gains: --nics 0: give 1 to 256\n"


def test_a_ring_is_no_faster_than_what_is_inside_the_hosts() -> None:
    several = Network(4, 8, 50e9, gpus=8, inner_bytes_s=100e9)
    assert ring_s(several, (1, 1, 1, 1), 1 << 30) == pytest.approx(2 * 31 / 32 * 7 / 8 * (1 << 30) / 100e9)
    assert ring_s(several, (1, 1, 0.125, 1), 1 << 30) == pytest.approx(2 * 31 / 32 * (1 << 30) / 50e9)


def test_two_hosts_have_nothing_to_choose() -> None:
    with pytest.raises(UsageError, match="fewer than three"):
        entries(Network(2, 4, 1e9), [(4, 3)])


def test_the_command_writes_a_table_and_refuses_in_one_line(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    common = ["--hosts", "4", "--nics", "2", "--rate", "4 Gbit/s", "--lost", "1"]
    assert main([*common, "-o", str(tmp_path / "table.r2g")]) == 0
    assert from_bytes((tmp_path / "table.r2g").read_bytes())
    assert "forest" in capsys.readouterr().out
    for most in ("-1", "5"):
        assert main([*common, "--lost", most, "-o", str(tmp_path / "table.r2g")]) == 2
        assert capsys.readouterr().err == (f"r2ccl_core.gpu: {most} NICs lost: with 4 hosts of 2 NICs give 0 to 4\n")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--hosts", "0"], "--hosts 0: give 3 to 1024"),
        (["--hosts", "-1"], "--hosts -1: give 3 to 1024"),
        (["--hosts", "100000"], "--hosts 100000: give 3 to 1024"),
        (
            ["--hosts", "200", "--nics", "4"],
            "2 NICs lost: with 200 hosts that makes more than 20000 entries; give 1 or",
        ),
        (
            ["--hosts", "40", "--nics", "100", "--lost", "3900"],
            "3900 NICs lost: with 40 hosts that makes more",
        ),
        (["--gpus", "0"], "--gpus 0: give 1 to 16"),
        (["--gpus", "17"], "--gpus 17: give 1 to 16"),
        (["--segments", "0"], "--segments 0: give 1 to 16"),
        (["--inner-rate", "fast"], "--inner-rate: 'fast' is not a rate"),
        (["--nics", "0"], "--nics 0: give 1 to 256"),
        (["--alpha", "nan"], "--alpha nan: give 0 or more"),
        (["--alpha", "-1"], "--alpha -1: give 0 or more"),
        (["--alpha", "inf"], "--alpha inf: give 0 or more"),
        (["--rate", "fast"], "--rate: 'fast' is not a rate"),
        (["--rate", "0 Gbit/s"], "--rate '0 Gbit/s': give 1 bit/s or more"),
    ],
)
def test_a_mistake_is_refused_by_name_and_leaves_the_old_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    output = tmp_path / "table.r2g"
    output.write_text("old")
    common = ["--hosts", "4", "--nics", "2", "--rate", "4 Gbit/s", "--lost", "2", "-o", str(output)]
    assert main([*common, *flags]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"r2ccl_core.gpu: {words}") and told.count("\n") == 1
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("table.r2g", "old")]


def test_an_output_that_cannot_be_written_is_refused_before_the_work_and_an_error_keeps_the_old(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> list[Entry]:
        raise ScheduleError("no such luck")

    monkeypatch.setattr("r2ccl_core.gpu.__main__.entries", fail)
    common = ["--hosts", "4", "--nics", "2", "--rate", "4 Gbit/s", "--lost", "1"]
    for output in (tmp_path / "no/table.r2g", tmp_path):
        assert main([*common, "-o", str(output)]) == 2
        told = capsys.readouterr().err
        assert told.startswith(f"r2ccl_core.gpu: -o {output}: ") and "; give a file in a folder that you can" in told
    output = tmp_path / "table.r2g"
    output.write_text("old")
    assert main([*common, "-o", str(output)]) == 2
    assert capsys.readouterr().err == "r2ccl_core.gpu: no such luck\n"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("table.r2g", "old")]
