"""The nccl_tests backend: its commands, its events, and whole sweeps over a stand-in for the GPU's program."""

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.backends import nccl_tests
from harness.backends.base import Job
from harness.backends.nccl_tests import AS_ROOT, NcclTestsBackend, find_program, launcher, launcher_env, program
from harness.backends.nccl_tests_cycles import Cycles
from harness.backends.nccl_tests_text import Place, Row
from harness.backends.registry import BACKENDS
from harness.cluster.noop import NoopCluster
from harness.cluster.spec import NoopSpec
from harness.errors import ExitCode
from harness.experiment.file import read
from harness.sweep.dry_run import lines
from harness.sweep.plan import plan
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from harness.systems.catalogue import sockets_carry_data
from harness.workloads.collective import CollectiveWorkload
from reports.trial import Trial

REPLAY = Path(__file__).parent / "nccl_tests_replay.py"


def job(**workload: Any) -> Job:
    work = CollectiveWorkload.model_validate({"sizes": ["1MiB"], "nccl_tests": "/opt/build", **workload})
    return Job(
        "python", work, 1 << 20, 5, 1, 0, 2, "h0:7000", ("eth0", "eth1"), 0.1, {"NCCL_DEBUG": "INFO"}, ("h0", "h1")
    )


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mpirun", "mpirun -np 2 --host h0:1,h1:1 --map-by ppr:1:node -x NCCL_DEBUG -x NCCL_SOCKET_IFNAME --foo"),
        ("mpiexec", "mpiexec -n 2 -hosts h0,h1 -ppn 1 -iface m0 -genvlist NCCL_DEBUG,NCCL_SOCKET_IFNAME --foo"),
        ("srun", "srun --nodes 2 --ntasks 2 --ntasks-per-node 1 --nodelist h0,h1 --kill-on-bad-exit=1 --foo"),
        ("ssh", "--foo"),
    ],
)
def test_every_launcher_starts_one_process_a_host_with_the_environment(kind: str, words: str) -> None:
    env = {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "=eth0", "R2CC_RANK": "0", "PYTHONPATH": "/x"}
    env |= {**AS_ROOT, "OMPI_MCA_btl": "tcp,self", "HYDRA_LAUNCHER_EXTRA_ARGS": "-F x"}
    asked = replace(job(launcher=kind, launch_args=["--foo"]), every_management=("m0",))
    assert shlex.join(launcher(asked, env)) == words


def test_launchers_keep_off_the_data_nics_and_log_in_with_the_keys_of_the_cluster() -> None:
    """As variables: words of workload.launch_args must win."""

    def env(kind: str, *management: str) -> dict[str, str]:
        return launcher_env(replace(job(launcher=kind), every_management=management, ssh_config="/c/ssh_config"))

    ours = env("mpirun", "mgmt0")
    assert ours["OMPI_MCA_oob_tcp_if_include"] == ours["OMPI_MCA_btl_tcp_if_include"] == "mgmt0"
    assert (ours["OMPI_MCA_plm_rsh_args"], ours["OMPI_MCA_btl"]) == ("-F /c/ssh_config", "tcp,self")
    assert AS_ROOT.items() <= ours.items()
    unknown = env("mpirun")
    assert unknown["OMPI_MCA_oob_tcp_if_exclude"] == unknown["OMPI_MCA_btl_tcp_if_exclude"] == "lo,eth0,eth1"
    assert env("mpirun", "eno1", "ens3")["OMPI_MCA_btl_tcp_if_include"] == "eno1,ens3"
    mpich = {"UCX_NET_DEVICES": "mgmt0", "FI_TCP_IFACE": "mgmt0"}
    assert env("mpiexec", "mgmt0") == mpich | {"HYDRA_LAUNCHER_EXTRA_ARGS": "-F /c/ssh_config"}
    slurm = env("srun", "mgmt0")
    assert slurm["OMPI_MCA_btl_tcp_if_include"] == "mgmt0" and mpich.items() <= slurm.items()
    assert env("ssh", "mgmt0") == {}


