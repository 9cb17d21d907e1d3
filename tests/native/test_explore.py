"""The connections that ship, in a simulated network that fails: fresh seeds at every run.

The seeds begin where the clock says, so that no two runs of the gate look at the same ones; ``R2CCL_EXPLORE_SECONDS``
makes it longer. A broken rule prints the seed, the least scenario that breaks it, and the command that repeats it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

EXPLORE = shutil.which("r2ccl-explore", path=str(Path(sys.executable).parent))
pytestmark = pytest.mark.skipif(EXPLORE is None, reason="r2ccl-explore is not beside this Python")


def explore(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs it, and keeps what it says."""
    assert EXPLORE is not None
    return subprocess.run([EXPLORE, *words], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fresh_seeds_break_no_rule() -> None:
    """Every byte lands once, every request ends, nothing is lost without a cause, and nothing is left."""
    seconds = float(os.environ.get("R2CCL_EXPLORE_SECONDS", "60"))
    first = int(time.time()) * 1_000_000
    done = explore("--seconds", str(seconds), "--first", str(first), "--jobs", str(os.cpu_count() or 1))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = re.match(r"(\d+) runs", done.stdout)
    assert runs and int(runs.group(1)) > 20 * seconds


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_trouble_at_every_moment() -> None:
    """Of two hosts with two NICs, in every mode: what random seeds need not meet."""
    done = explore("--every", "1", "--jobs", str(os.cpu_count() or 1))
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = re.search(r"^(\d+) of (\d+) cases$", done.stdout, re.MULTILINE)
    assert cases and int(cases.group(1)) == int(cases.group(2)) > 5000


def test_one_seed_is_told_and_repeats() -> None:
    """The same words twice, and a log of what the processes noticed."""
    once, again = explore("--seed", "9"), explore("--seed", "9")
    assert once.returncode == 0
    assert once.stdout == again.stdout
    assert "path_up" in once.stdout
    assert once.stdout.rstrip().splitlines()[-1].startswith("right:")


@pytest.mark.parametrize("words", [["--seconds"], ["--seconds", "x"], ["--jobs", "0"], ["--what"], ["--runs", "-1"]])
def test_bad_words_are_refused(words: list[str]) -> None:
    """One line of usage, and status 2."""
    done = explore(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: r2ccl-explore")
