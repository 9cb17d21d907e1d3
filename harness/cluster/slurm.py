"""The hosts of a Slurm allocation, from the environment that Slurm gives to a job's commands."""

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod

from r2ccl_core.errors import UsageError

MAX_HOSTS = 65_536

_WORD = re.compile(r"[A-Za-z0-9_.-]*")
_RANGES = re.compile(r"\[([0-9,-]+)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z")


def hosts(environ: Mapping[str, str]) -> list[str]:
    """The allocation's hosts in Slurm's order. Raises `UsageError` outside of an allocation."""
    text = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not text:
        raise UsageError("SLURM_JOB_NODELIST is not set; run this inside an allocation (salloc, sbatch)")
    return by_scontrol(text) or expand(text)


def by_scontrol(text: str, which: Callable[[str], str | None] = shutil.which) -> list[str]:
    """The hosts by Slurm's own program; empty if there is no such program or it fails."""
    program = which("scontrol")
    if program is None:
        return []
    try:
        done = subprocess.run([program, "show", "hostnames", text], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.split() if done.returncode == 0 else []


def expand(text: str) -> list[str]:
    """``gpu[01-03,7],login`` as gpu01, gpu02, gpu03, gpu7, login. Raises `UsageError` for an invalid host list."""
    found: list[str] = []
    for part in _parts(text):
        pieces = list(_pieces(part, text))
        if len(found) + prod(map(len, pieces)) > MAX_HOSTS:
            raise UsageError(f"SLURM_JOB_NODELIST: {text[:80]!r} names more than {MAX_HOSTS} hosts")
        found += ("".join(words) for words in product(*pieces))
    return found


def _parts(text: str) -> list[str]:
    """The parts between commas outside of brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text.strip()) if part]


def _pieces(part: str, text: str) -> Iterator[list[str]]:
    """Plain words and ranges in turn, each as the list of its possible values."""
    at = 0
    while at < len(part):
        ranges = _RANGES.match(part, at)
        word = _WORD.match(part, at)
        if ranges is not None:
            yield [number for entry in ranges[1].split(",") for number in _numbers(entry, text)]
            at = ranges.end()
        elif word is not None and word[0]:
            yield [word[0]]
            at = word.end()
        else:
            raise _unread(text)


def _numbers(entry: str, text: str) -> list[str]:
    match = _RANGE.match(entry)
    if match is None:
        raise _unread(text)
    first, last = match[1], match[2] or match[1]
    if not 0 <= int(last) - int(first) < MAX_HOSTS:
        raise _unread(text)
    return [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]


def _unread(text: str) -> UsageError:
    return UsageError(f"SLURM_JOB_NODELIST: {text[:80]!r} is not a host list; write it like 'gpu[01-03,7]'")
