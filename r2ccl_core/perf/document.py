"""The file of ``-J``: the table's content, every iteration's time, and what was run, in one JSON document.

It contains the command and the release, but nothing else of the environment.
"""

import json
import shlex
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from r2ccl_core.perf.flags import Flags
from r2ccl_core.perf.table import Result, average_busbw
from r2ccl_core.text_file import write_text

SCHEMA = 1


def write(path: Path, flags: Flags, argv: Sequence[str], mode: int, ranks: int, results: Sequence[Result]) -> None:
    """Writes the document to `path`."""
    document = {
        "schema": SCHEMA,
        "command": shlex.join(["r2ccl-perf", *argv]),
        **_source(),
        "collective": flags.collective,
        "ranks": ranks,
        "mode": mode,
        "iterations": flags.iters,
        "warmup": flags.warmup,
        "results": [_row(result) for result in results],
        "wrong": sum(result.wrong or 0 for result in results),
        "average_busbw_gbs": average_busbw(results),
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def _row(result: Result) -> dict[str, Any]:
    return {
        "size_bytes": result.case.size_bytes,
        "count": result.case.count,
        "dtype": result.case.dtype,
        "op": result.case.shown_op,
        "root": result.case.shown_root,
        "place": result.place,
        "time_us": result.time_s * 1e6,
        "algbw_gbs": result.algbw(),
        "busbw_gbs": result.busbw(),
        "wrong": result.wrong,
        "started_ns": list(result.started_ns),
        "times_us": [time_s * 1e6 for time_s in result.times_s],
    }


def _source() -> dict[str, Any]:
    """The release; in a source tree also the commit, and whether the tree differs from it."""
    try:
        release = version("r2ccl")
    except PackageNotFoundError:
        release = None
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no", "--", ".")
    return {"release": release, "commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(*words: str) -> str | None:
    """What git says about the tree in which this file is tracked; None if there is none."""
    here = Path(__file__)
    try:
        subprocess.run(["git", "-C", here.parent, "ls-files", "--error-unmatch", here], capture_output=True, check=True)
        answer = subprocess.run(["git", "-C", here.parents[2], *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()
