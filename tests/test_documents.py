"""The documents stay true: the file map is what the files say of themselves, the site builds, no link is broken."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load

from harness.errors import ExitCode
from harness.experiment.file import load as load_experiment

ROOT = Path(__file__).resolve().parent.parent


def load_file_map() -> ModuleType:
    return load(Path(__file__).with_name("file_map.py"))


def test_every_source_file_says_what_it_is_for() -> None:
    file_map = load_file_map()
    silent = [path for path in file_map.source_files() if not file_map.first_sentence(path)]
    assert not silent


def test_the_file_map_is_up_to_date() -> None:
    file_map = load_file_map()
    assert file_map.written() == file_map.file_map(), "run: python tests/file_map.py --write"


@pytest.mark.parametrize(("document", "most"), [("README.md", 120), ("ARCHITECTURE.md", 250)])
def test_who_comes_first_finds_a_page_not_a_book(document: str, most: int) -> None:
    assert len((ROOT / document).read_text().splitlines()) <= most


def test_links_between_documents_lead_somewhere() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    broken = []
    for path in listed.stdout.split():
        text = re.sub(r"```.*?```", "", (ROOT / path).read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
            if "://" not in target and not (ROOT / path).parent.joinpath(target).exists():
                broken.append(f"{path}: {target}")
    assert listed.stdout and not broken


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="mkdocs-material is missing (pip install -e '.[docs]')")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        build, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "reference" / "commands" / "index.html").read_text()
    assert "harness cluster discover" in commands and "--dry-run" in commands


def test_the_failure_of_ones_own_in_the_tutorial_is_an_experiment(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorial.md").read_text().partition("## A failure of your own")[2].partition("\n## ")[0]
    (changed,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    name, fault = changed.split("\n\n", 1)
    smoke = (ROOT / "experiments" / "smoke.toml").read_text()
    own = re.sub(r"(?m)^name = .*", name, smoke, count=1)
    own = re.sub(r"\[\[fault\]\].*?(?=\n\[)", lambda _: fault, own, count=1, flags=re.DOTALL)
    (tmp_path / "mine.toml").write_text(own)
    experiment = load_experiment(tmp_path / "mine.toml")
    assert [each.kind for each in experiment.faults] == ["blackhole"]
    runs = re.findall(r"runs/(\w+)-\.\.\.", text)
    assert set(runs) == {"smoke", experiment.name, "allreduce"}
    assert not re.search(r"harness compare runs/smoke\S* runs/mine", text), "their faults differ: no case is in both"


def test_every_exit_status_is_documented() -> None:
    rows = re.findall(r"(?m)^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "reference" / "index.md").read_text())
    assert rows == [(str(int(status)), status.meaning) for status in ExitCode]
