"""Builds the C++ core's tests, the net plugin and the C programs that load it as NCCL does, under sanitizers; the plain
plugin is the installed one.

The build folders lie under ``build/native-tests`` (git-ignored) and are kept, so a second run compiles only what
changed. Each file of the core is compiled once a flavour, whoever asks; one builds at a time, on all processors.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r2ccl_core.native import plugin_path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "r2ccl_core" / "native"
BUILDS = ROOT / "build" / "native-tests"
PLUGIN = "libnccl-net-r2ccl.so"
JOBS = str(max(2, os.cpu_count() or 2))
UNITY_FILES = 12
SANITIZER = {"plain": "", "address": "address,undefined", "thread": "thread"}
# Optimising what AddressSanitizer and UBSan add to the code takes as long as all else that the compiler does with it.
OPTIMISE = {"plain": "-O1", "address": "-O0", "thread": "-O1"}
# Clang takes half of GCC's time for what AddressSanitizer and UBSan add, and sees more uses of variables after their
# scope. What is installed is GCC's, whose warnings end the installation (harness/setup.sh).
GNU, CLANG = ("gcc", "c++"), ("clang", "clang++")
COMPILERS = {"plain": GNU, "address": CLANG if all(map(shutil.which, CLANG)) else GNU, "thread": GNU}
"""Of C and of C++, of one maker: what the plugin and the program that loads it share is the sanitizer's library."""
SANITIZED = ["address", pytest.param("thread", marks=pytest.mark.long)]
"""ThreadSanitizer needs a build of the whole core of its own, and its programs take several times as long."""
SANITIZER_OPTIONS = {
    # The interceptor of dynamic thread-local storage crashes the leak check after a dlclose.
    "ASAN_OPTIONS": "detect_leaks=1:intercept_tls_get_addr=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
MARKS = [
    pytest.mark.timeout(1800),
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is missing (on Debian: apt install cmake)"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="a C++ compiler is missing (on Debian: apt install g++)"),
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is missing (on Debian: apt install gcc)"),
]


def run(*argv: str | Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(arg) for arg in argv],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def must(*argv: str | Path) -> str:
    """What ``argv`` printed; fails the test with it when ``argv`` fails."""
    done = run(*argv)
    if done.returncode != 0:
        pytest.fail(f"{argv[0]} failed (exit {done.returncode}):\n{done.stdout[-6000:]}", pytrace=False)
    return done.stdout


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Tests run in several processes; two compilers a processor would only take the memory of two."""
    BUILDS.mkdir(parents=True, exist_ok=True)
    with (BUILDS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def configure(flavour: str, *, tests: bool) -> subprocess.CompletedProcess[str]:
    folder, compiler = BUILDS / flavour, shutil.which(COMPILERS[flavour][1])
    cache = folder / "CMakeCache.txt"
    if cache.exists() and f"={compiler}\n" not in cache.read_text():
        cache.unlink()  # CMake forgets what it is told beside another compiler
        shutil.rmtree(folder / "CMakeFiles", ignore_errors=True)
    return run(
        "cmake",
        *(["-G", "Ninja"] if shutil.which("ninja") else []),
        "-S",
        SOURCE,
        "-B",
        folder,
        "-DR2CCL_PYTHON=OFF",
        "-DR2CCL_CUDA=OFF",  # nothing of it is tested here, and finding its compiler takes longer than all else of this
        f"-DR2CCL_TESTS={'ON' if tests else 'OFF'}",
        "-DCMAKE_BUILD_TYPE=Debug",
        "-DCMAKE_COMPILE_WARNING_AS_ERROR=ON",
        f"-DCMAKE_CXX_FLAGS_DEBUG={OPTIMISE[flavour]}",
        f"-DR2CCL_SANITIZE={SANITIZER[flavour]}",
        f"-DCMAKE_CXX_COMPILER={compiler}",
        "-DCMAKE_UNITY_BUILD=ON",  # half of the compiler's time is standard headers
        f"-DCMAKE_UNITY_BUILD_BATCH_SIZE={UNITY_FILES}",
    )


def build(flavour: str, target: str) -> Path:
    """Builds ``target`` and what it needs; where that is. Skips tests of C++ where there is no GoogleTest."""
    with one_at_a_time():
        done = configure(flavour, tests=True)
        if done.returncode != 0 and "GTest" in done.stdout:
            if target == "r2ccl_tests":
                pytest.skip("GoogleTest is missing (on Debian: apt install libgtest-dev)")
            done = configure(flavour, tests=False)
        if done.returncode != 0:
            pytest.fail(f"cmake failed:\n{done.stdout[-6000:]}", pytrace=False)
        # Behind the tests that are under way, some of which watch real networks fail.
        must("nice", "-n", "5", "cmake", "--build", BUILDS / flavour, "--target", target, "--parallel", JOBS)
    return BUILDS / flavour


def build_plugin(flavour: str) -> Path:
    if not SANITIZER[flavour]:
        return plugin_path()
    return build(flavour, "nccl-net-r2ccl") / PLUGIN


def build_program(flavour: str, *sources: str) -> Path:
    """C99 and nothing of ours but the C files, named after the first: the plugin is seen through its tables alone."""
    sanitize = [f"-fsanitize={SANITIZER[flavour]}"] if SANITIZER[flavour] else []
    BUILDS.joinpath(flavour).mkdir(parents=True, exist_ok=True)
    program = BUILDS / flavour / Path(sources[0]).stem
    files = [SOURCE / "tests" / name for name in sources]
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-g", *sanitize)
    with one_at_a_time():
        must(COMPILERS[flavour][0], *flags, *files, "-ldl", "-lpthread", "-o", program)
    return program
