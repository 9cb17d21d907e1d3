"""Reads status files from a folder, as values, and determines whether their processes still live."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from r2ccl_core.errors import R2cclError, UsageError
from r2ccl_core.status import shape

SCHEMA = 1
SILENT_S = 10.0
"""A process whose pid belongs to another namespace is called silent after this many seconds, or five intervals, without
a new version."""


class Life(StrEnum):
    """What is known about the process behind a status file."""

    ALIVE = "alive"
    GONE = "gone"
    SILENT = "silent"
    """On another host or in another pid namespace, and its file has not been renewed for long."""


@dataclass(frozen=True)
class ProcessStatus:
    """One process's file: its path, whether the process lives, and its content."""

    path: Path
    life: Life
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Host, program and pid, for people."""
        process = self.document["process"]
        return f"{process['host']} {process['program']} {process['pid']}"


@dataclass(frozen=True)
class Found:
    """What a folder contains: the readable files, by name, and one line for each file that cannot be read."""

    statuses: tuple[ProcessStatus, ...]
    unread: Mapping[Path, str]


def read_folder(folder: Path, now_s: float) -> Found:
    """Every status file of `folder`. Raises `UsageError` for a folder that cannot be read. A file that disappears
    meanwhile is omitted; one that is damaged or of another schema is reported and hides no other."""
    statuses, unread = [], {}
    for path in listed(folder, ".json"):
        try:
            statuses.append(_read(path, now_s))
        except FileNotFoundError:
            continue
        except R2cclError as error:
            unread[path] = str(error)
    return Found(tuple(statuses), unread)


def listed(folder: Path, ending: str) -> list[Path]:
    """The files of processes in `folder` whose names end this way, by name."""
    try:
        return sorted(p for p in folder.iterdir() if p.name.startswith("r2ccl-") and p.name.endswith(ending))
    except FileNotFoundError:
        raise UsageError(f"{folder}: no such folder; name the one that R2CC_STATUS_DIR names") from None
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name the folder that R2CC_STATUS_DIR names") from error


def _read(path: Path, now_s: float) -> ProcessStatus:
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise R2cclError(f"{path}: cannot be read ({error.strerror}); run this as the user of that process") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise R2cclError(f"{path}: schema {schema!r:.40}, this release reads {SCHEMA}; use the release that wrote it")
    try:
        shape.check(document)
    except ValueError as error:
        raise _damaged(path, error) from error
    return ProcessStatus(path, life_of(document, now_s), document)


def _damaged(path: Path, why: Exception) -> R2cclError:
    return R2cclError(f"{path}: damaged ({why}); remove it if no process writes it, or try --clean")


def life_of(document: Mapping[str, Any], now_s: float, proc: Path = Path("/proc")) -> Life:
    """Whether the process that wrote `document` still runs: by its pid and start time if the pid is of this
    namespace."""
    process = document["process"]
    if process["boot_id"] == _boot_id(proc) and process["pid_namespace"] == _pid_namespace(proc):
        return Life.ALIVE if runs(process["pid"], process["start_ticks"], proc) else Life.GONE
    pause_s = document["config"]["R2CC_STATUS_MS"] / 1e3
    return Life.ALIVE if now_s - document["written_ns"] / 1e9 < max(SILENT_S, 5 * pause_s) else Life.SILENT


def runs(pid: int, start_ticks: int, proc: Path = Path("/proc")) -> bool:
    """Whether the process with this number here is the one that started then."""
    return _start_ticks(proc / str(pid) / "stat") == start_ticks


def _boot_id(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace(proc: Path) -> str:
    return str((proc / "self/ns/pid").readlink())


def _start_ticks(stat: Path) -> int | None:
    try:
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None