@pytest.mark.parametrize(("gpus", "each", "first"), [(8, 2, 6), (4, 2, 2), (5, 2, 2), (4, 1, 3), (1, 1, 0), (0, 1, 0)])
def test_hosts_of_one_machine_share_its_gpus_out(
    gpus: int, each: int, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what each launcher tells a rank of its number; nccl-tests itself would count ranks by host names."""
    monkeypatch.setattr(nccl_tests, "gpu_count", lambda: gpus)
    words = program(replace(job(gpus=each), one_machine=True))
    assert words[:2] == ["sh", "-c"] and words[3] == "/opt/build/all_reduce_perf"
    for variable in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"):
        argv = [*words[:3], "sh", "-c", "echo $NCCL_TESTS_DEVICE $NCCL_HOSTID $1", "sh", "-b"]
        said = subprocess.run(argv, env={"PATH": os.environ["PATH"], variable: "3"}, capture_output=True, text=True)
        assert said.stdout == f"{first} host3 -b\n", said.stderr
    assert program(job(gpus=2))[0] == "/opt/build/all_reduce_perf"
    chosen = replace(job(), one_machine=True, env={"NCCL_TESTS_DEVICE": "7"})
    assert program(chosen)[0] == "/opt/build/all_reduce_perf", "the experiment's own word wins"


def test_the_program_runs_a_cycle_for_every_iteration() -> None:
    assert shlex.join(program(job(dtype="float16", gpus=2))) == (
        "/opt/build/all_reduce_perf -b 1048576 -e 1048576 -n 1 -w 1 -N 6 -c 1 -d half -o sum -a 3 -T 3 -g 2"
    )
    assert "-r 1" in shlex.join(program(job(collective="broadcast", root=1, check=False)))


def test_only_the_first_host_launches_and_sockets_that_carry_data_are_on_the_data_nics() -> None:
    first, second = (NcclTestsBackend().command(job(), rank) for rank in (0, 1))
    assert "mpirun" in first.argv and second.argv[-1] == "--"
    assert first.env["NCCL_SOCKET_IFNAME"] == "=eth0,eth1" and first.env["NCCL_DEBUG"] == "INFO"


@pytest.mark.parametrize("backend", ["nccl_tests", "torch_nccl"])
def test_sockets_by_which_ranks_only_meet_are_beside_the_data_nics(backend: str) -> None:
    def chosen(**changes: Any) -> str:
        return BACKENDS[backend].command(replace(job(), **changes), 0).env["NCCL_SOCKET_IFNAME"]  # type: ignore[index]

    assert chosen() == "=eth0,eth1"
    known = {"management": ("eno1",), "every_management": ("eno1",)}
    assert chosen(sockets_carry_data=False, **known) == "=eno1"
    assert chosen(sockets_carry_data=False) == "^=lo,docker0,eth0,eth1"
    assert chosen(sockets_carry_data=False, env={"NCCL_SOCKET_IFNAME": "mine"}) == "mine"


def test_a_plugin_or_another_network_carries_the_data() -> None:
    assert [sockets_carry_data(use, None) for use in ("nccl", "nccl_fork", "nccl_r2ccl_plugin", "nccl_plugin")] == [
        True,
        True,
        False,
        False,
    ]
    assert sockets_carry_data("nccl", "Socket") and sockets_carry_data(None, None)
    assert not sockets_carry_data("nccl", "IB") and not sockets_carry_data("nccl_plugin", "Socket")


def test_what_is_missing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(**workload: Any) -> str:
        return NcclTestsBackend().missing(job(**workload).workload, sys.executable) or ""

    assert "is not a folder" in missing(nccl_tests=str(tmp_path / "nowhere"))
    assert "has no alltoall_perf" in missing(nccl_tests=str(tmp_path), collective="alltoall")
    (tmp_path / "all_reduce_perf_mpi").touch()
    assert find_program(tmp_path, "all_reduce") == tmp_path / "all_reduce_perf_mpi"
    if shutil.which("srun") is None:
        assert "srun is not installed" in missing(nccl_tests=str(tmp_path), launcher="srun")
    for count, words in ((0, "no NVIDIA GPU"), (1, "a host needs 2 GPUs, and this machine has 1"), (2, "")):
        monkeypatch.setattr(nccl_tests, "gpu_count", lambda count=count: count)
        found = missing(nccl_tests=str(tmp_path), launcher="ssh", gpus=2)
        assert words in found if words else not found


def row(time_us: float, wrong: int | None = 0) -> Row:
    place = Place(time_us, 1.0, 1.0, wrong)
    return Row(1 << 20, 1 << 18, "float", "sum", -1, place, place)


def test_rows_become_iterations_from_row_to_row() -> None:
    cycles, ms = Cycles(1 << 20, 1, 2, "out"), 1_000_000
    events = cycles.begin(1000 * ms)
    for t_ms in (1040, 1080, 1120):
        events += cycles.row(row(10_000.0, 2), t_ms * ms)
    assert [(e["event"], e.get("iteration")) for e in events] == [
        ("ready", None),
        *((kind, i) for i in (-1, 0, 1) for kind in ("begin", "iteration")),
    ]
    timed = [event for event in events if event["event"] == "iteration"]
    assert all(e["duration_ns"] == 40 * ms and e["measured_ns"] == 10 * ms and e["wrong"] == 4 for e in timed)
    assert (cycles.left, cycles.iteration, cycles.wrong) == (0, None, 12)
    assert cycles.row(row(1.0), 2000 * ms) == [], "what nobody asked for is left out"


def test_a_cycle_in_which_something_happened_counts_what_it_took_longer() -> None:
    cycles, ms = Cycles(1 << 20, 0, 4, "in"), 1_000_000
    cycles.begin(0)
    measured = [cycles.row(row(10_000.0), t_ms * ms)[0]["measured_ns"] / ms for t_ms in (40, 80, 190, 230)]
    assert measured == [10, 10, 80, 10], "110 ms instead of 40: 70 ms more"
    late = Cycles(1 << 20, 0, 2, "out")
    late.begin(0)
    late.row(row(10_000.0), 40 * ms)
    assert late.row(row(80_000.0), 150 * ms)[0]["measured_ns"] == 80 * ms, "it is in the row already"


def sweep(tmp_path: Path, fault: str, hosts: int = 1, **system: Any) -> tuple[ExitCode, Trial]:
    """One trial on noop hosts of this machine."""
    build = tmp_path / "build"
    build.mkdir()
    stand_in = build / "all_reduce_perf"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {REPLAY} "$@"\n')
    stand_in.chmod(0o755)
    document = {
        "name": "x",
        "cluster": {"kind": "noop", "hosts": hosts},
        "workload": {
            "backend": "nccl_tests",
            "nccl_tests": str(build),
            "launcher": "ssh",
            "gpus": 2 // hosts,
            "sizes": ["8MiB"],
            "iterations": 5,
        },
        "system": [{"use": "nccl", "env": {"REPLAY_FAULT": fault}, **system}],
        "sweep": {"retries": 0, "limits": {"ready": "10 s", "iteration": "2 s"}},
    }
    experiment = read(document, "x.toml")
    request = Request(experiment, "", plan(experiment), tmp_path / "runs")
    folder, _ = open_folder(request, SilentProgress())
    spec = experiment.cluster
    assert isinstance(spec, NoopSpec)
    code = run_sweep(request, folder, lambda _: NoopCluster(spec), lambda _: None, SilentProgress())
    (record,) = folder.records()
    return code, record


def test_a_trial_has_every_iteration_with_nccl_tests_own_times(tmp_path: Path) -> None:
    code, record = sweep(tmp_path, "")
    assert (code, record.status) == (ExitCode.OK, "ok")
    assert [i.iteration for i in record.iterations] == [-1, 0, 1, 2, 3, 4]
    assert all(i.wrong == 0 for i in record.iterations)
    assert record.iterations[2].busbw_gbs == pytest.approx(0.8388608), "2 ranks, 8 MiB in 10 ms"
    core = record.core["0"]
    assert (core["nccl_tests"], core["nccl"]) == ("2.18.3", 22907)
    stored = "".join(path.read_text() for path in (tmp_path / "runs").rglob("*.json"))
    assert "never-tell" not in stored


@pytest.mark.parametrize(
    ("fault", "exit_code", "status", "words"),
    [
        ("wrong", ExitCode.WRONG, "wrong", "10 wrong elements"),
        ("lost", ExitCode.WRONG, "failed", "Test NCCL failure common.cu:621 'lost'"),
        ("mute", ExitCode.INCONCLUSIVE, "inconclusive", "though nothing was broken yet: raise sweep.limits.iteration"),
        ("old", ExitCode.WRONG, "failed", "has no -N"),
    ],
)
def test_what_goes_wrong_is_said(tmp_path: Path, fault: str, exit_code: ExitCode, status: str, words: str) -> None:
    code, record = sweep(tmp_path, fault)
    assert (code, record.status) == (exit_code, status)
    assert words in record.reason


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="mpirun is not installed (on Debian: apt install openmpi-bin)"
)
@pytest.mark.parametrize(("fault", "status"), [("", 0), ("no_mpi", 3)])
def test_mpi_starts_what_was_asked_for(tmp_path: Path, fault: str, status: int) -> None:
    stand_in = tmp_path / "all_reduce_perf"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {REPLAY} "$@"\n')
    stand_in.chmod(0o755)
    env = os.environ | AS_ROOT | {"R2CC_RANK": "0", "R2CC_SIZE": "1", "R2CC_ROOT": "127.0.0.1:1"}
    words = launcher(replace(job(), addresses=("localhost",), ranks=1), {"REPLAY_FAULT": fault})
    words[words.index("localhost:1")], words[words.index("ppr:1:node")] = "localhost:2", "ppr:2:node"  # two on one host
    words[words.index("-np") + 1] = "2"
    head = [sys.executable, "-m", "harness.backends.nccl_tests_rank", "--size-bytes", "1024", "--iterations", "3"]
    argv = [*head, "--ranks", "2", "--", *words, str(stand_in), "-b", "1024", "-N", "3", "-g", "1"]
    process = subprocess.Popen(
        argv, env=env | {"REPLAY_FAULT": fault}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    out = process.stdout.read()
    assert process.wait(60) == status
    assert ("this build of nccl-tests has no MPI" in out) is bool(fault)
    process.communicate()


@pytest.mark.parametrize("fault", ["", "lost"])
def test_every_host_says_what_the_first_one_says(tmp_path: Path, fault: str) -> None:
    stand_in = tmp_path / "all_reduce_perf"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} {REPLAY} "$@"\n')
    stand_in.chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        root = f"127.0.0.1:{probe.getsockname()[1]}"
    head = [sys.executable, "-m", "harness.backends.nccl_tests_rank", "--size-bytes", "1024", "--iterations", "3"]
    head += ["--warmup", "1", "--ranks", "2", "--"]
    started = [
        subprocess.Popen(
            [*head, *words],
            env=os.environ | {"R2CC_RANK": str(rank), "R2CC_SIZE": "2", "R2CC_ROOT": root, "REPLAY_FAULT": fault},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for rank, words in enumerate([[str(stand_in), "-b", "1024", "-N", "4", "-g", "2"], []])
    ]
    said = [process.stdout.read() for process in started if process.stdout]
    assert [process.wait(30) for process in started] == ([3, 3] if fault else [0, 0])
    for process in started:
        process.communicate()
    told = [[json.loads(line) for line in out.splitlines() if line.startswith("{")] for out in said]
    first_kinds, second_kinds = ([(e["event"], e.get("iteration")) for e in events] for events in told)
    assert first_kinds == second_kinds
    assert told[0][-1]["event"] == ("error" if fault else "done")
    assert {event["rank"] for event in told[1]} == {1}
    for first, second in zip(*told, strict=True):
        assert abs(first["t_ns"] - second["t_ns"]) < 5e8
        assert second.get("wrong") is None and first.get("duration_ns") == second.get("duration_ns")


def test_the_dry_run_shows_the_whole_command() -> None:
    experiment = read(
        {
            "name": "x",
            "cluster": {"hosts": 2},
            "workload": {"sizes": ["1MiB"], "nccl_tests": "/opt/build"},
            "system": [{"use": "nccl_r2ccl_plugin", "path": "/opt/plugin.so"}],
        },
        "x.toml",
    )
    shown = "\n".join(lines(experiment, plan(experiment)))
    assert "NCCL_NET_PLUGIN=/opt/plugin.so" in shown and "-x NCCL_NET_PLUGIN" in shown
    assert "mpirun -np 2 --host host0:1,host1:1" in shown and "/opt/build/all_reduce_perf -b 1048576" in shown
