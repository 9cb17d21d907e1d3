"""The healer: a detached process that undoes one fault. A stand-alone file, sent to a host and run there.

Its first line of standard input is its task, JSON: {"ttl_s", "heal", "repeat", "beside", "journal"}. It writes the
journal, which says what is to be undone, and answers "armed". After "go" it starts the programs of `beside`, answers
"going" when each has written a line, and runs the commands of `repeat`, each after its pause, over and over.

It heals when its input ends (the agent asks for it, or is gone in whatever way), when its time to live is over, and
on SIGTERM; then it removes the journal and says when that was and what failed. A command with a '-' before its
first word may fail.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

COMMAND_S = 30
BESIDE_S = 2


class Healer:
    """One task."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.end = time.monotonic() + task["ttl_s"]
        self.beside: list[subprocess.Popen[bytes]] = []

    def write_journal(self) -> None:
        """There whole or not at all; process number and start time tell this process from all others."""
        path = Path(self.task["journal"])
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        entry = {"pid": os.getpid(), "ticks": ticks, "heal": self.task["heal"], "since_s": time.time()}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(entry))
        part.replace(path)

    def live(self) -> None:
        """Until it is time to heal."""
        os.write(1, b"armed\n")
        if not self.asked(self.task["ttl_s"]) or read_line() != b"go\n":
            return
        for argv in self.task["beside"]:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.beside.append(process)
            assert process.stdout is not None
            if not process.stdout.readline():
                return
        os.write(1, b"going\n")
        while self.task["repeat"]:
            for pause_s, argv in self.task["repeat"]:
                if self.asked(pause_s) or time.monotonic() >= self.end:
                    return
                run(argv)
        self.asked(self.task["ttl_s"])

    def asked(self, seconds: float) -> bool:
        """Waits for something on standard input, at most until the time to live is over."""
        return bool(select.select([0], [], [], max(0.0, min(seconds, self.end - time.monotonic())))[0])

    def heal(self) -> list[list[Any]]:
        """Undoes everything; what failed. The journal stays as long as something is not undone."""
        for process in self.beside:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(BESIDE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        failed = [failure for argv in self.task["heal"] for failure in run(argv)]
        if not failed:
            Path(self.task["journal"]).unlink(missing_ok=True)
        return failed


def read_line() -> bytes:
    """One line, and no byte more; empty at the end."""
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return b""
        text += byte
    return text


def run(argv: list[str]) -> list[list[Any]]:
    """Runs one command; empty, or why it failed."""
    lenient, argv = argv[0].startswith("-"), [argv[0].lstrip("-"), *argv[1:]]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=null, stdout=null, stderr=subprocess.PIPE, timeout=COMMAND_S, check=False)
        code, said = done.returncode, done.stderr.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as e:
        code, said = 127, str(e)
    return [[argv, code, said]] if code and not lenient else []


def leave(*_: object) -> None:
    """On SIGTERM."""
    raise SystemExit


def main() -> None:
    """From the task to the report."""
    healer = Healer(json.loads(read_line()))
    healer.write_journal()
    signal.signal(signal.SIGTERM, leave)
    with suppress(SystemExit):
        healer.live()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    failed = healer.heal()
    try:
        os.write(1, json.dumps({"t_ns": time.time_ns(), "failed": failed}).encode() + b"\n")
    except OSError:
        sys.exit(1)


if __name__ == "__main__":
    main()
