"""The perftest backend: what ib_write_bw prints, which ports it is given, and one line for each way to fail.

The real program between guests: test_verbs_vms.py, and experiments/verbs_bandwidth.toml.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.backends.base import Job
from harness.backends.perftest import PerftestBackend
from harness.backends.perftest_ports import Port, ports_of
from harness.backends.perftest_rank import EndedError, Host, Meeting
from harness.backends.perftest_text import Result, parse
from harness.errors import LogError, RdmaPortError
from harness.experiment.file import load
from harness.workloads.collective import CollectiveWorkload

ROOT = Path(__file__).parents[2]
EXPERIMENT = ROOT / "experiments" / "verbs_bandwidth.toml"
CLIENT = (ROOT / "tests" / "data" / "perftest" / "client_6.06.txt").read_text(encoding="utf-8")
NO_DEVICE = (ROOT / "tests" / "data" / "perftest" / "no_device_6.06.txt").read_text(encoding="utf-8")
ROW = " 419430     6           0.000000            0.014110            0.000004"


def test_the_row_of_a_real_run_is_read() -> None:
    assert parse(CLIENT) == Result(419430, 6, 0.014110 * 1e9 / 8)


def test_a_bandwidth_in_its_mb_is_in_units_of_2_20_bytes() -> None:
    assert parse(CLIENT.replace("[Gb/sec]", "[MB/sec]")).bytes_s == 0.014110 * 2**20
    assert parse(CLIENT.replace("[Gb/sec]", "[MiB/sec]")).bytes_s == 0.014110 * 2**20


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NO_DEVICE, "ib_write_bw printed no table: Unable to find the Infiniband/RoCE device"),
        ("", "ib_write_bw printed no table: nothing"),
        (CLIENT.replace(ROW, ""), "ib_write_bw printed 0 rows where one was due: nothing follows its header"),
        (
            CLIENT.replace(ROW, " Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81"),
            "ib_write_bw printed 0 rows where one was due: Completion with error at client",
        ),
        (CLIENT.replace(ROW, f"{ROW}\n{ROW}"), "ib_write_bw printed 2 rows where one was due"),
        (CLIENT.replace("Gb/sec", "GB/sec"), "ib_write_bw gives bandwidths in GB/sec; known are Gb/sec, MB/sec"),
        (CLIENT.replace("0.014110", "0.000000"), "ib_write_bw gives a bandwidth of 0"),
    ],
)
def test_what_is_no_result_is_one_line(text: str, line: str) -> None:
    with pytest.raises(LogError) as error:
        parse(text)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


def add_port(sysfs: Path, device: str, nic: str, gids: dict[int, tuple[str, str]]) -> Path:
    """A RoCE port as the kernel shows it; `gids` by index: address and type."""
    port = sysfs / "class/infiniband" / device / "ports/1"
    for part in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / part).mkdir(parents=True, exist_ok=True)
    (port / "link_layer").write_text("Ethernet\n")
    for index, (gid, kind) in gids.items():
        (port / "gids" / str(index)).write_text(f"{gid}\n")
        (port / "gid_attrs/types" / str(index)).write_text(f"{kind}\n")
        (port / "gid_attrs/ndevs" / str(index)).write_text(f"{nic}\n")
    return sysfs / "class/infiniband" / device


LOCAL = "fe80:0000:0000:0000:5054:00ff:fe00:0001"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a64:0001"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Soft-RoCE on eth0, a ConnectX on eth1."""
    soft = add_port(tmp_path, "rxe0", "eth0", {0: (LOCAL, "RoCE v2"), 1: (MAPPED, "RoCE v2")})
    (soft / "parent").write_text("eth0\n")
    gids = {0: (LOCAL, "IB/RoCE v1"), 2: (MAPPED, "IB/RoCE v1"), 10: (MAPPED, "RoCE v2")}
    card = add_port(tmp_path, "mlx5_0", "eth1", gids)
    driver = tmp_path / "drivers/mlx5_core"
    driver.mkdir(parents=True)
    (card / "device").mkdir()
    (card / "device/driver").symlink_to(driver)
    return tmp_path


def test_every_nic_has_the_port_of_its_address_and_the_type_of_its_device(sysfs: Path) -> None:
    assert ports_of(["eth1", "eth0"], [], sysfs) == [
        Port("eth1", "mlx5_0", 1, 10, "mlx5"),
        Port("eth0", "rxe0", 1, 1, "rxe"),
    ]
    assert ports_of(["eth0"], ["rxe0:1"], sysfs) == [Port("eth0", "rxe0", 1, 1, "rxe")]


@pytest.mark.parametrize(
    ("nics", "devices", "line"),
    [
        (
            ["eth0"],
            ["rxe9"],
            "PERFTEST_DEVICES: this host has no RDMA device rxe9; it has mlx5_0, rxe0 (see rdma link)",
        ),
        (["eth0", "eth1"], ["rxe0"], "PERFTEST_DEVICES names 1 devices for the 2 NICs eth0, eth1"),
        (["eth2"], [], "eth2: no RDMA port has its IPv4 address as a GID of RoCE v2"),
        (["eth0"], ["mlx5_0"], "eth0: no RDMA port of mlx5_0 has its IPv4 address as a GID of RoCE v2"),
    ],
)
def test_a_port_that_is_not_there_is_one_line(sysfs: Path, nics: list[str], devices: list[str], line: str) -> None:
    with pytest.raises(RdmaPortError) as error:
        ports_of(nics, devices, sysfs)
    assert str(error.value).startswith(line)


