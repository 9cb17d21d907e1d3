"""The command line as a user meets it: exit statuses, one line for each mistake, interrupts, quick help."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import typer
from synthetic_run import AS_IN_PAGES, UNDRAWN

from harness.cluster import state
from harness.cluster.processes import identify
from harness.commands.reported import reported
from harness.interrupt import Interrupted

ROOT = Path(__file__).parents[2]
ALLREDUCE = str(ROOT / "experiments" / "allreduce.toml")
NOOP = [
    "--set=cluster.kind=noop",
    "--set=workload.backend=noop",
    '--set=fault=[{kind="noop", host="host1", nic="eth0", at_iteration=2}]',
    "--set=workload.iterations_by_size={}",
    "--set=workload.iterations=4",
]
SHORT = ["sweep", ALLREDUCE, *NOOP, '--set=workload.sizes=["8MiB"]', "--set=sweep.repeats=2"]
WITHIN = """
import os, signal, sys
from harness.commands.cli import main

class Finder:
    def find_spec(self, name, *_):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.{signal})

sys.meta_path.insert(0, Finder())
main()
"""
"""The program, which interrupts itself in the middle of an import."""
HEAVY = ("pandas", "fabric", "pyroute2", "pydantic", "numpy", "rich", "pyarrow")


PROGRAM = "from harness.commands.cli import main; main()"
UNREPORTED = f"import harness.sweep.command as sweep; sweep.publish = lambda folder: folder; {PROGRAM}"
"""For sweeps whose report nobody looks at: it takes three quarters of the processor's time of a short one."""


DRAWN = AS_IN_PAGES + PROGRAM


def harness(*words: str, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(*words, program=program), cwd=ROOT, capture_output=True, text=True, timeout=240)


def argv(*words: str, program: str = PROGRAM) -> list[str]:
    return [sys.executable, "-c", program, *words]


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("harness.commands.cli", HEAVY),
        ("harness.commands.faults", ("pandas", "fabric", "pyroute2", "numpy", "pyarrow", "matplotlib")),
        ("harness.sweep.command", ("pandas", "fabric", "pyroute2", "pyarrow", "matplotlib")),
    ],
)
def test_nothing_heavy_is_imported_before_it_is_used(module: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("command", "statuses"), [("sweep", "0 1 2 3 70 129 130 143"), ("compare", "0 1 2 3 70 74")])
def test_the_help_documents_the_exit_statuses(command: str, statuses: str) -> None:
    shown = harness(command, "--help").stdout
    listed = re.findall(r"^ {2}(\d+) ", shown.partition("Exit status:")[2], re.MULTILINE)
    assert listed == statuses.split()


INTERRUPTED_IMPORT = """
import builtins, harness.commands.start
real = builtins.__import__
def stopped(name, *rest):
    if name == "typer":
        raise KeyboardInterrupt
    return real(name, *rest)
builtins.__import__ = stopped
harness.commands.start.main()
"""


