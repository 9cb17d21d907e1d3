"""The C++ core's own tests, built by CMake: all under AddressSanitizer and UBSan, and under
TSan where `-m long` asks for it.

They wait for timers most of the time, so a few processes, each with a share of them, run side by side.

``plugin_build.py`` says where they are built. ``R2CCL_TEST_SEED`` chooses the random schedules; a failure prints the
seed that repeats it.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from plugin_build import build

SHARDS = 12  # most tests wait for timers, so more than there are cores
SHARD_SECONDS = 400
TAIL_LINES = 200
TEST_LINES = 60  # of each failing test


@dataclass(frozen=True)
class Flavour:
    """One way to build the tests: ``schedules`` chaos schedules are run, fewer where they are slow."""

    name: str
    schedules: int
    marks: tuple[pytest.MarkDecorator, ...] = (pytest.mark.slow,)


FLAVOURS = (
    Flavour("address", 120),
    Flavour("thread", 40, (pytest.mark.slow, pytest.mark.long)),
)


def ends_of(text: str, most: int) -> list[str]:
    """The lines of ``text``; of more than ``most`` those at its beginning and its end."""
    lines = text.splitlines()
    return lines if len(lines) <= most else [*lines[: most // 2], "...", *lines[-most // 2 :]]


def blame(output: str) -> str:
    """What of GoogleTest's ``output`` tells why it failed: first the names of the tests that failed or never ended and
    a sanitizer's one line, as whoever shows this may cut it, then what they said; what came last where none did."""
    tests = re.split(r"(?m)^(?=\[ RUN      \])", output)
    # What follows the last test is no test's.
    tests[-1:] = re.split(r"(?m)^(?=\[----------\] Global test environment tear-down)", tests[-1])
    guilty = [test for test in tests if test.startswith("[ RUN ") and not re.search(r"(?m)^\[ +(OK|SKIPPED) \]", test)]
    names = [test.split("]", 1)[1].split("\n", 1)[0].strip() for test in guilty]
    names += re.findall(r"(?m)^SUMMARY: .*|^.*: runtime error: .*", output)
    if not guilty:
        return "\n".join([*names, *output.splitlines()[-TAIL_LINES:]])
    return "\n".join([*names, *(line for test in guilty for line in ends_of(test, TEST_LINES))])


def run_shard(tests: Path, shard: int, env: dict[str, str]) -> str:
    """Runs every ``SHARDS``-th test in one process; what is wrong, or nothing."""
    sharding = {"GTEST_TOTAL_SHARDS": str(SHARDS), "GTEST_SHARD_INDEX": str(shard), "GTEST_COLOR": "no"}
    with subprocess.Popen(
        [tests], env={**os.environ, **env, **sharding}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=SHARD_SECONDS)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)
            output, _ = process.communicate()
    if process.returncode == 0:
        return ""
    return f"shard {shard} of {SHARDS} ended with {process.returncode}:\n{blame(output)}"


@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is missing (on Debian: apt install cmake)")
@pytest.mark.skipif(shutil.which("c++") is None, reason="a C++ compiler is missing (on Debian: apt install g++)")
@pytest.mark.parametrize(
    "flavour", [pytest.param(flavour, id=flavour.name, marks=flavour.marks) for flavour in FLAVOURS]
)
def test_cpp(flavour: Flavour) -> None:
    """Every GoogleTest of r2ccl_core/native/tests passes in this flavour."""
    tests = build(flavour.name, "r2ccl_tests") / "tests" / "r2ccl_tests"
    env = {
        "R2CCL_TEST_SEED": os.environ.get("R2CCL_TEST_SEED", "1"),
        "R2CCL_TEST_SCHEDULES": str(flavour.schedules),
        "ASAN_OPTIONS": "detect_leaks=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    }
    with ThreadPoolExecutor(SHARDS) as pool:
        wrong = pool.map(lambda shard: run_shard(tests, shard, env), range(SHARDS))
    told = [text for text in wrong if text]
    if told:
        pytest.fail("\n".join(told), pytrace=False)


def test_who_failed_is_said_first() -> None:
    """By name, before anything that may be cut; a sanitizer that speaks after the last test is heard as well."""
    ran = "[ RUN      ] A.Passes\nsays much\n[       OK ] A.Passes (1 ms)\n"
    failed = "[ RUN      ] B.Fails\n" + "much\n" * 500 + "b.cc:1: Failure\n[  FAILED  ] B.Fails (1 ms)\n"
    end = "[----------] Global test environment tear-down\n[  FAILED  ] 1 test, listed below:\n"
    told = blame(ran + failed + ran + end)
    assert told.startswith("B.Fails\n[ RUN") and "b.cc:1: Failure" in told and "says much" not in told
    assert len(told.splitlines()) < 100
    told = blame(ran + failed.partition("b.cc")[0])
    assert told.startswith("B.Fails\n"), "it never ended"
    leak = "=1=ERROR: LeakSanitizer: detected memory leaks\nSUMMARY: AddressSanitizer: 8 byte(s) leaked\n"
    assert blame(ran + end + leak).startswith("SUMMARY: AddressSanitizer: 8 byte(s) leaked\n")
