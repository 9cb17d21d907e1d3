"""Which lock guards what, as the compiler proves it: Clang's -Wthread-safety over the C++ core, as an error.

The words for it are in ``base/mutex.h``; GCC, which builds the core, does not know them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "r2ccl_core" / "native"
FOLDERS = ("base", "net", "failover", "transport", "wire/tcp")
FILES = [
    NATIVE / "plugin" / "plugin.cc",
    *(file for folder in FOLDERS for file in sorted((NATIVE / folder).glob("*.cc"))),
]
CLANG = shutil.which("clang++")
pytestmark = pytest.mark.skipif(CLANG is None, reason="no clang++ here: apt-get install clang")


def check(file: Path, tree: Path = NATIVE) -> str:
    """What the compiler has to say of it; nothing where it is right."""
    words = ["-std=c++20", "-fsyntax-only", "-Wthread-safety", "-Werror=thread-safety", '-DR2CCL_VERSION="0"']
    assert CLANG is not None
    done = subprocess.run(
        [CLANG, *words, "-I", str(tree), "-I", str(NATIVE), str(file)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.slow
def test_what_locks_guard_is_touched_under_them(tmp_path: Path) -> None:
    """Every file of the core that threads run through: all at once, which takes a tenth of the time, and where that
    says anything, each by itself."""
    together = tmp_path / "together.cc"
    together.write_text("".join(f'#include "{file}"\n' for file in FILES))
    if not check(together):
        return
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = [words for words in pool.map(check, FILES) if words]
    assert not said, "\n".join(said)


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        (
            "base/event_log.cc",
            "  MutexLock lock(mutex_);\n  return total_;",
            "  return total_;",
            "reading variable 'total_'",
        ),
        (
            "failover/comm_watch.cc",
            "int64_t Comm::Tick(int64_t now_ns) {\n  MutexLock lock(mutex_);\n",
            "int64_t Comm::Tick(int64_t now_ns) {\n",
            "calling function 'EmptyInbox' requires holding mutex 'mutex_'",
        ),
    ],
)
def test_a_lock_that_is_not_taken_is_refused(tmp_path: Path, file: str, old: str, new: str, says: str) -> None:
    """The negative control: one line less, and the compiler names what is not guarded."""
    text = (NATIVE / file).read_text()
    assert text.count(old) == 1
    (tmp_path / Path(file).name).write_text(text.replace(old, new))
    said = check(tmp_path / Path(file).name)
    assert "-Wthread-safety" in said
    assert says in said
