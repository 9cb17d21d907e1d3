"""The origin of a run: commit, source, versions, machine, and the command that repeats it."""

import hashlib
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGES = ("r2ccl", "numpy", "fabric", "pyroute2", "pydantic", "pandas", "pyarrow", "torch")

SOURCES = ("harness", "faults", "reports", "r2ccl_core")
"""The packages whose files determine trials and their records."""


def collect(argv: Sequence[str]) -> dict[str, Any]:
    """The provenance of a run that the command line `argv` started, as JSON values."""
    root = Path(__file__).parents[2]
    return {
        "commit": _git(root, "rev-parse", "HEAD"),
        "dirty": _dirty(root),
        "source": source_digest(root),
        "command": shlex.join(argv),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "platform": platform.platform(),
        "executable": sys.executable,
    }


def source_digest(root: Path) -> str:
    """The digest of all Python files of the packages in `root`, and of the native core: equal for equal programs."""
    digest = hashlib.sha256()
    native = find_spec("r2ccl_core._native")
    files = {str(path.relative_to(root)): path for package in SOURCES for path in (root / package).rglob("*.py")}
    files |= {"native": Path(native.origin)} if native is not None and native.origin is not None else {}
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _git(root: Path, *words: str) -> str | None:
    """The output of a git command in the source tree; None if there is no git or no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _dirty(root: Path) -> bool | None:
    changes = _git(root, "status", "--porcelain")
    return None if changes is None else bool(changes)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
