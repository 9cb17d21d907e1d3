"""Sweeps of the nccl_tests backend with real launchers on the local cluster: MPI's ranks on two hosts move real bytes
over the rails (rails_perf.c), and the first rail fails in the middle of it."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.backends import nccl_tests
from harness.cluster import rights, sshd
from harness.cluster.factory import make_cluster
from harness.errors import ExitCode
from harness.experiment.file import read
from harness.sweep.plan import plan
from harness.sweep.preflight import preflight
from harness.sweep.progress import SilentProgress
from harness.sweep.sweep import Request, open_folder, run_sweep
from reports.trial import Trial

SOURCE = Path(__file__).parent / "rails_perf.c"
LAUNCHERS = {
    "mpirun": ("mpirun.openmpi", "mpicc.openmpi", "openmpi-bin libopenmpi-dev"),
    "mpiexec": ("mpiexec.mpich", "mpicc.mpich", "mpich libmpich-dev"),
}
"""By launcher: Debian's program, its compiler, its packages."""

DOWN = {"kind": "nic_down", "host": "host1", "nic": "eth0", "at_iteration": 3, "into": 0.4}
SLOW = {"kind": "rate_limit", "host": "host1", "nic": "eth0", "at_iteration": 3, "into": 0.4}
SLOW["parameters"] = {"share": 0.5, "direction": "both"}

pytestmark = [
    pytest.mark.netns,
    pytest.mark.slow,
    pytest.mark.skipif(not rights.have(), reason="needs the right to make network namespaces"),
]


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By launcher, a folder with the stand-in and a launcher of its plain name."""
    found = {}
    for kind, (program, compiler, _) in LAUNCHERS.items():
        if shutil.which(program) is None or not _compiles(compiler):
            continue
        folder = tmp_path_factory.mktemp(kind)
        argv = [compiler, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2", str(SOURCE)]
        subprocess.run([*argv, "-o", str(folder / "all_reduce_perf")], check=True)
        (folder / kind).write_text(f'#!/bin/sh\nexec {shutil.which(program)} "$@"\n')
        (folder / kind).chmod(0o755)
        found[kind] = folder
    return found


def _compiles(compiler: str) -> bool:
    """Whether MPI's header is there; Debian has it in a package of its own."""
    if shutil.which(compiler) is None:
        return False
    argv = [compiler, "-E", "-x", "c", "-"]
    return subprocess.run(argv, input=b"#include <mpi.h>\n", capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in needs no GPU, whatever this machine has; and no process of it outlives its sweep."""
    monkeypatch.setattr(nccl_tests, "gpu_count", lambda: 2)
    yield
    deadline = time.monotonic() + 60.0
    while (left := _running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def _running() -> list[str]:
    """The command lines of launchers and ranks of these tests."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.endswith(b"/all_reduce_perf") and b"pytest-of" in word for word in words):
            found.append(b" ".join(words).decode())
    return found


LIMITS = {"ready": "180 s", "trial": "240 s"}


def sweep(
    builds: dict[str, Path],
    runs: Path,
    variants: Sequence[str],
    faults: Sequence[dict[str, Any]],
    kind: str = "mpirun",
    iteration: str = "15 s",
) -> tuple[ExitCode, dict[tuple[str, str], Trial]]:
    """The last attempts by variant and fault, on two hosts with two NICs each."""
    if kind not in builds:
        pytest.skip(f"{kind} or its compiler is not installed (on Debian: apt install {LAUNCHERS[kind][2]})")
    build = builds[kind]
    systems = [
        {
            "name": variant or "plain",
            "use": "nccl",
            "network": "Socket",
            "env": {
                "RAILS_VARIANT": variant,
                "RAILS_PROCESSORS": str(len(os.sched_getaffinity(0))),
                "PATH": f"{build}:{sshd.PATH}",
            },
        }
        for variant in variants
    ]
    document = {
        "name": "x",
        "cluster": {"hosts": 2, "nics": 2, "rate": "200 Mbit/s"},
        "workload": {
            "backend": "nccl_tests",
            "nccl_tests": str(build),
            "launcher": kind,
            "sizes": ["4MiB"],
            "iterations": 5,
        },
        "system": systems,
        "fault": list(faults),
        "sweep": {"retries": 0 if len(variants) > 1 else 9, "limits": LIMITS | {"iteration": iteration}},
    }
    experiment = read(document, "x.toml")
    preflight(experiment, "x.toml")
    request = Request(experiment, "", plan(experiment), runs)
    folder, _ = open_folder(request, SilentProgress())
    code = run_sweep(request, folder, make_cluster, lambda _: None, SilentProgress())
    records = sorted(folder.records(), key=lambda record: record.attempt)
    return code, {(record.system, record.scenario): record for record in records}


@pytest.mark.parametrize("kind", LAUNCHERS)
def test_a_failure_of_the_first_rail_hits_the_collective_and_no_launcher(
    builds: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    code, records = sweep(builds, tmp_path, [""], [DOWN, SLOW], kind)
    stopped, slowed = records["plain", "nic_down"], records["plain", "rate_limit"]
    assert (code, stopped.status, stopped.expected) == (ExitCode.OK, "failed", True), stopped.reason
    assert "Test NCCL failure common.cu:621 'remote process exited" in stopped.reason
    assert (slowed.status, len(slowed.iterations)) == ("ok", 6), slowed.reason
    assert all(iteration.wrong == 0 for iteration in slowed.iterations)
    assert slowed.evidence.timed_whole is False, "a row times a part of its cycle"
    for record in (stopped, slowed):
        (carried,) = record.evidence.strikes[0]["carried"]
        assert (carried["host"], carried["nic"]) == ("host1", "eth0")
        assert max(carried["in_flight_bytes"] or 0, carried["before_bytes"]) > 1 << 20
        network = record.evidence.model_dump()["network"]
        assert network["finding"] == "proven" and min(network["bytes_by_nic"].values()) > 1 << 20
    log = "".join(path.read_text() for path in tmp_path.rglob("rank0*"))
    assert "host0 device  0" in log and "host1 device  1" in log, "a GPU of its own each"


def test_what_moved_nothing_proves_nothing_and_what_ended_says_why(builds: dict[str, Path], tmp_path: Path) -> None:
    began_s = time.monotonic()
    code, records = sweep(builds, tmp_path, ["idle", "one_rail", "header", "dies", "early"], [SLOW], iteration="180 s")
    told = {system: (record.status, record.reason) for (system, _), record in records.items()}
    assert code is ExitCode.WRONG
    assert told["idle"][0] == told["one_rail"][0] == "inconclusive"
    assert told["idle"][1].startswith("the fault hit an idle NIC: host1 eth0 carried ")
    assert told["one_rail"][1].startswith("the fault hit an idle NIC: host1 eth0 carried ")
    assert told["one_rail"][1].endswith('; write nic = "busiest" to hit one in use')
    network = {system: record.evidence.model_dump()["network"] for (system, _), record in records.items()}
    assert network["idle"]["finding"] == "unknown" and network["one_rail"]["finding"] == "proven"
    assert {told[name][0] for name in ("header", "dies", "early")} == {"failed"}
    assert "rows under a header that this program does not know" in told["header"][1]
    assert "the GPU has fallen off the bus" in told["dies"][1]
    assert "ended with 4 cycles to go" in told["early"][1]
    assert time.monotonic() - began_s < 170, "nothing was waited for that could not come"
