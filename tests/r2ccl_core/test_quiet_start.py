"""An interrupt while a program is imported ends it quietly."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERRUPTED = """
import builtins, os, signal, sys
{first}
real = builtins.__import__
def interrupted(name, *rest):
    if name == {module!r}:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)
builtins.__import__ = interrupted
from {package}.start import main
main()
"""
PROGRAMS = [
    ("harness.commands", "r2ccl_core.output"),
    ("harness.commands", "typer"),
    ("r2ccl_core.perf", "numpy"),
    ("r2ccl_core.status", "typer"),
]


def ended(package: str, module: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """A program that Ctrl-C reaches when it is about to import `module`."""
    code = [sys.executable, "-c", INTERRUPTED.format(first=first, module=module, package=package), "--help"]
    return subprocess.run(code, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.mark.parametrize(("package", "module"), PROGRAMS)
def test_an_interrupt_during_the_imports_shows_no_traceback(package: str, module: str) -> None:
    done = ended(package, module)
    assert (done.returncode, done.stderr, done.stdout) == (-signal.SIGINT, "", "")  # 130 in a shell


def test_a_background_job_goes_on_ignoring_interrupts() -> None:
    done = ended("r2ccl_core.perf", "numpy", "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert done.returncode == 0
    assert "usage: r2ccl-perf" in done.stdout
