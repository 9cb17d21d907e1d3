"""Status files from a folder, as values, and whether their processes still live."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from r2ccl_core.errors import R2cclError, UsageError

SCHEMA = 1
SILENT_S = 10.0
"""A process whose pid counts elsewhere is called silent after so many seconds or five pauses without a new version."""


class Life(StrEnum):
    """What is known of the process behind a status file."""

    ALIVE = "alive"
    GONE = "gone"
    SILENT = "silent"
    """Of another host or pid namespace, and its file has not been renewed for long."""


@dataclass(frozen=True)
class ProcessStatus:
    """One process's file: where it lies, whether the process lives, and what the file holds."""

    path: Path
    life: Life
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Host, program and pid, for people."""
        process = self.document["process"]
        return f"{process['host']} {process['program']} {process['pid']}"


def read_folder(folder: Path, now_s: float) -> list[ProcessStatus]:
    """Every status file of `folder`, by name. `UsageError` for a folder that cannot be read; a file that goes away
    meanwhile is left out, a file of another schema is an error that says so."""
    try:
        paths = sorted(folder.glob("r2ccl-*.json"))
        if not folder.is_dir():
            raise UsageError(f"{folder}: no such folder; name the one that R2CC_STATUS_DIR names")
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; name the folder that R2CC_STATUS_DIR names") from error
    return [status for path in paths if (status := _read(path, now_s)) is not None]


def _read(path: Path, now_s: float) -> ProcessStatus | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise R2cclError(f"{path}: cannot be read ({error}); remove it if no process writes it") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise R2cclError(f"{path}: schema {schema}, this release reads {SCHEMA}; use the release that wrote it")
    return ProcessStatus(path, life_of(document, now_s), document)


def life_of(document: Mapping[str, Any], now_s: float, proc: Path = Path("/proc")) -> Life:
    """Whether the process that wrote `document` still runs: by its pid and start time where the pid counts here."""
    process = document["process"]
    if process["boot_id"] == _boot_id(proc) and process["pid_namespace"] == _pid_namespace(proc):
        alive = _start_ticks(proc / str(process["pid"]) / "stat") == process["start_ticks"]
        return Life.ALIVE if alive else Life.GONE
    pause_s = document["config"]["R2CC_STATUS_MS"] / 1e3
    return Life.ALIVE if now_s - document["written_ns"] / 1e9 < max(SILENT_S, 5 * pause_s) else Life.SILENT


def _boot_id(proc: Path) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace(proc: Path) -> str:
    return str((proc / "self/ns/pid").readlink())


def _start_ticks(stat: Path) -> int | None:
    try:
        return int(stat.read_text(errors="replace").rpartition(")")[2].split()[19])
    except (FileNotFoundError, ProcessLookupError):
        return None
