"""Faults on a host: armed with a detached healer first, then fired, then healed. Part of the agent, sent with it.

The healer (`harness.hosts.healer`) outlives the agent, the SSH session and the harness. If it is killed, too, its
journal still records the heal commands, and `harness clean --cluster` runs them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035  (old hosts: Python 3.8)

LEAVE_S = 30.0
"""How long a healer may take to heal on request."""

COMMAND_S = 30.0
"""How long one command may take."""


class RefusedError(Exception):
    """A request that cannot be fulfilled; `fields` go into the reply."""

    def __init__(self, kind: str, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = dict(fields, kind=kind, error=message)


def failed_command(argv: list[str], returncode: int, stderr: str) -> RefusedError:
    """The reply for a failed command."""
    return RefusedError("command", "command failed", argv=argv, returncode=returncode, stderr=stderr)


@contextmanager
def urgently() -> Iterator[int]:
    """Runs its body, and processes started there, at a higher priority than other processes, if that is permitted.
    Gives it the usual priority.

    Otherwise, on a host whose cores are all busy with a collective, the time of a fault would be known only roughly.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield usual
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def run_order(argv: list[str]) -> None:
    """Runs one command of a fault; a command with a '-' before its first word may fail."""
    lenient, argv = argv[0].startswith("-"), [argv[0].lstrip("-"), *argv[1:]]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=null, stdout=null, stderr=subprocess.PIPE, timeout=COMMAND_S, check=False)
        code, said = done.returncode, done.stderr.decode("utf-8", "replace")
    except (OSError, subprocess.TimeoutExpired) as e:
        code, said = 127, str(e)
    if code and not lenient:
        raise failed_command(argv, code, said)


class Batch:
    """Consecutive commands of `ip` or `tc`, read by one process that is started early and waits for them.

    So the commands take effect together, and neither a fork nor a program's start lies between the order to fire and
    the fault. Without that order, as when the agent dies, the process ends without any effect.
    """

    def __init__(self, argvs: list[list[str]]) -> None:
        self.argvs = argvs
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen([argvs[0][0], "-batch", "-"], stdin=pipe, stdout=null, stderr=pipe)

    def run(self) -> None:
        """Runs the commands in order, until the first that fails."""
        lines = "".join(shlex.join(argv[1:]) + "\n" for argv in self.argvs)
        try:
            said = self.process.communicate(lines.encode(), COMMAND_S)[1].decode("utf-8", "replace").strip()
        except subprocess.TimeoutExpired:
            self.process.kill()
            said = "it took too long"
        if self.process.wait():
            what = f"{said} (in: {lines.strip()})".replace("\n", "; ")
            raise failed_command(self.argvs[0], self.process.returncode, what)

    def close(self) -> None:
        """Ends the process; harmless after `run`."""
        if self.process.returncode is None:
            self.process.communicate()


