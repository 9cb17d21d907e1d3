"""The measuring program as its users run it: processes, flags, table, events, exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forked import Ended, Forks

from r2ccl_core import native
from r2ccl_core.control.rendezvous import free_root
from r2ccl_core.errors import PeerLostError, TransportError, UsageError
from r2ccl_core.model.bandwidth import ITEM_BYTES, OPERATIONS
from r2ccl_core.model.collective import COLLECTIVES
from r2ccl_core.perf import memory, pattern
from r2ccl_core.perf.events import Events
from r2ccl_core.perf.flags import parse_flags
from r2ccl_core.perf.joined import merged
from r2ccl_core.perf.ranks import Rank, run_all
from r2ccl_core.perf.table import Case, Result

COLLECTIVE = [(name,) for name in COLLECTIVES]


FORKS = Forks("r2ccl_core.perf.cli")


@pytest.fixture(scope="module", autouse=True)
def forks() -> Iterator[None]:
    yield
    FORKS.close()


def ranks_of(ranks: int, *flags: str, **extra: str) -> list[tuple[list[str], dict[str, str]]]:
    """What the Python of each of `ranks` processes over loopback is given, and its environment: two NICs each."""
    argv = ["-m", "r2ccl_core.perf", *(flags if flags[:1] in COLLECTIVE else ("all_reduce", *flags))]
    group = {"R2CC_SIZE": str(ranks), "R2CC_ROOT": free_root()}
    return [
        (
            argv,
            group | {"R2CC_RANK": str(n), "R2CC_SOCKET_IFNAME": f"lo@127.{n + 1}.0.1,lo@127.{n + 1}.0.2"} | extra,
        )
        for n in range(ranks)
    ]


@contextmanager
def started(ranks: int, *flags: str, **extra: str) -> Iterator[list["subprocess.Popen[str]"]]:
    """The program on `ranks` processes; what still runs at the end is killed."""
    processes = [
        subprocess.Popen(
            [sys.executable, *argv],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for argv, env in ranks_of(ranks, *flags, **extra)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def perf(ranks: int, *flags: str, **extra: str) -> list[Ended]:
    """Runs the program to its end, in forks of a process that has imported it: exit code, stdout, stderr by rank."""
    with TemporaryDirectory() as folder:
        return FORKS.run(Path(folder), ranks_of(ranks, *flags, **extra))


def await_event(process: "subprocess.Popen[str]", kind: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["event"] == kind:
            return
    raise AssertionError(f"no {kind} came")


def test_the_table_has_nccl_tests_columns() -> None:
    with started(2, "-b", "1K", "-e", "4K", "-f", "2", "-n", "3") as processes:
        (code, out, err), (other, nothing, _) = [outcome(process) for process in processes]
    assert (code, other, nothing, err) == (0, 0, "", "")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == ["1024", "2048", "4096"]
    assert all(len(row) == 13 and row[2:5] == ["float32", "sum", "-1"] for row in rows)
    assert all(row[8] == row[12] == "0" for row in rows)
    assert "# Out of bounds values : 0 OK" in out and "# Avg bus bandwidth" in out
    assert "Rank  1 Pid" in out and "NICs lo 127.2.0.1, lo 127.2.0.2" in out


def test_a_table_that_cannot_be_written_ends_no_measurement() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "r2ccl_core.perf", "all_reduce", "-b", "1K", "-n", "1"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 0
    assert done.stderr.splitlines() == ["output cannot be written (No space left on device); the rest of it is dropped"]


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_every_type_and_operation_is_exact(ranks: int) -> None:
    results = perf(ranks, "-b", "4099", "-d", "all", "-o", "all", "-n", "2", "-w", "0", "--seed", "3")
    assert [code for code, _, _ in results] == [0] * ranks
    rows = [line.split() for line in results[0][1].splitlines() if not line.startswith("#")]
    assert [(row[2], row[3]) for row in rows] == [(dtype, op) for dtype in ITEM_BYTES for op in OPERATIONS]
    assert all(row[8] == row[12] == "0" for row in rows)


def test_vectors_smaller_than_the_ring_and_of_no_elements() -> None:
    ((code, out, _), *others) = perf(3, "-b", "0", "-e", "24", "-i", "4", "-n", "2")
    assert [code, *(other for other, _, _ in others)] == [0, 0, 0]
    assert [line.split()[1] for line in out.splitlines() if line[0] != "#"] == ["0", "1", "2", "3", "4", "5", "6"]


def test_one_spoilt_element_is_found_and_fails_the_run() -> None:
    results = perf(2, "-b", "64K", "-n", "2", "--corrupt", "1:1", "--place", "out")
    assert [code for code, _, _ in results] == [1, 1]
    assert "# Out of bounds values : 1 FAILED" in results[0][1]


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_every_collective_is_exact_and_one_spoilt_element_on_any_rank_is_found(collective: str) -> None:
    results = perf(3, collective, "-b", "300K", "-n", "3", "-r", "1", "--corrupt", "2:1", "--seed", "4")
    rows = [line.split() for line in results[0][1].splitlines() if not line.startswith("#")]
    places = 1 if collective in ("sendrecv", "alltoall") else 2
    wrong = [row[8:13:4] for row in rows]
    assert wrong == [["1"] * places], "of three iterations one element, in every place"
    assert [code for code, _, _ in results] == [1, 1, 1]
    blocked = collective in ("all_gather", "reduce_scatter", "alltoall")
    assert rows[0][1] == str(300 * 1024 // 4 // 3 if blocked else 300 * 1024 // 4)
    assert rows[0][4] == ("1" if collective in ("broadcast", "reduce") else "-1")


def test_the_stream_tells_every_iteration_on_every_rank() -> None:
    for rank, (code, out, _) in enumerate(perf(3, "-b", "8K", "-n", "2", "-w", "1", "--place", "out", "--stream")):
        events = [event for line in out.splitlines() if (event := json.loads(line))["event"] != "core"]
        assert code == 0
        kinds = [(e["event"], e.get("iteration")) for e in events]
        assert kinds[0] == ("ready", None) and kinds[-1] == ("done", None)
        assert kinds[1:-1] == [(kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")]
        assert all(e["rank"] == rank and e["t_ns"] > 0 for e in events)
        assert all(e["wrong"] == 0 and e["duration_ns"] > 0 for e in events if e["event"] == "iteration")
        assert events[-1]["core"]["nics"][0]["name"] == "lo"


def test_unchecked_iterations_say_so() -> None:
    (code, out, _), _ = perf(2, "-b", "1K", "-n", "4", "-c", "2", "--stream", "--place", "in")
    events = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [e["wrong"] for e in events if e["event"] == "iteration"] == [None, 0, None, 0, None]
    (_, out, _), _ = perf(2, "-b", "1K", "-n", "2", "-c", "0", "--place", "out")
    (row,) = [line.split() for line in out.splitlines() if line[0] != "#"]
    assert row[8:] == ["N/A"]


def test_json_holds_what_the_table_shows(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    before_ns = time.time_ns()
    results = perf(2, "-b", "1K", "-n", "3", "-d", "bfloat16", "-o", "max", "-J", str(path), R2CC_SECRET="not this")
    assert [code for code, _, _ in results] == [0, 0]
    document: dict[str, Any] = json.loads(path.read_text())
    assert (document["schema"], document["ranks"], document["mode"], document["wrong"]) == (1, 2, 2, 0)
    assert document["command"].startswith("r2ccl-perf all_reduce -b 1K -n 3")
    assert [(r["size_bytes"], r["dtype"], r["op"], r["place"], r["wrong"]) for r in document["results"]] == [
        (1024, "bfloat16", "max", "out", 0),
        (1024, "bfloat16", "max", "in", 0),
    ]
    for row in document["results"]:
        assert row["time_us"] == pytest.approx(sum(row["times_us"]) / 3)
        assert sorted(row["started_ns"]) == row["started_ns"] and before_ns < row["started_ns"][0] < time.time_ns()
    assert "not this" not in path.read_text()


@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_a_killed_rank_ends_all_with_one_line_and_exit_3(mode: str) -> None:
    with started(3, "-b", "4M", "-n", "100000", "--stream", "--place", "out", R2CC_MODE=mode) as processes:
        for process in processes:
            await_event(process, "iteration")
        processes[1].send_signal(signal.SIGKILL)
        killed_s = time.monotonic()
        survivors = [outcome(processes[0]), outcome(processes[2])]
        assert time.monotonic() - killed_s < 5
    messages = set()
    for code, out, err in survivors:
        last = json.loads(out.splitlines()[-1])
        assert code == 3 and last["event"] == "error" and last["iteration"] is not None
        # On a machine that stands still the NICs' losses may be told before the end of their peer is known.
        lines = [line for line in err.splitlines() if ": NIC lo " not in line or last["message"] in line]
        assert last["core"]["nics"] and len(lines) == 1 and last["message"] in lines[0]
        messages.add(last["message"])
    assert len(messages) == 1


def test_an_interrupted_rank_ends_all() -> None:
    with started(2, "-b", "1M", "-N", "0", "--stream") as processes:
        for process in processes:
            await_event(process, "iteration")
        processes[1].send_signal(signal.SIGINT)
        (code, out, _), (other, _, err) = [outcome(process) for process in processes]
    assert (code, other) == (3, 3) and "interrupted" in err and "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["message"] == "rank 1: KeyboardInterrupt"


def test_an_iteration_that_takes_too_long_is_given_up() -> None:
    with started(2, "-b", "1M", "-N", "0", "-T", "1", "--stream") as processes:
        for process in processes:
            await_event(process, "iteration")
        processes[1].send_signal(signal.SIGSTOP)
        code, out, err = outcome(processes[0])
        processes[1].send_signal(signal.SIGCONT)
        assert outcome(processes[1])[0] == 3
    message = json.loads(out.splitlines()[-1])["message"]
    assert code == 3 and message in err and "took longer than 1 s (-T)" in message


def test_the_end_of_standard_input_ends_the_program() -> None:
    with started(2, "-b", "1M", "-N", "0", "--stream", "--stdin-watch") as processes:
        for process in processes:
            await_event(process, "iteration")
        assert processes[1].stdin is not None
        processes[1].stdin.close()
        processes[1].stdin = None
        assert outcome(processes[1])[0] == 3 and outcome(processes[0])[0] == 3


@pytest.mark.parametrize("here", ["1", "2"])
def test_a_reader_that_leaves_is_no_traceback(here: str) -> None:
    with started(2, "-g", here, "-b", "1M", "-N", "0", "--stream") as processes:
        for process in processes:
            await_event(process, "iteration")
        assert processes[1].stdout is not None and processes[1].stderr is not None
        processes[1].stdout.close()
        assert processes[1].wait(30) == 3 and processes[1].stderr.read() == ""
        assert outcome(processes[0])[0] == 3


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_process_runs_several_ranks_and_a_spoilt_element_on_any_of_them_is_found(collective: str) -> None:
    flags = (collective, "-g", "2", "-b", "300K", "-n", "2", "-w", "0", "-r", "3", "--place", "out")
    for corrupt in ("0:1", "3:0"):
        (code, out, err), (other, nothing, _) = perf(2, *flags, "--corrupt", corrupt)
        (row,) = [line.split() for line in out.splitlines() if not line.startswith("#")]
        assert (code, other, nothing, err, row[8]) == (1, 1, "", "", "1")
    (code, out, _), (other, _, _) = perf(2, *flags)
    assert (code, other) == (0, 0) and "ranks: 4 " in out
    places = [line.split()[:5] for line in out.splitlines() if "  Rank " in line]
    assert [place[2] for place in places] == ["0", "1", "2", "3"]
    assert places[0][4] == places[1][4] != places[2][4] == places[3][4], "two processes"


def test_a_process_with_all_ranks_needs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    ((code, _, err),) = perf(1, "-g", "3", "-b", "24K", "-n", "1", "-w", "0", "-J", str(path), R2CC_ROOT="")
    document = json.loads(path.read_text())
    assert (code, err, document["ranks"], document["wrong"]) == (0, "", 3, 0)
    result = document["results"][0]
    assert result["busbw_gbs"] == pytest.approx(result["algbw_gbs"] * 4 / 3)


def test_the_stream_of_several_ranks_has_the_form_of_one() -> None:
    flags = ("-g", "2", "-b", "1M", "-n", "2", "-w", "1", "--place", "out", "--stream", "--corrupt", "3:1")
    for process, (code, out, _) in enumerate(perf(2, *flags)):
        events = [event for line in out.splitlines() if (event := json.loads(line))["event"] != "core"]
        kinds = [(e["event"], e.get("iteration")) for e in events]
        assert code == 1 and kinds[0] == ("ready", None) and kinds[-1] == ("done", None)
        assert kinds[1:-1] == [(kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")]
        assert {e["rank"] for e in events} == {2 * process}
        assert [e["wrong"] for e in events if e["event"] == "iteration"] == [0, 0, process]
        core = events[-1]["core"]
        assert (core["ranks"], len(core["nics"])) == ([2 * process, 2 * process + 1], 2)
        # Each rank sends 2 * 3/4 of the vector in each of three iterations, here all of it over the NICs.
        assert 1 <= sum(nic["tx_bytes"] for nic in core["nics"]) / (2 * 3 * 1.5 * 2**20) < 1.1
        assert [event["t_ns"] for event in core["events"]] == sorted(event["t_ns"] for event in core["events"])


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_a_process_ends_all_ranks_of_the_others_with_one_line(how: signal.Signals) -> None:
    with started(2, "-g", "2", "-b", "1M", "-N", "0", "--stream", "--place", "out") as processes:
        for process in processes:
            await_event(process, "iteration")
        processes[1].send_signal(how)
        (code, out, err), (_, _, own) = [outcome(process) for process in processes]
    errors = [event for line in out.splitlines() if (event := json.loads(line))["event"] == "error"]
    assert code == 3 and len(errors) == len(err.splitlines()) == 1
    assert errors[0]["message"] in err and errors[0]["core"]["ranks"] == [0, 1]
    if how == signal.SIGINT:
        assert errors[0]["message"] == "rank 2: KeyboardInterrupt" and own == "rank 2: interrupted\n"


class FakeRank(Rank):
    """Ends as it is told: with an error, or not at all."""

    def __init__(self, number: int, error: Exception | None, waits: threading.Event) -> None:
        super().__init__(number, 3, None, parse_flags(["all_reduce"]), Events(number, False))
        self._error, self._waits = error, waits

    def run(self) -> None:
        if self._error is None:
            self._waits.wait()
        else:
            raise self._error


def test_the_rank_that_failed_is_told_and_one_that_still_waits_for_the_group_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("r2ccl_core.perf.ranks.GRACE_S", 0.2)
    waits = threading.Event()
    errors = (PeerLostError("rank 1: no route"), TransportError("no route"), None)
    try:
        failure = run_all([FakeRank(number, error, waits) for number, error in enumerate(errors)])
    finally:
        waits.set()
    assert failure is not None
    assert (failure.rank.number, str(failure.error)) == (1, "no route")


def test_what_the_ranks_of_a_process_say_of_a_nic_is_added_up() -> None:
    def said(rank: int, t_ns: int, up: int, down: int, held: int = 0) -> dict[str, Any]:
        nic = {"name": "eth0", "address": "10.0.0.1", "tx_bytes": 10 + rank, "rx_bytes": 5, "state": "?"}
        paths = {"paths_up": up, "paths_down": down, "paths_held": held}
        event = {"t_ns": t_ns, "kind": "path_up"}
        chunks = {"replayed_chunks": rank, "duplicate_chunks": 1}
        return {"rank": rank, "mode": 2, "nics": [nic | paths], "events": [event], **chunks}

    one = said(4, 9, 2, 0)
    assert merged([one]) == one
    both = merged([one, said(5, 8, 0, 2)])
    (nic,) = both["nics"]
    assert (nic["tx_bytes"], nic["rx_bytes"], nic["paths_up"], nic["paths_down"]) == (29, 10, 2, 2)
    assert (nic["state"], both["replayed_chunks"], both["duplicate_chunks"]) == ("partial", 9, 2)
    assert (both["rank"], both["ranks"], [event["t_ns"] for event in both["events"]]) == (4, [4, 5], [8, 9])
    assert one["nics"][0]["tx_bytes"] == 14, "what a rank said stays as it is"
    assert merged([said(0, 1, 0, 2), said(1, 2, 0, 0)])["nics"][0]["state"] == "down"
    assert merged([said(0, 1, 0, 2, held=1), said(1, 2, 0, 2)])["nics"][0]["state"] == "held"


def test_open_mpi_names_ranks_too() -> None:
    (code, out, err), *_ = perf(1, "-b", "64", "-n", "1", OMPI_COMM_WORLD_RANK="7", OMPI_COMM_WORLD_SIZE="9")
    assert (code, err) == (0, "") and "ranks: 1 " in out, "our own variables come first"
    unset = {"R2CC_RANK": "", "R2CC_SIZE": "", "R2CC_ROOT": ""}
    (code, out, err), *_ = perf(1, "-b", "64", "-n", "1", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1", **unset)
    assert (code, err) == (0, "") and "ranks: 1 " in out, "an empty variable is not set"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-b", "12Q"], "-b: '12Q'"),
        (["-e", "x"], "-e: 'x'"),
        (["-i", "0"], "-i 0"),
        (["-g", "0"], "-g 0"),
        (["-t", "2"], "-t 2"),
        (["-J", "/nonexistent/out.json"], "-J /nonexistent"),
        (["-J", "/"], "-J /"),
        (["--corrupt", "1:20"], "from 0 to 19"),
        (["--str"], "--str"),
        (["-b", "2M", "-e", "1M"], "below"),
        (["-n", "0"], "-n 0"),
        (["-f", "1"], "-f 1"),
        (["-f", "inf"], "-f inf: a finite factor"),
        (["-f", "nan"], "-f nan: a finite factor"),
        (["-b", "1", "-e", "1T", "-i", "1"], "-e 1T: more than 10000 sizes from 1 on"),
        (["-b", "1", "-e", "1T", "-f", "1.000001"], "-e 1T: more than 10000 sizes from 1 on"),
        (["-g", "65"], "-g 65: give 64 or less"),
        (["-T", "99999999999"], "-T 99999999999: give"),
        (["-d", "int16"], "int16"),
        (["--corrupt", "x"], "RANK:ITER"),
        (["--nonsense"], "--nonsense"),
        (["--place", "in"], "alltoall has no form in place"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(flags: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_flags(["alltoall", *flags])
    assert "\n" not in str(caught.value)


def test_bad_input_to_the_program_is_one_line_and_exit_2() -> None:
    for flags, extra in (
        (["-b", "1Q"], {}),
        ([], {"R2CC_MODE": "7"}),
        ([], {"R2CC_ROOT": "nowhere"}),
        ([], {"R2CC_ROOT": ""}),
        ([], {"R2CC_SIZE": "two"}),
        ([], {"R2CC_RANK": "2"}),
        ([], {"R2CC_SLICE_BYTES": "0"}),
        ([], {"R2CC_SIZE": "0"}),
        ([], {"R2CC_SIZE": "99999999999999999999"}),
        ([], {"R2CC_SIZE": "100000000"}),
        (["-b", "1000T"], {}),
        (["-g", "2", "-b", "1000T", "--place", "in"], {}),
        (["-r", "2"], {}),
        (["--corrupt", "2:0"], {}),
        ([], {"R2CC_SOCKET_IFNAME": "=nosuchnic"}),
        (["-g", "2", "-r", "4"], {}),
        (["-g", "2"], {"R2CC_MODE": "7"}),
        (["-g", "2"], {"R2CC_SOCKET_IFNAME": "=nosuchnic"}),
    ):
        for code, out, err in perf(2, *flags, **extra):
            assert code == 2 and out == ""
            assert len(err.strip().splitlines()) == 1 and "Traceback" not in err


def test_a_misspelled_variable_is_told_in_one_line_without_source() -> None:
    ((code, _, err),) = perf(1, "-b", "1K", "-n", "1", R2CC_STRIPE="2")
    assert (code, err) == (0, "warning: R2CC_STRIPE: no such variable; did you mean R2CC_STRIPES?\n")


def test_sizes_step_as_nccl_tests_steps() -> None:
    assert parse_flags(["all_reduce", "-b", "1M", "-e", "64M", "-f", "8"]).sizes == (1 << 20, 1 << 23, 1 << 26)
    assert parse_flags(["all_reduce", "-b", "1K", "-e", "4K", "-i", "1K"]).sizes == (1024, 2048, 3072, 4096)
    assert parse_flags(["all_reduce", "-b", "0"]).sizes == (0,)
    assert parse_flags(["all_reduce", "-d", "half"]).dtypes == ("float16",)


def test_sizes_end_where_they_are_told_to() -> None:
    assert parse_flags(["all_reduce", "-b", "32M", "-e", "64M", "-f", "1e308"]).sizes == (32 << 20,)
    assert parse_flags(["all_reduce", "-b", "3", "-e", "4", "-f", "1.5"]).sizes == (3, 4)
    assert len(parse_flags(["all_reduce", "-b", "0", "-e", "9999", "-i", "1"]).sizes) == 10_000


def test_the_arrays_of_all_ranks_here_and_of_every_place_count() -> None:
    cases = [Case("all_gather", 4, size, "float32", "sum") for size in (1 << 20, 4 << 30)]
    memory.check(cases, ("out", "in"), 2, available=10 << 30)
    memory.check(cases, ("in",), 2, available=8 << 30)
    with pytest.raises(UsageError, match=r"4GiB: the arrays of 2 ranks need 10\.0 GiB of memory, 9\.0 GiB are avail"):
        memory.check(cases, ("out", "in"), 2, available=9 << 30)


def test_memory_that_runs_out_nevertheless_is_one_line_and_ends_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2CC_SOCKET_IFNAME", "lo@127.0.0.1")
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    root = free_root()
    flags = [parse_flags(["all_reduce", "-b", size, "-w", "0", "-n", "1"]) for size in ("1000T", "1M")]
    ranks = [Rank(number, 2, root, flags[number], Events(number, False)) for number in range(2)]
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda rank: run_all([rank]), ranks)
    assert first is not None and isinstance(first.error, UsageError)
    assert re.match(r"out of memory \(.*\); give smaller sizes", str(first.error))
    assert second is not None and isinstance(second.error, PeerLostError) and "out of memory" in str(second.error)


def test_bus_bandwidth_is_nccl_tests_definition() -> None:
    result = Result(Case("all_reduce", 3, 64 << 20, "float32", "sum"), "out", (1, 2), (0.5, 0.5), 0)
    assert result.algbw() == pytest.approx(0.134217728)
    assert result.busbw() == pytest.approx(0.134217728 * 4 / 3)


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("name", ITEM_BYTES)
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


def test_a_killed_rank_has_told_its_core_events() -> None:
    with started(2, "-b", "1M", "-N", "0", "--stream") as processes:
        await_event(processes[0], "core")
        processes[0].kill()
        out, _ = processes[1].communicate(timeout=240)
    told = [json.loads(line) for line in out.splitlines()]
    live = [event for event in told if event["event"] == "core"]
    assert {"path_up"} <= {event["kind"] for event in live}
    assert all(set(event) == {"event", "rank", "t_ns", "kind", "nic", "peer", "detail", "cause"} for event in live)
    last = told[-1]
    assert last["event"] == "error"
    assert len(live) == len({tuple(event.values()) for event in live}), "an event was told twice"
    assert {event["t_ns"] for event in live} <= {event["t_ns"] for event in last["core"]["events"]}
