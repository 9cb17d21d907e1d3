"""The command line as its users meet it: completion, versions, colours, folding, output that cannot be written, and
files that never end."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import unicodedata
from contextlib import chdir
from pathlib import Path

import pytest
from synthetic_run import make_run
from typer.testing import CliRunner

from cloudlab import manifest
from cloudlab.errors import ManifestError
from harness.cluster.checks.finding import Finding, Severity
from harness.commands.cli import app
from harness.commands.cluster_check import print_findings
from harness.errors import ExitCode, ExperimentError, InvalidExperimentError, MistakeError
from harness.experiment.examples import found
from harness.experiment.file import load
from harness.sweep.plan import parse_only, plan
from harness.terminal import complain, console, folded, say
from reports.errors import ReportError, SchemaError
from reports.load import counters, load_folder
from reports.rules import load_rules

ROOT = Path(__file__).parents[2]
ALLREDUCE = str(ROOT / "experiments" / "allreduce.toml")
START = "from harness.commands.start import main; main()"


def harness(*words: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", START, *words]
    return subprocess.run(
        argv, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=240, env={**os.environ, **environ}
    )


@pytest.fixture
def on_path(tmp_path: Path) -> str:
    """A PATH on which `harness` is this Python's."""
    program = tmp_path / "harness"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{START}" "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def test_bash_completes_commands_and_options(on_path: str) -> None:
    script = harness("completion", "bash").stdout
    asked = 'COMP_WORDS=({}); COMP_CWORD={}; _harness_completion harness; echo "${{COMPREPLY[@]}}"\n'
    told = subprocess.run(
        ["bash"],
        input=script + asked.format("harness do", 1) + asked.format("harness plan --operat", 2),
        capture_output=True, text=True, timeout=240, env={**os.environ, "PATH": on_path}, check=False,
    )  # fmt: skip
    assert told.stdout.split("\n")[:2] == ["doctor", "--operations"], told.stderr