class Single:
    """One command of another program."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv

    def run(self) -> None:
        """Runs it to its end."""
        run_order(self.argv)

    def close(self) -> None:
        """Does nothing: nothing was started."""


def batches(argvs: list[list[str]]) -> Iterator[Batch | Single]:
    """The commands in groups that run one after the other."""
    for program, group in groupby(argvs, key=lambda argv: argv[0]):
        if program in ("ip", "tc"):
            yield Batch(list(group))
        else:
            yield from map(Single, group)


class Arm:
    """One prepared fault: its inject commands, and the detached healer, which undoes it and runs its repeating
    commands."""

    def __init__(self, name: str, healer: str, orders: dict[str, Any], ttl_s: float) -> None:
        self.inject, self.heal_argvs = orders["inject"], orders["heal"]
        self.goes_on = bool(orders["repeat"] or orders["beside"])
        for argv in [*self.inject, *self.heal_argvs, *orders["beside"], *(argv for _, argv in orders["repeat"])]:
            if shutil.which(argv[0].lstrip("-")) is None:
                raise failed_command(argv, 127, f"{argv[0].lstrip('-')}: No such file or directory")
        self.journal = journal_folder() / f"{os.getpid()}-{name}.json"
        # Starting takes half a second among busy ranks, and healing late makes a fault longer.
        with urgently() as usual:
            self.healer = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", healer],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        task = dict(orders, ttl_s=ttl_s, journal=str(self.journal), priority=usual)
        self.tell(json.dumps(task).encode() + b"\n")
        line = self.answer()
        if not line.startswith(b"armed "):
            self.end_healer()
            if line:
                self.tell_failures(json.loads(line))
                raise RefusedError("host", "what runs beside was not ready within the time to live; healed")
            raise RefusedError("host", f"the healer did not start; is {self.journal.parent} writable?")
        self.end_s = float(line.split()[1])
        with urgently():
            self.waiting = list(batches(self.inject))

    def tell(self, text: bytes) -> None:
        """Writes one line to the healer; if the healer is gone, its missing answer shows it."""
        assert self.healer.stdin is not None
        with suppress(BrokenPipeError):
            self.healer.stdin.write(text)

    def answer(self) -> bytes:
        """The healer's next line; empty if it is gone."""
        assert self.healer.stdout is not None
        line: bytes = self.healer.stdout.readline()
        return line

    def fire(self) -> tuple[int, int]:
        """Runs the inject commands in order; returns the clock right before the first and right after the last.

        Without commands, the programs of `beside` are the fault.
        """
        with urgently():
            before = time.time_ns()
            try:
                for batch in self.waiting:
                    batch.run()
                after = time.time_ns()
                self.was_in_time()
                if self.goes_on:
                    self.go_on()
            except RefusedError:
                with suppress(RefusedError):
                    self.heal()
                raise
            return before, after if self.inject else time.time_ns()

    def was_in_time(self) -> None:
        """Heals and refuses a fault whose commands ended after the healer had begun or finished healing."""
        if time.monotonic() < self.end_s and self.healer.poll() is None:
            return
        undo(self.journal, self.heal_argvs)  # the healer heals, too, but perhaps before the last command
        raise RefusedError("host", "the healer ended before the fault began; it healed")

    def end_healer(self) -> bytes:
        """Ends the healer's input, upon which it heals and exits; returns its last line."""
        assert self.healer.stdin is not None and self.healer.stdout is not None
        self.healer.stdin.close()
        report = self.answer()
        self.healer.wait()
        self.healer.stdout.close()
        return report

    def go_on(self) -> None:
        """Makes the healer start the commands of `repeat` and the programs of `beside`. If that fails, it heals at once
        and reports why."""
        self.tell(b"go\n")
        line = self.answer()
        if line != b"going\n":
            if line:
                self.tell_failures(json.loads(line))
            raise RefusedError("host", "the healer ended before the fault began; it healed")

    def heal(self) -> int:
        """Makes the healer heal now, or heals itself if the healer was killed; returns the clock afterwards."""
        for batch in self.waiting:
            batch.close()
        report = self.end_healer()
        if not report:
            undo(self.journal, self.heal_argvs)
            return time.time_ns()
        told = json.loads(report)
        self.tell_failures(told)
        return int(told["t_ns"])

    def tell_failures(self, told: dict[str, Any]) -> None:
        """Raises an error for the first failed command, if there is one."""
        for argv, returncode, stderr in told["failed"]:
            raise failed_command(argv, returncode, stderr)


def undo(path: Path, heal: list[list[str]]) -> None:
    """Runs the heal commands of a journal, then removes it. Runs every command; raises the first failure at the end."""
    failures = []
    for argv in heal:
        try:
            run_order(argv)
        except RefusedError as e:
            failures.append(e)
    if failures:
        raise failures[0]
    with suppress(FileNotFoundError):
        path.unlink()


# The journal --------------------------------------------------------------------------------------------


def journal_folders() -> Iterator[Path]:
    """The folders that healers may use for journals, the best first: emptied by a reboot, which also ends faults."""
    yield Path("/run/r2ccl")
    yield Path(f"/run/user/{os.getuid()}/r2ccl")
    yield Path(f"/tmp/r2ccl-faults-{os.getuid()}")


def journal_folder() -> Path:
    """The first folder that is writable and belongs to this user."""
    for path in journal_folders():
        with suppress(OSError):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if is_own(path) and os.access(path, os.W_OK):
                return path
    raise RefusedError("host", "no folder for what must be healed; make /run/r2ccl writable")


def is_own(path: Path) -> bool:
    """Whether the folder belongs to this user: commands that another user wrote into it would run as ours."""
    return path.lstat().st_uid == os.getuid()


def journal() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The armed faults of all agents of this user on this host. Unreadable entries are skipped."""
    for folder in journal_folders():
        with suppress(OSError):
            for path in sorted(folder.glob("*.json")) if is_own(folder) else ():
                with suppress(OSError, ValueError):
                    entry = json.loads(path.read_text())
                    if isinstance(entry, dict) and {"pid", "ticks", "heal"} <= entry.keys():
                        yield path, entry


def is_healer(entry: dict[str, Any]) -> bool:
    """Whether the healer that wrote this entry still lives; its process number alone may have been reused."""
    with suppress(OSError):
        state, *fields = Path(f"/proc/{entry['pid']}/stat").read_text().rpartition(")")[2].split()
        return bool(state not in "ZX" and fields[18] == entry["ticks"])
    return False


def heal_entry(path: Path, entry: dict[str, Any]) -> None:
    """Makes the entry's healer heal, or heals in its place if it is gone."""
    if is_healer(entry):
        with suppress(ProcessLookupError):
            os.kill(entry["pid"], signal.SIGTERM)
        deadline = time.monotonic() + LEAVE_S
        while is_healer(entry) and time.monotonic() < deadline:
            time.sleep(0.01)
    if path.exists():
        undo(path, entry["heal"])
