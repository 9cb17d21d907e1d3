"""PARAMETERS.md stays true: its tables are made from params.h, and no variable that the code names is missing."""

import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load

from harness.systems.catalogue import GIVE_UP, GIVE_UP_MS
from harness.systems.damping import DEFAULTS, PENALTY

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return load(ROOT / "tests" / "parameters.py")


def test_every_entry_of_the_header_is_read(script: ModuleType) -> None:
    """Counted another way than the script reads them."""
    header = script.HEADER.read_text()
    listed = script.parameters(header)
    assert {p.name for p in listed} >= set(re.findall(r'^  X\(\w+, "(\w+)"', header, re.MULTILINE))
    others = script.others(header)
    assert [o.name for o in others] == re.findall(r'^  X\("(\w+)"', header, re.MULTILINE)
    assert len(listed) + len(others) == len(re.findall(r"^  X\(", header, re.MULTILINE)) >= 13
    assert all(o.reader and o.meaning for o in others)
    assert all(p.meaning for p in listed)
    assert all(int(p.low) <= int(p.default) <= int(p.high) for p in listed if p.high)
    assert [p.name for p in listed if not p.high] == re.findall(r'^  X\(\w+, "(\w+)", "', header, re.MULTILINE)


def test_the_dry_run_knows_when_the_core_gives_up(script: ModuleType) -> None:
    (entry,) = (p for p in script.parameters(script.HEADER.read_text()) if p.name == GIVE_UP)
    assert int(entry.default) == GIVE_UP_MS


def test_the_dry_run_knows_how_the_core_holds_nics_back(script: ModuleType) -> None:
    told = {p.name: int(p.default) for p in script.parameters(script.HEADER.read_text()) if "_FLAP_" in p.name}
    assert told == DEFAULTS
    (penalty,) = re.findall(r"kFlapPenalty = (\d+);", (script.HEADER.parents[1] / "failover" / "damping.h").read_text())
    assert float(penalty) == PENALTY


def test_a_meaning_of_two_lines_is_one_text(script: ModuleType) -> None:
    header = (
        '#define R2CCL_PARAMS(X)  \\\n  X(a_ms, "R2CC_A_MS", 1, 0, 2,  \\\n    "first"  \\\n    " second")\n\nX(no)'
    )
    assert script.parameters(header) == [("R2CC_A_MS", "1", "0", "2", "first second")]


def test_the_tables_are_up_to_date(script: ModuleType) -> None:
    made = script.tables(script.HEADER.read_text())
    assert script.written(script.DOCUMENT.read_text()) == made, "run: python tests/parameters.py --write"


def test_every_variable_that_the_code_names_is_documented(script: ModuleType) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "r2ccl_core"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    sources = [ROOT / path for path in tracked if path.endswith((".py", ".h", ".cc")) and "/tests/" not in path]
    if not sources:
        pytest.skip("needs a git checkout to tell which files are sources")
    named = {name for path in sources if path.exists() for name in re.findall(r"\bR2CC_[A-Z0-9_]+\b", path.read_text())}
    documented = set(re.findall(r"R2CC_[A-Z0-9_]+", script.DOCUMENT.read_text()))
    assert named - documented == set()