@pytest.mark.parametrize(
    ("shell", "ask"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "harness do"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "harness do", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_the_other_shells_are_answered_as_their_scripts_ask(shell: str, ask: dict[str, str]) -> None:
    """The shells themselves are not at hand."""
    script = harness("completion", shell).stdout
    assert f"_HARNESS_COMPLETE=complete_{shell}" in script and all(name in script for name in ask)
    assert "doctor" in harness(_HARNESS_COMPLETE=f"complete_{shell}", **ask).stdout


def test_versions_are_told() -> None:
    told = harness("--version")
    assert (told.returncode, bool(re.fullmatch(r"harness \d+\.\d+\S*\n", told.stdout))) == (0, True)
    perf = [sys.executable, "-m", "r2ccl_core.perf", "--version"]
    shown = subprocess.run(perf, capture_output=True, text=True, timeout=240, check=False).stdout
    assert shown == told.stdout.replace("harness", "r2ccl-perf")


@pytest.mark.parametrize(
    "words",
    [
        ["plan"], ["faults"], ["systems", "--json"], ["metrics"], ["sweep", "smoke", "--dry-run"], ["reproduce"],
        ["-h"], ["--version"], ["compare", "--help"], ["cluster", "-h"], ["cluster", "discover", "-h"],
    ],
)  # fmt: skip
def test_what_only_prints_fails_where_that_cannot_be_written(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            [sys.executable, "-c", START, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            check=False,
        )
    assert told.returncode == ExitCode.UNWRITTEN
    assert "cannot be written" in told.stderr


def test_lists_for_programs_have_what_people_read() -> None:
    systems = {one["use"]: one for one in json.loads(harness("systems", "--json").stdout)}
    assert systems["balance"]["mode"] == 2 and systems["forest"]["env"] == {"R2CC_ALGO": "forest"}
    metrics = {one["name"]: one for one in json.loads(harness("metrics", "--json").stdout)}
    assert metrics["slowdown"]["better"] == "lower" and all(one["meaning"] for one in metrics.values())


def on_terminal(*words: str, **environ: str) -> str:
    """What a terminal of 60 columns would show."""
    import fcntl
    import pty
    import struct
    import termios

    primary, secondary = pty.openpty()
    fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    run = subprocess.Popen(
        [sys.executable, "-c", START, *words],
        stdin=secondary, stdout=secondary, stderr=secondary, env={**os.environ, "TERM": "xterm", **environ},
    )  # fmt: skip
    os.close(secondary)
    shown = b""
    try:
        while data := os.read(primary, 65536):
            shown += data
    except OSError:  # the other end is closed
        pass
    os.close(primary)
    assert run.wait(60) == 0
    return shown.decode()


def test_a_terminal_gets_colours_and_lines_that_end_between_words() -> None:
    shown = on_terminal("faults")
    assert "\x1b[1m" in shown
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r", "").split("\n")
    assert max(map(len, lines)) <= 60
    words = set(harness("faults").stdout.split())
    assert {word for line in lines for word in line.split()} <= words  # none is cut
    assert "\x1b[" not in on_terminal("faults", NO_COLOR="1")


def test_a_pipe_gets_neither_unless_columns_says_how_wide() -> None:
    plain, narrow = harness("faults").stdout, harness("faults", COLUMNS="50").stdout
    assert "\x1b" not in plain + narrow
    assert max(map(len, plain.split("\n"))) > 100 and max(map(len, narrow.split("\n"))) <= 50


def test_lists_break_no_word_on_a_narrow_terminal() -> None:
    plain = harness("reproduce").stdout
    for columns in (40, 27):
        narrow = harness("reproduce", COLUMNS=str(columns)).stdout
        assert narrow.split() == plain.split()
        assert max(map(len, narrow.splitlines())) <= columns


def test_findings_break_no_word_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "net.ipv4.tcp_congestion_control is bbr"
    found = [Finding(Severity.WARNING, "tcp", "host0", words, "sysctl -w net.ipv4.tcp_congestion_control=cubic")]
    for columns in ("40", "71", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        print_findings(found, 1)
        shown = capsys.readouterr().out
        assert "net.ipv4.tcp_congestion_control=cubic" in shown and "congestion_control is bbr" in " ".join(
            shown.split()
        )


def test_help_is_as_narrow_as_the_terminal() -> None:
    for command in (["sweep"], ["compare"], ["doctor"], ["cluster", "check"], ["cloudlab", "setup"]):
        shown = harness(*command, "--help", COLUMNS="40").stdout
        assert "Exit status:\n  0 " in shown
        assert max(map(len, shown.split("\n"))) <= 40


def test_a_word_that_is_too_long_stays_whole() -> None:
    path = "/a/" + "very-long/" * 8
    assert folded(f"the report is at {path}", "  ", 40) == f"the report is at\n  {path}"


@pytest.mark.parametrize("name", ["run.json", "trial.json", "nics.parquet"])
def test_a_pipe_in_a_run_folder_is_not_waited_for(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path, repeats=1)
    trial = min(folder.glob("trials/*"))
    place = folder / name if name == "run.json" else trial / name
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    if name == "run.json":
        with pytest.raises(SchemaError, match=r"run\.json: cannot be read: is not a regular file"):
            load_folder(folder)
        return
    run = load_folder(folder)
    if name == "trial.json":
        assert [problem for problem in run.problems if "is not a regular file" in problem]
    else:
        [own] = [one for one in run.trials if run.trial_folder(one) == trial]
        assert "broken or cut short" in str(counters(run, own))


def test_pipes_devices_and_huge_files_are_not_read(tmp_path: Path) -> None:
    pipe, huge = tmp_path / "pipe", tmp_path / "huge"
    os.mkfifo(pipe)
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    for path, remedy in (
        (pipe, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (huge, "larger than"),
    ):
        with pytest.raises(MistakeError, match=remedy):
            load(path)
        with pytest.raises(SchemaError, match="is a file; give the folder of a run"):
            load_folder(path)
        with pytest.raises(ManifestError, match=remedy):
            manifest.load(path)
        with pytest.raises(ReportError, match=remedy):
            load_rules(path)


@pytest.mark.parametrize("text", ["", ",", " "])
def test_a_selection_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(ExperimentError, match="selects nothing; write axis=value, or leave it out"):
        parse_only([text])


def test_a_setting_that_changes_all_systems_says_so() -> None:
    said: list[str] = []
    load(Path(ALLREDUCE), ["system.mode=1"], tell=said.append)
    assert said == [
        "--set system.mode=1 changes 3 entries: failstop, hot_repair, balance; one alone: --set "
        "system[failstop].mode=..."
    ]
    said.clear()
    one = load(Path(ALLREDUCE), ["system[balance].mode=1", "workload.warmup=2"], tell=said.append)
    assert [system.mode for system in one.systems] == [0, 1, 1] and not said
    with pytest.raises(InvalidExperimentError):
        load(Path(ALLREDUCE), ["system.mode=4"], tell=said.append)
    assert not said, "the mistake names the entries"


def test_five_thousand_values_of_an_axis_are_planned_quickly() -> None:
    """A second on an idle core; it was a minute when every point was read from the beginning."""
    values = ",".join(f"0.{number:04d}" for number in range(5000))
    begin_s = time.process_time()
    axis = f'axis=[{{key="fault[0].into", values=[{values}]}}]'
    experiment = load(Path(ALLREDUCE), [axis, "sweep.repeats=1", 'workload.sizes=["8MiB"]'])
    assert len(plan(experiment)) == 15_000
    assert time.process_time() - begin_s < 10


def test_what_looks_like_an_emoji_stays_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    complain("host 192.0.2.1:x: is not an address [red]")
    assert capsys.readouterr().err == "host 192.0.2.1:x: is not an address [red]\n"


OBEYED = "x\x1b[31mRED\x1b[2J\x07\x9b\u202e"
SHOWN = r"x\x1b[31mRED\x1b[2J\x07\x9b\u202e"


def escaped_in(folder: Path, words: list[str]) -> str:
    """What a command says of a mistake, all of which a terminal shows and none of which it obeys."""
    with chdir(folder):
        refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert not [c for c in refused.output if c != "\n" and unicodedata.category(c) in ("Cc", "Cf")]
    return refused.output.replace("\n", "")


@pytest.mark.parametrize(
    "words",
    [
        ["sweep", ALLREDUCE, "--dry-run", "--set", f"{OBEYED}=1"],
        ["sweep", ALLREDUCE, "--dry-run", "--set", f"workload.sizes={OBEYED}"],
        ["sweep", ALLREDUCE, "--dry-run", "--only", f"system={OBEYED}"],
        ["sweep", OBEYED],
        ["compare", OBEYED, OBEYED],
        ["init", "--system", OBEYED],
        ["sweep", f"--{OBEYED}"],
        ["sweep", ALLREDUCE, OBEYED],
        ["completion", OBEYED],
        [OBEYED],
    ],
)
def test_a_terminal_shows_a_wrong_argument_and_does_not_obey_it(tmp_path: Path, words: list[str]) -> None:
    assert SHOWN in escaped_in(tmp_path, words)


@pytest.mark.parametrize("line", ['name = "allreduce"', 'host = "host1"'])
def test_a_terminal_shows_a_mistake_of_a_file_and_does_not_obey_it(tmp_path: Path, line: str) -> None:
    text = Path(ALLREDUCE).read_text()
    assert line in text
    value = json.dumps(f"Zürich-主機{OBEYED}\0")
    (tmp_path / "esc.toml").write_text(text.replace(line, f"{line.split('=')[0]}= {value}", 1))
    assert rf"Zürich-主機{SHOWN}\x00" in escaped_in(tmp_path, ["sweep", "esc.toml", "--dry-run"])


def test_what_is_printed_holds_letters_of_every_language_and_nothing_to_obey(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from rich.table import Table

    said = "Zürich 主機 10\N{NARROW NO-BREAK SPACE}000 é שלום"
    table = Table("name")
    table.add_row(f"{said}{OBEYED}")
    console().print(table)
    say(f"{said}\n{OBEYED}")
    out = capsys.readouterr().out
    assert out.count(said) == 2 and out.count(SHOWN) == 2 and "\x1b" not in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["plan", "--hosts", "x"], "Invalid value for '--hosts': must be a whole number"),
        (["report", ".", "--port", "70000"], "Invalid value for '--port': must be at most 65535"),
        (["completion", "tcsh"], "Invalid value for 'shell': 'tcsh' is not one of 'bash', 'zsh', 'fish'."),
        (["doctor", "192.0.2.1:x"], "HOST: 192.0.2.1:x: is not an address"),
        (["doctor", "@192.0.2.1"], "HOST: @192.0.2.1: names nobody before the @; write user@address"),
        (["doctor", "192.0.2.1:22"], "HOST: 192.0.2.1:22: is not an address"),
        (["sweep", ALLREDUCE, "--dry-run", "--dask", "nowhere"], "--dask nowhere: is not the address of a scheduler"),
        (["plan", "--topology", "/dev/zero"], "/dev/zero: cannot be read (is not a regular file)"),
    ],
)
def test_a_wrong_argument_is_one_line_in_our_words(words: list[str], line: str) -> None:
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert line in refused.output
    assert "Traceback" not in refused.output and "Value error" not in refused.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("sweep smoke --out '' --dry-run", "--out '': is empty; give a value, or leave it out"),
        ("reproduce ''", "'': an argument is empty"),
        ("sweep --dry-run ''", "'': an argument is empty"),
        ("report --serve ''", "'': an argument is empty"),
        ("cluster inventory --no-look ''", "'': an argument is empty"),
        ("report {run} -o ''", "-o '': is empty; give a value, or leave it out"),
        ("cluster discover --key ''", "--key '': is empty; give a value, or leave it out"),
        ("reproduce --run nope", "--run: is of one experiment; give its NAME before it, or leave it out"),
        ("reproduce --fresh", "--fresh: is of one experiment"),
        ("reproduce -o elsewhere", "--out: is of one experiment"),
        ("compare {run} ''", "'': an argument is empty"),
        ("report {loop}", "{loop}/run.json: cannot be read: Too many levels of symbolic links"),
        ("compare {loop} {run}", "{loop}/run.json: cannot be read: Too many levels of symbolic links"),
        ("report {run} -o {loop}", "{loop}: the report cannot be written"),
        ("report {run} --port 8080", "--port 8080: is where --serve listens; add --serve"),
        ("doctor --port 22", "--port: nobody logs in to this machine; leave it out"),
        ("doctor --inventory x --user me", "--user: an inventory says how to log in; leave it out"),
        ("doctor 192.0.2.1 --key {pipe}", "--key {pipe}: is no regular file"),
        ("cluster discover --inventory x --known-hosts {file}", "--known-hosts: an inventory says how to log in"),
        ("cluster inventory --local x --sudo", "--sudo: a local cluster says how to log in"),
        ("simulate trace.et", "trace.et: is neither a SimAI workload nor a Chakra trace; there is no trace.et.0.et"),
        ("simulate /", "/: is neither a SimAI workload nor a Chakra trace"),
        ("export simai {pipe}", "{pipe}: cannot be written (No such device or address); give another file"),
        ("init {pipe} --force", "{pipe}: cannot be written: No such device or address"),
        ("sweep {long}", "{long}: cannot be read: File name too long"),
        ("cluster up {long}", "{long}: cannot be read: File name too long"),
        ("cluster check {long}", "{long}: cannot be read: File name too long"),
        ("simulate {long}", "{long}: is neither a SimAI workload nor a Chakra trace"),
        ("export chakra {long}", "{long}: cannot be written (File name too long); give another folder"),
        ("init {long}.toml --hosts 2", "{long}.toml: cannot be written: File name too long"),
        ("init x.toml --nccl-tests {long}", "--nccl-tests {long}: not a folder"),
        ("doctor 192.0.2.1 --key {long}", "--key {long}: there is no such file"),
        ("compare {long}@a {long}@b", "{cwd}/{long}/run.json: cannot be read: File name too long"),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {name: str(tmp_path / name) for name in ("loop", "pipe", "file", "run")}
    places |= {"long": "x" * 300, "cwd": str(tmp_path)}
    Path(places["loop"]).symlink_to("loop")
    os.mkfifo(places["pipe"])
    Path(places["file"]).touch()
    if "{run}" in words:
        places["run"] = str(make_run(tmp_path, sizes={1 << 20: 4}, repeats=1))
    told = CliRunner().invoke(app, [word.format(**places) for word in shlex.split(words)])
    assert told.exit_code == ExitCode.USAGE, told.output
    assert told.stdout == "" and told.stderr.count("\n") == 1, told.output
    assert told.stderr.startswith(said.format(**places)), told.stderr


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("report x", "x"), ("compare a b", "a"), ("sweep smoke --dry-run --inventory x", "x"),
        ("init y.toml --inventory x", "x"),
    ],
)  # fmt: skip
def test_a_working_folder_that_is_gone_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, name: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    told = CliRunner().invoke(app, shlex.split(words))
    assert told.exit_code == ExitCode.USAGE
    assert told.stderr == f"{name}: the folder in which this runs is gone; change to one that exists\n"


@pytest.mark.parametrize(("stop", "status"), [("SIGINT", 0), ("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_cluster_that_is_up_ends_with_the_status_of_its_signal(stop: str, status: int) -> None:
    """Ctrl-C is its usual end."""
    noop = ('cluster={kind="noop", hosts=2, nics=2}', "fault=[]", "workload.backend=noop")
    words = ["cluster", "up", "smoke", *(word for change in noop for word in ("--set", change))]
    with subprocess.Popen([sys.executable, "-c", START, *words], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert any(line.startswith("up; ") for line in running.stdout)
        running.send_signal(getattr(signal, stop))
        assert running.wait(60) == status


def test_a_bare_name_is_the_experiments_even_where_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root of a checkout has the package faults/ and experiments/faults.toml."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "faults").mkdir()
    assert found(Path("faults")) == ROOT / "experiments" / "faults.toml"
    for own in (Path("faults.toml"), tmp_path / "faults", Path("other")):
        own.mkdir(exist_ok=True)
        assert found(own) == own
    (tmp_path / "allreduce").touch()
    assert found(Path("allreduce")) == Path("allreduce")
