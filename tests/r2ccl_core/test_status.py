"""The status command on real processes: alive, ended in good order, killed; as table, JSON and Prometheus' text."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from r2ccl_core.errors import UsageError
from r2ccl_core.status import prometheus, table
from r2ccl_core.status.read import SILENT_S, Life, life_of, read_folder

# Two ends in one process, which says "ready" once a message went over, and ends with its input.
PROGRAM = """
import sys
import numpy as np
from r2ccl_core import native
nics = [("lo", "127.0.1.1"), ("lo", "127.0.1.2")]
net = native.load().open_net(2, nics)
listener = net.listen()
send = net.connect(listener.handle)
receive = listener.accept()
data = np.arange(100_000)
got = np.zeros_like(data)
requests = [receive.irecv(got), send.isend(data)]
for request in requests:
    request.wait()
print("ready", flush=True)
sys.stdin.read()
net.close()
"""


@contextmanager
def running(folder: Path) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "R2CC_STATUS_DIR": str(folder), "R2CC_STATUS_MS": "50"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "R2CC_STATUS_DIR"}
    argv = [sys.executable, "-m", "r2ccl_core.status", *map(str, arguments)]
    return subprocess.run(argv, env={**env, "COLUMNS": "150"}, capture_output=True, text=True, check=False)


def wait_for_bytes(folder: Path) -> None:
    for _ in range(200):
        (status,) = read_folder(folder, time.time()).statuses
        if sum(nic["acknowledged_bytes"] for nic in status.document["nics"]) >= 800_000:
            return
        time.sleep(0.05)
    raise AssertionError("the status does not show the bytes that went over")


def test_a_process_from_its_life_to_its_end(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        wait_for_bytes(tmp_path)
        (told,) = json.loads(command(tmp_path, "--json").stdout)
        assert (told["life"], told["process"]["pid"]) == ("alive", process.pid)
        assert {(p["direction"], p["peer"], p["paths_up"]) for p in told["peers"]} == {
            ("send", "127.0.1.1", 2),
            ("receive", "127.0.1.1", 2),
        }
        assert [(nic["address"], nic["state"], nic["paths_up"]) for nic in told["nics"]] == [
            ("127.0.1.1", "up", 2),
            ("127.0.1.2", "up", 2),
        ]
        assert "path_up" in {event["kind"] for event in told["events"]}
        text = command(tmp_path, "--prometheus").stdout
        assert re.search(
            rf'^r2ccl_nic_state{{.*pid="{process.pid}",nic="lo",address="127.0.1.2",state="up"}} 1$', text, re.M
        )
        shown = command(tmp_path, "--events", "1").stdout
        assert re.search(r"lo +127\.0\.1\.2 +up +2 up, 0 down", shown)
        process.stdin.close()  # type: ignore[union-attr]
        assert process.wait(20) == 0
    assert list(tmp_path.iterdir()) == []
    assert "no process keeps a status file here" in command(tmp_path).stdout


def test_what_a_killed_process_leaves_is_told_apart_and_cleaned(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (left,) = read_folder(tmp_path, time.time()).statuses
    assert left.life is Life.GONE
    assert json.loads(command(tmp_path, "--json").stdout) == []
    assert "[gone" in command(tmp_path, "--stale").stdout
    assert "r2ccl_process_alive{" in command(tmp_path, "--stale", "--prometheus").stdout
    assert command(tmp_path, "--clean").returncode == 0
    assert not list(tmp_path.glob("*.json"))


def test_a_number_that_another_process_has_now_is_no_life(tmp_path: Path) -> None:
    with running(tmp_path):
        (status,) = read_folder(tmp_path, time.time()).statuses
        process = {**status.document["process"], "start_ticks": 1}
        assert life_of({**status.document, "process": process}, time.time()) is Life.GONE
        elsewhere = {**status.document, "process": {**process, "pid_namespace": "pid:[1]"}}
        written_s = status.document["written_ns"] / 1e9
        assert life_of(elsewhere, written_s + SILENT_S - 1) is Life.ALIVE
        assert life_of(elsewhere, written_s + SILENT_S + 1) is Life.SILENT


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    for arguments, words in (
        ((tmp_path / "none",), "no such folder"),
        ((), "no folder: name it, or set R2CC_STATUS_DIR"),
        ((tmp_path, "--json", "--prometheus"), "choose one"),
    ):
        done = command(*arguments)
        assert done.returncode == 2
        assert words in done.stderr and done.stderr.count("\n") == 1
    with pytest.raises(UsageError):
        read_folder(tmp_path / "none", 0)


def spoilt(document: dict[str, Any]) -> Iterator[str]:
    """Texts that are no status of this schema, though some nearly are."""
    yield from ("", '{"schema"', "[]", "[" * 100_000, json.dumps({**document, "schema": 99}))
    for name in ("process", "config", "nics", "events"):
        yield json.dumps({key: value for key, value in document.items() if key != name})
        yield from (json.dumps({**document, name: value}) for value in (None, 3, "x", [1], {}))
    yield json.dumps({**document, "process": {**document["process"], "host": "\ud800"}})
    yield json.dumps({**document, "written_ns": 10**400})
    yield json.dumps({**document, "nics": [{**document["nics"][0], "sent_bytes": "many"}]})


def test_a_file_that_cannot_be_read_is_told_in_one_line_and_hides_no_other(tmp_path: Path) -> None:
    with running(tmp_path) as process:
        (whole,) = read_folder(tmp_path, time.time()).statuses
        texts = list(spoilt(dict(whole.document)))
        for number, text in enumerate(texts):
            (tmp_path / f"r2ccl-host-1-1-{number}.json").write_text(text)
        for flags in ((), ("--json",), ("--prometheus",), ("--clean",)):
            done = command(tmp_path, *flags)
            assert done.returncode == 1 and str(process.pid) in done.stdout
            assert len(done.stderr.splitlines()) == len(texts), done.stderr
            assert "Traceback" not in done.stderr and "schema 99, this release reads 1" in done.stderr
            assert "damaged (config is not there)" in done.stderr and "damaged (nics is not a list)" in done.stderr
        assert len(list(tmp_path.glob("r2ccl-host-*"))) == len(texts), "of another host: not for us to judge"
    assert "Exit status: 0; 1 when a file could not be read" in " ".join(command("--help").stdout.split())


def test_watch_goes_on_beside_a_damaged_file(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "r2ccl_core.status", str(tmp_path), "--watch", "--every", "0.1", "--json"]
    (tmp_path / "r2ccl-host-1-1-0.json").touch()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watch:
        assert watch.stdout is not None
        assert [watch.stdout.readline() for _ in range(3)] == ["[]\n"] * 3
        watch.send_signal(signal.SIGINT)
        _, told = watch.communicate(timeout=120)
    assert (watch.returncode, told.count("\n")) == (1, 1) and "damaged" in told


def test_clean_judges_drafts_and_damaged_files_by_their_names(tmp_path: Path) -> None:
    host, long_ago_s = socket.gethostname(), time.time() - 2 * SILENT_S
    own_ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    gone, mine = f"r2ccl-{host}-{os.getpid()}-1", f"r2ccl-{host}-{os.getpid()}-{own_ticks}"
    stale = [f"{gone}-0.json", f"{gone}-0.json.tmp"]
    kept = [f"{mine}-0.json", f"{mine}-0.json.tmp", f"r2ccl-other{host}-1-1-0.json.tmp", "r2ccl-odd.json", "x.json.tmp"]
    fresh = f"{gone}-1.json.tmp"
    for name in (*stale, *kept, fresh):
        (tmp_path / name).touch()
        if name != fresh:
            os.utime(tmp_path / name, (long_ago_s, long_ago_s))
    done = command(tmp_path, "--clean")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, fresh}
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 2), "the damaged ones that stayed"


def test_prometheus_text_is_well_formed(tmp_path: Path) -> None:
    """Every sample of a metric follows its type, none comes twice, and labels are escaped."""
    with running(tmp_path):
        statuses = read_folder(tmp_path, time.time()).statuses
    odd = {**statuses[0].document, "process": {**statuses[0].document["process"], "program": 'a"b\\c\n'}}
    twice = [*statuses, type(statuses[0])(statuses[0].path, Life.GONE, odd)]
    seen: set[str] = set()
    metric = kind = ""
    for line in prometheus.render(twice).splitlines():
        if line.startswith("# TYPE "):
            metric, kind = line.split()[2:]
        if line.startswith("#"):
            continue
        match = re.fullmatch(r'(\w+)\{(?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*\} [-+.e\d]+', line)
        assert match is not None, line
        assert match[1] == metric and (kind == "counter") == metric.endswith("_total")
        assert line.rpartition(" ")[0] not in seen
        seen.add(line.rpartition(" ")[0])
    assert r'program="a\"b\\c\n"' in "".join(seen)


def test_a_file_of_an_earlier_release_lacks_what_came_later(tmp_path: Path) -> None:
    with running(tmp_path):
        (whole,) = read_folder(tmp_path, time.time()).statuses
    assert {one["kind"] for one in whole.document["strangers"]} >= {"silent", "garbage", "version", "secret"}
    document = dict(whole.document)
    document["strangers"] = [{"kind": "garbage", "count": 7}, {"kind": "silent", "count": 0}]
    fresh = type(whole)(whole.path, whole.life, document)
    assert re.search(r'^r2ccl_strangers_total{.*kind="garbage"} 7$', prometheus.render([fresh]), re.M)
    assert "nic_paths_never_up{" in prometheus.render([fresh])
    for name in ("strangers", "own_probes"):
        del document[name]
    assert "nic_rdma_sent_bytes_total{" in prometheus.render([fresh])
    later = {"paths_never_up", "rdma_paths", "rdma_sent_bytes", "rdma_received_bytes", "rdma_written_bytes"}
    document["nics"] = [{k: v for k, v in nic.items() if k not in later} for nic in document["nics"]]
    path = whole.path
    path.write_text(json.dumps(document))
    (earlier,) = read_folder(tmp_path, time.time()).statuses
    text = prometheus.render([earlier])
    assert "strangers_total{" not in text and "own_probes_total{" not in text and "paths_never_up{" not in text
    assert "rdma_paths{" not in text
    assert command(tmp_path, "--stale").returncode == 0
    path.write_text(json.dumps({**document, "strangers": 3}))
    assert "strangers is not a list" in str(read_folder(tmp_path, time.time()).unread[path])


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB")])
def test_sizes_as_people_read_them(count: int, text: str) -> None:
    assert table.size(count) == text
