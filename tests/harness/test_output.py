"""Output that cannot be encoded or written, and crashes: an exit status is that of a result, or one of its own."""

import inspect
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from synthetic_run import UNDRAWN, make_run

from harness.commands.cli import app
from harness.commands.reported import Ended
from harness.errors import ExitCode
from r2ccl_core.output import UNWRITTEN

ROOT = Path(__file__).parents[2]
SWEEP = [
    "sweep", str(ROOT / "experiments" / "allreduce.toml"), "--set=cluster.kind=noop", "--set=workload.backend=noop",
    '--set=fault=[{kind="noop", host="host1", nic="eth0", at_iteration=2}]', "--set=workload.iterations_by_size={}",
    "--set=workload.iterations=4", '--set=workload.sizes=["8MiB"]', "--set=sweep.repeats=1",
]  # fmt: skip
START = "from harness.commands.start import main; main()"


def full() -> int:
    """A file that cannot be written: there is never room in it."""
    return os.open("/dev/full", os.O_WRONLY)


def left() -> int:
    """A pipe whose reader has gone, as after `| head` has seen enough."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)


OUTPUTS: dict[str, tuple[Callable[[], int], dict[str, str]]] = {
    "usual": (nowhere, {}),
    "full": (full, {}),
    "left": (left, {}),
    "ascii": (nowhere, {"PYTHONIOENCODING": "ascii"}),
    "latin-1": (nowhere, {"PYTHONIOENCODING": "latin-1"}),
}


def run(how: str, *words: str, program: str = START) -> subprocess.CompletedProcess[str]:
    opened, more = OUTPUTS[how]
    out = opened()
    try:
        code = [sys.executable, "-c", program, *words]
        environment = os.environ | more
        pipe = subprocess.PIPE
        return subprocess.run(code, cwd=ROOT, stdout=out, stderr=pipe, env=environment, text=True, timeout=240)
    finally:
        os.close(out)


def slower(folder: Path) -> Path:
    """Every iteration after the fault takes twice as long."""
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        for item in trial["iterations"]:
            item["duration_ns"] *= 2 if item["phase"] == "after" else 1
            item["busbw_gbs"] /= 2 if item["phase"] == "after" else 1
        path.write_text(json.dumps(trial))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    base, new = (tmp_path_factory.mktemp(name) for name in ("a", "b"))
    made = [make_run(place, sizes={1 << 20: 8}, repeats=4, counters=False) for place in (base, new)]
    return str(made[0]), str(slower(made[1]))


@pytest.mark.parametrize("how", OUTPUTS)
def test_a_comparison_ends_with_its_exit_status_whatever_becomes_of_its_words(how: str, runs: tuple[str, str]) -> None:
    base, worse = runs
    ended = run(how, "compare", base, worse)
    told = "output cannot be written (No space left on device); the rest of it is dropped\n"
    assert (ended.returncode, ended.stderr) == (1, told if how == "full" else "")


@pytest.mark.parametrize(("how", "words"), [("full", []), ("left", ["--json"]), ("ascii", [])])
def test_a_sweep_runs_to_its_end_whatever_becomes_of_its_words(how: str, words: list[str], tmp_path: Path) -> None:
    ended = run(how, *SWEEP, "--out", str(tmp_path), *words, program=UNDRAWN + START)
    assert ended.returncode == 0, ended.stderr
    assert len(list(tmp_path.glob("*/trials/*-r[0-9]/trial.json"))) == 3, "first attempts"
    assert list(tmp_path.glob("*/report.html"))


@pytest.mark.parametrize(
    "words",
    [
        ["gpu", "-h"],
        ["perf", "-h"],
        ["perf", "--version"],
        ["status", "-h"],
        ["status", "/"],
        ["status", "/", "--json"],
    ],
    ids=" ".join,
)
def test_what_only_prints_has_a_status_of_its_own_where_it_cannot(words: list[str]) -> None:
    code = [sys.executable, "-m", f"r2ccl_core.{words[0]}", *words[1:]]
    ends = []
    for where in (full, left):
        out = where()
        ends.append(subprocess.run(code, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True, timeout=240))
        os.close(out)
    assert [end.returncode for end in ends] == [UNWRITTEN, 0]
    told = "output cannot be written (No space left on device); the rest of it is dropped\n"
    assert [end.stderr for end in ends] == [told, ""]


def test_a_comparison_that_finds_nothing_and_cannot_say_so_has_failed(runs: tuple[str, str], tmp_path: Path) -> None:
    same = shutil.copytree(runs[0], tmp_path / "again")
    code = [sys.executable, "-c", START, "compare", runs[0], str(same)]
    statuses = []
    for output in (nowhere(), full()):
        done = subprocess.run(code, cwd=ROOT, stdout=output, stderr=subprocess.PIPE, timeout=240)
        os.close(output)
        statuses.append(done.returncode)
    assert statuses == [0, UNWRITTEN]


@pytest.mark.parametrize(("how", "status"), [("usual", 3), ("full", UNWRITTEN), ("left", 3)])
def test_a_comparison_that_leaves_it_open_and_cannot_say_so_has_failed(
    runs: tuple[str, str], tmp_path: Path, how: str, status: int
) -> None:
    lacks = shutil.copytree(runs[0], tmp_path / "lacks")
    for trial in sorted((lacks / "trials").iterdir())[1:]:
        shutil.rmtree(trial)
    done = run(how, "compare", runs[0], str(lacks))
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == (how == "full")


@pytest.mark.parametrize(("how", "status"), [("usual", 0), ("full", UNWRITTEN), ("left", 0)])
def test_a_model_of_a_published_experiment_that_cannot_be_printed_has_failed(
    tmp_path: Path, how: str, status: int
) -> None:
    done = run(how, "reproduce", "coll-broadcast", "--model-only", "-o", str(tmp_path))
    assert done.returncode == status, done.stderr
    assert len(done.stderr.splitlines()) == (how == "full")


def test_a_closed_output_is_no_mistake(runs: tuple[str, str]) -> None:
    words = ["sh", "-c", 'exec "$0" -c "$1" compare "$2" "$3" >&-', sys.executable, START, *runs]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (ended.returncode, ended.stderr) == (1, "")


def test_what_only_prints_and_has_nowhere_to_has_failed() -> None:
    words = ["sh", "-c", 'exec "$0" -c "$1" faults >&-', sys.executable, START]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == UNWRITTEN
    assert ended.stderr == "output was closed before the command began, so nothing of it was written\n"


def test_without_standard_error_a_mistake_keeps_its_status(runs: tuple[str, str]) -> None:
    words = ["sh", "-c", 'exec "$0" -c "$1" compare "$2" /nowhere 2>/dev/full', sys.executable, START, runs[0]]
    assert subprocess.run(words, cwd=ROOT, capture_output=True, timeout=240).returncode == 2


def test_signs_that_the_encoding_lacks_are_written_plainly(runs: tuple[str, str]) -> None:
    code = [sys.executable, "-c", START, "compare", *runs]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    shown = subprocess.run(code, cwd=ROOT, capture_output=True, env=environment, text=True, timeout=240).stdout
    assert " -5 % " in shown  # as tolerated; elsewhere with a real minus sign
    assert "?" not in shown


def commands(program: typer.Typer, group: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every command of a program by its name, with the function that Typer calls."""
    for each in program.registered_commands:
        assert each.callback is not None
        yield f"{group}{each.name or each.callback.__name__}", each.callback
    for each in program.registered_groups:
        assert each.typer_instance is not None
        yield from commands(each.typer_instance, f"{each.name or each.typer_instance.info.name} ")


COMMANDS = dict(commands(app))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_crash_in_any_command_has_that_status(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(*args: object, **kwargs: object) -> int:
        raise LookupError("planted")

    monkeypatch.setattr(inspect.unwrap(COMMANDS[name]), "__code__", crash.__code__)
    with pytest.raises(Ended) as ended:
        COMMANDS[name]()
    assert ended.value.exit_code == ExitCode.CRASHED
    assert "LookupError: planted" in capsys.readouterr().err


CRASHES = {
    "in a command": "import harness.commands.compare as c; c.compare_command = None; " + START,
    "before a command": "import harness.commands.cli as c; c.main = None; " + START,
    "while importing": "import sys; sys.modules['harness.commands.cli'] = None; " + START,
    "r2ccl-perf": "import r2ccl_core.perf.cli as c; c.parse_flags = None; c.main()",
    "status": "import r2ccl_core.status.cli as c; c.app = None; c.main()",
}


@pytest.mark.parametrize("where", CRASHES)
def test_a_crash_has_a_status_that_no_result_has(where: str) -> None:
    code = [sys.executable, "-c", CRASHES[where], "compare", "a", "b"]
    ended = subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 70
    assert "Traceback" in ended.stderr