def host(tmp_path: Path, script: str) -> Host:
    program = tmp_path / "ib_write_bw"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    args = argparse.Namespace(program=str(program), sent_bytes=4 << 20, ready_s=5.0)
    return Host(args, 0, [Port("eth0", "rxe0", 1, 1, "rxe"), Port("eth1", "rxe1", 1, None, "rxe")])


def test_a_client_is_given_its_device_port_and_messages(tmp_path: Path) -> None:
    """Two rails carry 2 MiB each."""
    one = host(tmp_path, 'echo "$@" >> "$0.words"')
    for client in one.write("10.0.0.2", [7001, 7002]):
        one.finish(client)
    common = "-F -N {} -s 262144 -n 8 --report_gbits 10.0.0.2"
    assert set((tmp_path / "ib_write_bw.words").read_text().splitlines()) == {
        f"-d rxe0 -i 1 -p 7001 {common.format('-x 1')}",
        f"-d rxe1 -i 1 -p 7002 {common.format('')}".replace("  ", " "),
    }


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo 'Unable to init the socket connection'; exit 1", "exit status 1: Unable to init the socket connection"),
        ("echo hello", "ib_write_bw printed no table: hello"),
    ],
)
def test_a_client_that_fails_is_one_line(tmp_path: Path, script: str, line: str) -> None:
    one = host(tmp_path, script)
    clients = one.write("10.0.0.2", [7001, 7002])
    with pytest.raises(EndedError) as error:
        one.result(clients[0])
    clients[1].communicate()
    assert str(error.value).startswith(f"{tmp_path}/ib_write_bw -d rxe0: ")
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_a_server_that_ends_by_itself_is_an_error(tmp_path: Path) -> None:
    one = host(tmp_path, "exit 0")
    with pytest.raises(EndedError, match="ended before it had a client"):
        one.serve()
    for program in one.running[1:]:
        program.communicate()


def test_a_program_that_is_not_there_is_one_line_of_its_rank() -> None:
    words = ["--size-bytes", "1", "--sent-bytes", "1", "--iterations", "1", "--addresses", "127.0.0.1"]
    argv = [sys.executable, "-m", "harness.backends.perftest_rank", "--program", "/nowhere/ib_write_bw", *words]
    env = {**os.environ, "R2CC_RANK": "1", "R2CC_SIZE": "2", "R2CC_ROOT": "127.0.0.1:1", "R2CC_SOCKET_IFNAME": "=eth0"}
    done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.PIPE)
    (event,) = map(json.loads, done.stdout.splitlines())
    assert done.returncode == 2
    assert event["message"].startswith(
        "/nowhere/ib_write_bw is not on this host; install it (Debian's package perftest)"
    )


def test_this_machine_lacks_the_program_in_one_line() -> None:
    workload = CollectiveWorkload(sizes=("1MiB",), ib_write_bw="/nowhere/ib_write_bw")  # type: ignore[call-arg]
    assert PerftestBackend().missing(workload, sys.executable) == (
        "/nowhere/ib_write_bw is not here; "
        "install it (Debian's package perftest), or give workload.ib_write_bw its path"
    )


def test_a_host_sends_what_bus_bandwidth_counts() -> None:
    workload = CollectiveWorkload(sizes=("3MiB",))  # type: ignore[call-arg]
    job = Job("python", workload, 3 << 20, 5, 1, 0, 3, "a:1", ("eth0",), 1.0, addresses=("a", "b", "c"))
    argv = PerftestBackend().command(job, 1).argv
    assert argv[argv.index("--sent-bytes") + 1] == str(4 << 20)
    assert argv[argv.index("--addresses") + 1] == "a,b,c"


def test_without_a_build_of_nccl_tests_its_systems_are_left_out_with_a_line_each() -> None:
    said: list[str] = []
    experiment = load(EXPERIMENT, tell=said.append)
    assert [system.name for system in experiment.systems] == ["ib_write_bw", "verbs", "verbs_by_rings"]
    assert said == [
        f"system {name} is left out: workload.nccl_tests names no build of nccl-tests"
        for name in ("nccl_ib", "nccl_r2ccl_plugin")
    ]


def test_with_one_they_stay_and_net_ib_is_asked_for_by_name() -> None:
    said: list[str] = []
    experiment = load(EXPERIMENT, ["workload.nccl_tests=/opt/nccl-tests/build"], tell=said.append)
    systems = {system.name: system for system in experiment.systems}
    backends = {name: experiment.backend_of(system) for name, system in systems.items()}
    assert said == []
    assert backends["nccl_ib"] == backends["nccl_r2ccl_plugin"] == "nccl_tests"
    assert backends["ib_write_bw"] == "perftest"
    assert systems["nccl_ib"].env["NCCL_NET"] == systems["nccl_ib"].network == "IB"


def test_hosts_meet_and_hear_each_other() -> None:
    heard: dict[int, list[object]] = {}
    with socket.create_server(("127.0.0.1", 0)) as probe:
        root = f"127.0.0.1:{probe.getsockname()[1]}"

    def take_part(rank: int) -> None:
        meeting = Meeting(root, rank, 3, 20.0)
        heard[rank] = [meeting.share([rank, word]) for word in ("a", "b")]
        meeting.close()

    threads = [threading.Thread(target=take_part, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert heard == {rank: [[[0, word], [1, word], [2, word]] for word in ("a", "b")] for rank in range(3)}
