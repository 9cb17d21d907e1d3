"""The healer: a detached process that undoes one fault. A stand-alone file, sent to a host and run there.

Its first line of standard input is its task, JSON: {"ttl_s", "heal", "repeat", "beside", "journal", "priority"}. It
writes the journal, which records the heal commands, and starts the programs of `beside`. When each has written a line,
it answers "armed" and the time at which its time to live ends (CLOCK_MONOTONIC, in seconds). After "go" it passes that
line on to them, answers "going" when each has written another, and runs the commands of `repeat`, each after its pause,
over and over.

It heals when its input ends (on the agent's request, or because the agent is gone for any reason), when its time to
live is over, on SIGTERM, and when anything else goes wrong. Then it removes the journal and reports when it healed and
which commands failed. The journal stays if a heal command failed. A command with a '-' before its first word may fail.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

COMMAND_S = 30
BESIDE_S = 2
GO = b"go\n"


class Healer:
    """One task. `failed` holds every failed command: its words, its exit status, its output."""

    def __init__(self, task: Any, woken: int) -> None:
        self.task, self.woken = task, woken
        self.end = time.monotonic() + task["ttl_s"]
        self.beside: list[subprocess.Popen[bytes]] = []
        self.failed: list[list[Any]] = []

    def write_journal(self) -> None:
        """Writes the whole journal or none; process number and start time identify this process among all others."""
        path = Path(self.task["journal"])
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        entry = {"pid": os.getpid(), "ticks": ticks, "heal": self.task["heal"], "since_s": time.time()}
        part = path.with_suffix(".part")
        part.write_text(json.dumps(entry))
        part.replace(path)

    def live(self) -> None:
        """Runs until it is time to heal."""
        self.beside = [self.started(argv) for argv in self.task["beside"]]
        if not all(map(self.says, self.beside)):
            return
        os.write(1, b"armed %r\n" % self.end)
        if not self.asked(self.task["ttl_s"]) or not is_ready(0) or read_line() != GO:
            return
        for process in self.beside:
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(GO)
                process.stdin.flush()
        if all(map(self.says, self.beside)):
            os.write(1, b"going\n")
            self.go_on()

    def started(self, argv: list[str]) -> subprocess.Popen[bytes]:
        """Starts a program of `beside`, at the usual priority: it competes with ranks, unlike the healer itself."""
        pipe, usual = subprocess.PIPE, partial(os.setpriority, os.PRIO_PROCESS, 0, self.task["priority"])
        return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, preexec_fn=usual)

    def says(self, process: subprocess.Popen[bytes]) -> bool:
        """Whether a program of `beside` writes its next line before it is time to heal."""
        assert process.stdout is not None and process.stderr is not None
        if self.asked(self.task["ttl_s"], process.stdout.fileno()) and is_ready(process.stdout.fileno()):
            if process.stdout.readline():
                return True
            said = process.stderr.read().decode("utf-8", "replace")
            self.failed.append([process.args, process.wait(BESIDE_S), said])
        return False

    def go_on(self) -> None:
        """Runs the repeating commands. A failing one is reported at the end, once, and tried again in its turn."""
        while self.task["repeat"]:
            for pause_s, argv in self.task["repeat"]:
                if self.asked(pause_s) or time.monotonic() >= self.end:
                    return
                self.failed = self.failed or run(argv)
        self.asked(self.task["ttl_s"])

    def asked(self, seconds: float, *also: int) -> bool:
        """Waits for standard input, a signal, or `also`, at most until the time to live is over."""
        limit_s = max(0.0, min(seconds, self.end - time.monotonic()))
        return bool(select.select([0, self.woken, *also], [], [], limit_s)[0])

    def heal(self) -> None:
        """Runs every heal command, even after one failed. The journal stays as long as something is not undone."""
        for process in self.beside:
            assert process.stdin is not None
            process.stdin.close()
        for process in self.beside:
            try:
                process.wait(BESIDE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        failed = [failure for argv in self.task["heal"] for failure in run(argv)]
        if not failed:
            with suppress(FileNotFoundError):
                Path(self.task["journal"]).unlink()
        self.failed += failed


def is_ready(fd: int) -> bool:
    """Whether it can be read without waiting."""
    return bool(select.select([fd], [], [], 0)[0])


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
    """Runs one command; returns an empty list, or the reason of its failure."""
    lenient, argv = argv[0].startswith("-"), [argv[0].lstrip("-"), *argv[1:]]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=null, stdout=null, stderr=subprocess.PIPE, timeout=COMMAND_S, check=False)
        code, said = done.returncode, done.stderr.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as e:
        code, said = 127, str(e)
    return [[argv, code, said]] if code and not lenient else []


def main() -> None:
    """From the task to the report. No error in between keeps it from healing."""
    woken, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    healer = Healer(json.loads(read_line()), woken)
    healer.write_journal()
    try:
        healer.live()
    except Exception as e:
        healer.failed.append([["healer"], 1, f"{type(e).__name__}: {e}"])
    healer.heal()
    with suppress(OSError):  # the reader may be gone
        os.write(1, json.dumps({"t_ns": time.time_ns(), "failed": healer.failed}).encode() + b"\n")


if __name__ == "__main__":
    main()
