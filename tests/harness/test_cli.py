"""The command line as a user meets it: exit statuses, one line for each mistake, interrupts, quick help."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
HEAVY = ("pandas", "fabric", "pyroute2", "pydantic", "numpy", "rich", "pyarrow")


def harness(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv(*words), cwd=ROOT, capture_output=True, text=True, timeout=60)


def argv(*words: str) -> list[str]:
    return [sys.executable, "-c", "from harness.cli import main; main()", *words]


def test_help_imports_nothing_heavy() -> None:
    code = f"import sys, harness.cli; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_help_of_sweep_documents_the_exit_statuses() -> None:
    shown = harness("sweep", "--help").stdout
    listed = [line.split()[0] for line in shown.partition("Exit status:")[2].splitlines() if line.strip()]
    assert listed == ["0", "1", "2", "3", "130"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["sweep", "nowhere.toml"], "nowhere.toml: there is no such file"),
        (["sweep", ALLREDUCE, "--set", "sweep.sead=1"], f"{ALLREDUCE}: sweep.sead: unknown key; did you mean 'seed'?"),
        (["sweep", ALLREDUCE, "--only", "size=3MiB"], "--only: size=3MiB: no such size"),
        (
            ["sweep", ALLREDUCE, *NOOP, "--set", "cluster.python=/no/python"],
            f"{ALLREDUCE}: cluster.python: /no/python: no such program; name a Python's path",
        ),
        (["report", "nowhere"], f"{ROOT / 'nowhere' / 'run.json'}: no such file"),
        (["plan", "--size", "3XB"], "'3XB' has the unknown unit"),
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
    assert [line.split(":")[0].strip() for line in lines[1:]] == [
        *("host0", "host1", "host2"),
        "50% into iteration 20",
        *("host1", "host1"),
    ]
    assert lines[-2].endswith("ip link set dev eth1 down")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_an_interrupted_sweep_says_so_keeps_its_rows_and_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    words = [*SHORT, "--out", str(tmp_path)]
    sweep = subprocess.Popen(argv(*words), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for_trials(tmp_path, 2)
    sweep.send_signal(number)
    _, told = sweep.communicate(timeout=30)
    assert sweep.returncode == 130
    assert told == "interrupted: healed and closed; the same command goes on\n"
    (run,) = tmp_path.iterdir()
    assert (run / "rows.csv").exists()
    again = harness(*words)
    assert again.returncode == 0
    assert again.stdout.startswith(f"resuming {run}")
    assert trials_of(run) == 6


@pytest.mark.slow
def test_kill_9_loses_no_finished_trial(tmp_path: Path) -> None:
    words = [*SHORT, "--out", str(tmp_path)]
    sweep = subprocess.Popen(argv(*words), cwd=ROOT, stdout=subprocess.DEVNULL)
    wait_for_trials(tmp_path, 2)
    sweep.kill()
    sweep.wait(30)
    (run,) = tmp_path.iterdir()
    before = {path: path.stat().st_mtime_ns for path in (run / "trials").glob("*/trial.json")}
    assert harness(*words).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert trials_of(run) == 6


def trials_of(run: Path) -> int:
    """Trials that ended, however often they were attempted."""
    return len(list((run / "trials").glob("*-r[0-9]/trial.json")))


def wait_for_trials(runs: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list(runs.glob("*/trials/*/trial.json"))) < count:
        assert time.monotonic() < deadline, "no trial ended in time"
        time.sleep(0.02)