def test_an_interrupt_while_the_program_is_imported_is_one_line() -> None:
    code = [sys.executable, "-c", INTERRUPTED_IMPORT]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("stop", "told"), [(KeyboardInterrupt("SIGINT"), ""), (Interrupted("all is well"), ": all is well")]
)
def test_an_interrupt_says_what_is_left_where_something_is(
    stop: BaseException, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command() -> int:
        raise stop

    with pytest.raises(typer.Exit) as ended:
        reported(command)()
    assert (ended.value.exit_code, capsys.readouterr().err) == (130, f"interrupted{told}\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sweep", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["sweep", ALLREDUCE, "--set", "sweep.sead=1"], "--set: sweep.sead: unknown key; did you mean 'seed'?"),
        (["sweep", ALLREDUCE, "--only", "size=3MiB"], "--only: size=3MiB: no such size"),
        (
            ["sweep", ALLREDUCE, *NOOP, "--set", "cluster.python=/no/python"],
            f"{ALLREDUCE}: cluster.python: /no/python: no such program; name a Python's path",
        ),
        (["report", "nowhere"], f"{ROOT / 'nowhere' / 'run.json'}: no such file"),
        (["plan", "--size", "3XB"], "--size 3XB: has the unknown unit"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(words: list[str], line: str) -> None:
    done = harness(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(line)
    assert len(done.stderr.splitlines()) == 1


def test_a_dry_run_shows_every_command_and_touches_nothing(tmp_path: Path) -> None:
    done = harness(
        "sweep", ALLREDUCE, "--dry-run", "--only", "system=balance,size=1MiB,repeat=0", "--out", str(tmp_path)
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "balance-1MiB-nic_down-r0"
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == [
        *("host0", "host1", "host2"),
        "50 % into iteration 20",
        *("host1", "host1"),
    ]
    assert lines[-3].endswith("ip link set dev eth1 down")
    assert lines[-1].startswith("1 trial of 1 cell, 1 with a fault, 3 ranks started")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", ["two lines\nof 'words'", "back\\slash \x1b[2J \xe9\u2028"])
def test_a_dry_run_shows_each_command_on_one_line_that_a_shell_reads(value: str, tmp_path: Path) -> None:
    done = harness(
        "sweep", ALLREDUCE, "--dry-run", "--only", "system=balance,size=1MiB,repeat=0", "--out", str(tmp_path),
        "--set", f"system[balance].env.MINE={json.dumps(value)}",
    )  # fmt: skip
    line = next(line for line in done.stdout.splitlines() if line.strip().startswith("host0:"))
    (setting,) = re.findall(r"MINE=(\$?'(?:[^'\\]|\\.)*')", line)
    told = subprocess.run(
        ["bash", "-c", f"printf %s {setting}"], env={**os.environ, "LC_ALL": "C.UTF-8"}, stdout=subprocess.PIPE
    )
    assert told.stdout.decode() == value


TINY = [*SHORT, "--only=system=balance", "--set=sweep.retries=9"]


@pytest.mark.slow
def test_json_tells_the_whole_sweep_and_a_missed_bound_is_exit_status_1(tmp_path: Path) -> None:
    silent = '{metric="wrong", system="failstop", max=0}'
    bounds = f'--set=bound=[{{metric="slowdown", max=0.5}}, {{metric="before_gbs", min=0.001}}, {silent}]'
    axis = '--set=axis=[{key="workload.warmup", values=[0, 1]}]'
    words = [*TINY, "--json", bounds, axis, "--set=sweep.healthy=ends", "--out", str(tmp_path)]
    done = harness(*words, program=UNDRAWN + PROGRAM)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {event["schema"] for event in events} == {1}
    assert [event["event"] for event in events[:2]] == ["sweep_begin", "plan"]
    assert (events[1]["trials"], events[1]["done"]) == (8, 0)
    assert "balance-8MiB-noop-warmup=1" in events[1]["cells"]
    ended = [event for event in events if event["event"] == "trial_end" and event["final"]]
    assert len(ended) == 8
    assert {event["status"] for event in ended} == {"ok"}
    assert all(event["before_gbs"] > 0 for event in ended)
    assert {event["event"] for event in events} >= {"trial_begin", "step", "fault", "note"}
    assert {e["step"] for e in events if e["event"] == "step"} >= {"check", "start", "ready", "watch", "collect"}
    last = events[-1]
    assert (last["event"], last["exit_code"]) == ("sweep_end", 1)
    bounds = [remark.split(":")[0] for remark in last["remarks"] if remark.startswith("bound")]  # not of stolen time
    assert bounds == ["bound missed", "bound held"]
    told = "Bounds that were not judged, because --only selected none of their trials: wrong (failstop)."
    assert last["remarks"][-1] == told
    assert Path(last["report"]).exists()
    assert done.returncode == 1
    table = pq.read_table(Path(last["report"]).with_name("rows.parquet")).to_pydict()
    assert set(table["axis_warmup"]) == {"0", "1"}
    assert set(table["scenario"]) == {"noop", "healthy_before", "healthy_after"}


@pytest.mark.slow
def test_a_bound_that_nothing_measured_is_exit_status_3(tmp_path: Path) -> None:
    bound = '--set=bound=[{metric="error_after_ms", max=5}]'
    done = harness(*TINY, bound, "--out", str(tmp_path), program=UNREPORTED)
    assert done.returncode == 3
    assert "bound not measured: error_after_ms" in done.stdout


def test_an_error_is_an_event_too(tmp_path: Path) -> None:
    done = harness("sweep", ALLREDUCE, "--json", "--set=cluster.mtuu=3", "--out", str(tmp_path))
    (last,) = map(json.loads, done.stdout.splitlines())
    assert (last["event"], last["exit_code"], done.returncode) == ("sweep_end", 2, 2)
    assert last["remarks"] == done.stderr.splitlines()


def test_a_size_beyond_the_memory_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    words = ["--set=workload.iterations_by_size={}", '--set=workload.sizes=["100TiB"]']
    done = harness("sweep", ALLREDUCE, *words, "--out", str(tmp_path / "runs"))
    assert done.returncode == 2
    assert "workload.sizes: 100TiB: 3 hosts on this machine need" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_same_sweep_twice_at_once_is_refused_or_waits(tmp_path: Path) -> None:
    words = [*TINY, "--set=sweep.repeats=30", "--out", str(tmp_path)]
    command = argv(*words, program=UNREPORTED)
    first = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_trials(tmp_path, 1)
    second = harness(*words)
    assert second.returncode == 2
    assert f"process {first.pid} of " in second.stderr
    assert len(second.stderr.splitlines()) == 1
    with subprocess.Popen(
        [*command, "--wait"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as third:
        assert third.stdout is not None
        assert third.stdout.readline().startswith(f"waiting: {tmp_path}")
        first.send_signal(signal.SIGINT)
        assert first.wait(120) == 130
        assert third.stdout.readline().startswith(f"resuming {tmp_path}")
        third.send_signal(signal.SIGINT)
        third.stdout.read()
    assert third.returncode == 130
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "fresh", "how"),
    [
        (signal.SIGINT, 130, [], "the same command goes on"),
        (signal.SIGTERM, 143, ["--fresh"], "the same command without --fresh goes on"),
        (signal.SIGHUP, 129, [], "the same command goes on"),
    ],
)
def test_an_interrupted_sweep_says_so_keeps_its_rows_and_goes_on(
    tmp_path: Path, number: signal.Signals, status: int, fresh: list[str], how: str
) -> None:
    words = [*SHORT, "--out", str(tmp_path)]
    heeded = [
        "env",
        f"--default-signal={number.name}",
        *argv(*words, *fresh, program=DRAWN if number == signal.SIGINT else UNDRAWN + PROGRAM),
    ]  # a background job of a shell ignores SIGINT
    sweep = subprocess.Popen(heeded, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with sweep:
        try:
            wait_for_trials(tmp_path, 2)
            sweep.send_signal(number)
            _, told = sweep.communicate(timeout=120)
        finally:
            sweep.kill()  # nothing, where it has ended
    assert sweep.returncode == status
    assert told == f"interrupted: healed and closed; {how}\n"
    (run,) = tmp_path.iterdir()
    assert (run / "rows.csv").exists()
    stored = json.loads((run / "run.json").read_text())
    now = stored["provenance"]["source"]
    (run / "run.json").write_text(json.dumps(stored | {"provenance": stored["provenance"] | {"source": "before"}}))
    # What went on is reported alike whatever had interrupted it.
    again = harness(*words, program=DRAWN if number == signal.SIGINT else UNREPORTED)
    assert again.returncode == 0
    first, second, *_ = again.stdout.splitlines()
    assert first == f"resuming {run}"
    assert second.startswith("warning: its trials are not all of one program, whose source changed")
    assert second.endswith(f"(files {now}); --fresh begins anew")
    assert [entry["source"] for entry in json.loads((run / "run.json").read_text())["provenance"]["continued"]] == [now]
    assert trials_of(run) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_sweep_interrupted_during_an_import_writes_its_report(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    words = [*TINY, "--out", str(tmp_path)]
    assert harness(*words, program=UNREPORTED).returncode == 0
    (run,) = tmp_path.iterdir()
    stored = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(stored | {"finished": None}))
    shutil.rmtree(next((run / "trials").glob("*-r1")))
    code = WITHIN.format(module="pandas._libs.hashtable", signal=number.name)
    argv = ["env", f"--default-signal={number.name}", sys.executable, "-c", code, *words]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stderr) == (status, "interrupted: healed and closed; the same command goes on\n")
    assert (run / "report.html").exists()


@pytest.mark.slow
def test_a_sweep_says_so_where_a_killed_one_has_left_a_cluster(tmp_path: Path) -> None:
    gone = subprocess.Popen(["sleep", "60"])
    owner = identify(gone.pid)
    assert owner is not None
    gone.kill()
    gone.wait()
    tag = state.new_tag()
    with state.lock():
        state.write(state.Record(tag, "doomed", "2025-01-31", ["harness"], owner))
    try:
        done = harness(*TINY, "--only=repeat=0", "--out", str(tmp_path), program=UNREPORTED)
    finally:
        state.forget(tag)
    assert done.returncode == 0
    assert "`harness clean` removes it" in done.stdout


@pytest.mark.slow
def test_kill_9_loses_no_finished_trial(tmp_path: Path) -> None:
    words = [*SHORT, "--out", str(tmp_path)]
    sweep = subprocess.Popen(argv(*words), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for_trials(tmp_path, 2)
    sweep.kill()
    sweep.wait(30)
    (run,) = tmp_path.iterdir()
    before = {path: path.stat().st_mtime_ns for path in (run / "trials").glob("*/trial.json")}
    assert harness(*words, program=UNREPORTED).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert trials_of(run) == 6


def trials_of(run: Path) -> int:
    """Trials that ended, however often they were attempted."""
    return len(list((run / "trials").glob("*-r[0-9]/trial.json")))


def wait_for_trials(runs: Path, count: int) -> None:
    deadline = time.monotonic() + 180
    while len(list(runs.glob("*/trials/*/trial.json"))) < count:
        assert time.monotonic() < deadline, "no trial ended in time"
        time.sleep(0.02)


def test_the_help_says_in_full_what_each_command_does_and_honours_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for group in ((), ("cluster",), ("cloudlab",)):
        shown = harness(*group, "--help").stdout
        assert "..." not in shown.partition("Commands:")[2]
        assert 80 < max(map(len, shown.splitlines())) <= 100


def test_the_commands_of_clusters_take_an_experiment_by_its_name() -> None:
    done = harness("cluster", "prepare", "smoke")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == 'cluster.kind = "local": nothing is fetched for it\n'


def test_a_key_that_is_not_there_is_one_line() -> None:
    done = harness("doctor", "192.0.2.1", "--key", "nowhere")
    assert (done.returncode, done.stderr) == (2, "--key nowhere: there is no such file\n")


def test_the_module_is_the_program() -> None:
    code = [sys.executable, "-m", "harness", "--version"]
    done = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout.split()[0]) == (0, "harness")
