"""Builds the net plugin and the C programs that load it as NCCL does, plain and under the sanitizers.

The build folders are those of ``test_native.py``, ``build/native-tests/<flavour>``, configured without GoogleTest where
they do not exist yet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "r2ccl_core" / "native"
BUILDS = ROOT / "build" / "native-tests"
PLUGIN = "libnccl-net-r2ccl.so"
JOBS = str(max(2, os.cpu_count() or 2))
SANITIZER = {"plain": "", "address": "address,undefined", "thread": "thread"}
FLAGS = {"plain": "-O2", "address": "-O1 -g1", "thread": "-O1 -g1"}
SANITIZER_OPTIONS = {
    # The interceptor of dynamic thread-local storage crashes the leak check after a dlclose.
    "ASAN_OPTIONS": "detect_leaks=1:intercept_tls_get_addr=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
MARKS = [
    pytest.mark.timeout(600),
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


def build_plugin(flavour: str) -> Path:
    build = BUILDS / flavour
    if not any((build / made).exists() for made in ("build.ninja", "Makefile")):
        must(
            "cmake",
            *(["-G", "Ninja"] if shutil.which("ninja") else []),
            "-S",
            SOURCE,
            "-B",
            build,
            "-DR2CCL_PYTHON=OFF",
            "-DR2CCL_TESTS=OFF",
            "-DCMAKE_BUILD_TYPE=Debug",
            f"-DCMAKE_CXX_FLAGS_DEBUG={FLAGS[flavour]}",
            f"-DR2CCL_SANITIZE={SANITIZER[flavour]}",
        )
    must("cmake", "--build", build, "--target", "nccl-net-r2ccl", "--parallel", JOBS)
    return build / PLUGIN


def build_program(flavour: str, *sources: str) -> Path:
    """C99 and nothing of ours but the C files, named after the first: the plugin is seen through its tables alone."""
    sanitize = [f"-fsanitize={SANITIZER[flavour]}"] if SANITIZER[flavour] else []
    BUILDS.joinpath(flavour).mkdir(parents=True, exist_ok=True)
    program = BUILDS / flavour / Path(sources[0]).stem
    files = [SOURCE / "tests" / name for name in sources]
    flags = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-g", *sanitize)
    must("gcc", *flags, *files, "-ldl", "-lpthread", "-o", program)
    return program
