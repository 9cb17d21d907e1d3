"""``harness report`` as a user runs it: one folder or several, shown in a browser, served until Ctrl-C."""

import errno
import html
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from synthetic_run import UNDRAWN, make_run
from typer.testing import CliRunner

from harness.commands.cli import app


def make(folder: Path, seed: int = 1) -> Path:
    return make_run(folder, sizes={1 << 20: 4}, repeats=1, seed=seed)


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *map(str, words)])
    return result.exit_code, result.output


@pytest.mark.usefixtures("undrawn")
def test_several_runs_go_into_one_folder(tmp_path: Path) -> None:
    first, second, out = make(tmp_path / "a"), make(tmp_path / "b", 2), tmp_path / "both"
    status, text = run(first, second, "-o", out)
    assert (status, text.strip()) == (0, str(out / "report.html"))
    assert len(json.loads((out / "summary.json").read_text())["runs"]) == 2


def test_a_report_that_cannot_be_written_is_one_line_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("reports.report.write_report", refused)
    status, text = run(tmp_path)
    line = f"{tmp_path}: the report cannot be written (Permission denied); give another folder with -o DIR"
    assert (status, " ".join(text.split())) == (2, line)


def test_a_folder_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    folder, out = make(tmp_path / "a"), tmp_path / "both"
    (tmp_path / "link").symlink_to(folder)
    for again in (folder, tmp_path / "link"):
        status, text = run(folder, again, "-o", out)
        assert status == 2 and f"{folder} and {again} are the same; give each run once" in " ".join(text.split())
        assert not out.exists()


def test_a_report_among_the_trials_of_a_run_is_refused(tmp_path: Path) -> None:
    """Its files would be taken for trials that cannot be read."""
    folder = make(tmp_path / "a")
    for inside in (folder / "trials", folder / "trials" / "more"):
        before = sorted((folder / "trials").iterdir())
        status, text = run(folder, "-o", inside)
        assert status == 2 and f"is where {folder} has its trials; choose another folder" in " ".join(text.split())
        assert sorted((folder / "trials").iterdir()) == before


@pytest.mark.usefixtures("undrawn")
def test_a_trial_that_cannot_be_read_is_named_on_the_terminal(tmp_path: Path) -> None:
    folder = make(tmp_path)
    broken = sorted((folder / "trials").glob("*/trial.json"))[0]
    broken.write_text("{")
    status, text = run(folder)
    assert status == 0 and (folder / "report.html").exists()
    assert f"warning: {folder.name}/trials/{broken.parent.name}/trial.json: " in text


def test_a_table_that_cannot_be_read_is_named_on_the_terminal_and_the_page(tmp_path: Path) -> None:
    folder = make(tmp_path)
    first, second, _ = sorted((folder / "trials").iterdir())
    (first / "nics.parquet").unlink()
    (second / "events.parquet").touch()
    (second / "watch.parquet").write_bytes(b"PAR1")
    status, text = run(folder)
    assert status == 0
    page = html.unescape((folder / "report.html").read_text(encoding="utf-8"))
    for place, why in (
        (first / "nics.parquet", "no such file"),
        (second / "events.parquet", "broken or cut short"),
        (second / "watch.parquet", "broken or cut short"),
    ):
        line = f"{place.relative_to(tmp_path)}: {why}"
        assert text.count(f"warning: {line}") == 1
        assert page.count(line) == 1


def test_a_report_goes_where_it_is_told(tmp_path: Path) -> None:
    folder, out = make(tmp_path), tmp_path / "elsewhere"
    before = sorted(folder.iterdir())
    assert run(folder, "-o", out)[0] == 0
    assert (out / "figures" / "bandwidth.png").exists()
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("{run}", "{other}"), "add -o DIR"),
        (("{run}", "{other}", "--serve"), "--serve follows one run"),
        (("{run}", "-o", "x", "--serve"), "--serve follows one run"),
        (("nowhere", "--serve"), "give the folder of a run"),
        (("{run}", "nowhere", "-o", "x"), "give the folder of a run"),
        (("{run}", "{cut}", "-o", "x"), "none of its 3 trials can be read"),
        (("{run}", "{newer}", "-o", "x"), "newer than this program"),
        (("{run}", "-o", "{file}"), "not a folder"),
        (("{run}", "-o", "{file}/x"), "cannot be written"),
    ],
)
def test_what_cannot_be_reported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {name: make(tmp_path / name) for name in ("run", "other", "cut", "newer")} | {"file": tmp_path / "file"}
    for path in places["cut"].glob("trials/*/trial.json"):
        path.write_bytes(path.read_bytes()[:-40])
    newer = places["newer"] / "run.json"
    newer.write_text(json.dumps(json.loads(newer.read_text()) | {"schema": 99}))
    places["file"].touch()
    status, text = run(*(word.format(**places) for word in words))
    assert status == 2
    assert told in text
    assert text.count("\n") == 1


def browser(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """An environment whose browser writes down what it is asked to show."""
    script, asked = tmp_path / "browser", tmp_path / "asked"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > {asked}.part && mv {asked}.part {asked}\n')
    script.chmod(0o755)
    return os.environ | {"BROWSER": f"{script} %s"}, asked


def test_open_shows_the_page(tmp_path: Path) -> None:
    folder = make(tmp_path)
    env, asked = browser(tmp_path)
    command = [sys.executable, "-m", "harness.commands.cli", "report", str(folder), "--open"]
    code = f"{UNDRAWN}from harness.commands.cli import main; import sys; sys.argv = {command[2:]!r}; main()"
    subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
    assert asked.read_text() == (folder / "report.html").as_uri()


def test_serve_serves_until_ctrl_c(tmp_path: Path) -> None:
    folder = make(tmp_path)
    env, asked = browser(tmp_path)
    words = ["harness", "report", str(folder), "--serve", "--open"]
    code = f"from harness.commands.cli import main; import sys; sys.argv = {words!r}; main()"
    heeded = ["env", "--default-signal=INT", sys.executable, "-c", code]  # a background job of a shell ignores SIGINT
    served = subprocess.Popen(heeded, env=env, stdout=subprocess.PIPE, text=True)
    assert served.stdout is not None
    (url,) = re.findall(r"^http://127\.0\.0\.1:\d+/", served.stdout.readline())
    with urllib.request.urlopen(url, timeout=240) as answer:
        assert "Summary" in answer.read().decode()
    assert asked.read_text() == url
    served.send_signal(signal.SIGINT)
    rest, _ = served.communicate(timeout=120)
    assert (served.returncode, rest) == (0, "stopped\n")
    assert not (folder / "report.html").exists()
