"""The rank program of the nccl_tests backend: on the first host it runs nccl-tests and turns its rows into events; on
the others it repeats what the first host reports.

The hosts meet at R2CC_ROOT. Times that cross hosts are sent as ages, so that the hosts' clocks need not agree.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from harness.backends.nccl_tests_cycles import Cycles
from harness.backends.nccl_tests_json import parse_document
from harness.backends.nccl_tests_text import Report, TextParser
from harness.backends.said import telling
from harness.errors import LogError
from r2ccl_core.control.rendezvous import parse_root
from r2ccl_core.perf.stdin import end_with_stdin

OK, WRONG, USAGE, LOST = 0, 1, 2, 3
_MEET_S = 20.0
_PROBE_S = 20.0
_KEPT_LINES = 500
"""Number of stderr lines of the launcher and the ranks that are kept."""
_LEAVE_S = 1.0
"""How long a launcher may take to end its ranks before it is killed."""


def main() -> NoReturn:
    """Exits with 0 ok, 1 wrong elements, 2 usage, 3 nccl-tests failed or the first host was lost."""
    args = _arguments()
    rank, hosts = int(os.environ["R2CC_RANK"]), int(os.environ["R2CC_SIZE"])
    host, port = parse_root(os.environ["R2CC_ROOT"])
    if rank > 0:
        end_with_stdin()
        sys.exit(_follow(rank, host, port))
    try:
        listeners = _meet(host, port, hosts - 1)
    except OSError as error:
        _say(rank, {"event": "error", "message": f"the other hosts did not connect: {error}", "iteration": None})
        sys.exit(LOST)
    sys.exit(_Leader(args, listeners).run())


class _Leader:
    """The first host's part."""

    def __init__(self, args: argparse.Namespace, listeners: list[socket.socket]) -> None:
        self._args, self._listeners = args, listeners
        self._parser = TextParser()
        self._cycles = Cycles(args.size_bytes, args.warmup, args.iterations, args.place)
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._odd = ""

    def run(self) -> int:
        """Everything from the probe of the build to the last event."""
        with tempfile.TemporaryDirectory(prefix="nccl-tests-") as folder:
            argv, problem = self._prepared(Path(folder) / "out.json")
            if problem:
                return self._fail(problem, USAGE)
            status = self._measure(argv)
            return self._finish(status, Path(folder) / "out.json")

    def _prepared(self, document: Path) -> tuple[list[str], str]:
        """The complete command, and what is wrong with the build."""
        argv = list(self._args.command)
        path = argv[_program_at(argv)]
        try:
            usage = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=_PROBE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return argv, f"{path} cannot be run: {error}"
        if usage.returncode:
            said = telling((usage.stderr or usage.stdout).splitlines()) or "no message"
            return argv, f"{path} --help: exit status {usage.returncode}: {said}"
        if "--run_cycles" not in usage.stdout:
            return argv, f"{path} has no -N, so no iteration is seen by itself; build nccl-tests 2.13.10 or later"
        if "--output_file" in usage.stdout:
            argv += ["-J", str(document)]
        return argv, ""

    def _measure(self, argv: list[str]) -> int:
        """Runs nccl-tests to its end and reports every row as it arrives."""
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as error:
            self._errors.append(f"{argv[0]} cannot be run: {error.strerror}")
            return LOST
        end_with_stdin(lambda: _end(process))
        reader = threading.Thread(target=self._read_errors, args=(process,), daemon=True)
        reader.start()
        assert process.stdout is not None
        for line in process.stdout:
            self._take(line.rstrip("\n"), whole=line.endswith("\n"))
            if self._odd:
                _end(process)
        reader.join(1.0)
        return process.wait()

    def _take(self, line: str, whole: bool) -> None:
        t_ns = time.time_ns()
        print(line, flush=True)
        heads = self._parser.report.headers
        row = self._parser.feed(line, whole)
        if row is not None and not heads and not self._odd:
            self._odd = "nccl-tests printed rows under a header that this program does not know"
        if self._parser.is_header(line) and self._parser.report.headers == 1:
            self._tell(self._cycles.begin(t_ns))
        if row is not None and heads:
            self._tell(self._cycles.row(row, t_ns))

    def _read_errors(self, process: "subprocess.Popen[str]") -> None:
        assert process.stderr is not None
        for line in process.stderr:
            print(line.rstrip("\n"), file=sys.stderr, flush=True)
            self._errors.append(line.rstrip("\n"))

    def _finish(self, status: int, document: Path) -> int:
        problem = self._odd or _problem(self._parser.report, self._args.ranks, self._cycles.left, status)
        if problem is None and status and not (self._cycles.wrong or self._parser.report.out_of_bounds):
            problem = f"nccl-tests ended with exit status {status}"
        if problem is None and self._parser.report.out_of_bounds and not self._cycles.wrong:
            problem = f"nccl-tests counts {self._parser.report.out_of_bounds} values out of bounds"
        if problem is not None:
            more = telling(list(self._errors)) if problem.startswith("nccl-tests ended") else ""
            return self._fail(f"{problem}: {more}" if more else problem, LOST)
        self._tell([{"event": "done", "core": self._core(document)}])
        return WRONG if self._cycles.wrong else OK

    def _core(self, document: Path) -> dict[str, Any]:
        report = self._parser.report
        told: dict[str, Any] = {"mode": int(os.environ.get("R2CC_MODE", "0")), "nics": [], "events": []}
        told |= {"nccl_tests": report.version, "nccl": report.nccl_version}
        with suppress(OSError, LogError):
            told["document"] = parse_document(document.read_text(encoding="utf-8", errors="replace")).as_record()
        return told

    def _fail(self, message: str, code: int) -> int:
        print(message, file=sys.stderr, flush=True)
        self._tell([{"event": "error", "message": message, "iteration": self._cycles.iteration}])
        return code

    def _tell(self, events: list[dict[str, Any]]) -> None:
        """Reports events here and on the other hosts, where nothing was checked."""
        for event in events:
            _say(0, event)
            kept = {key: value for key, value in event.items() if key not in ("t_ns", "core")}
            kept |= {"wrong": None} if "wrong" in event else {}
            age_ns = time.time_ns() - event.get("t_ns", time.time_ns())
            line = json.dumps({"age_ns": age_ns, **kept}).encode() + b"\n"
            for listener in self._listeners:
                with suppress(OSError):
                    listener.sendall(line)


def _problem(report: Report, ranks: int, left: int, status: int) -> str | None:
    """What went wrong, according to the text."""
    if report.headers > 1:
        return f"{report.headers} processes ran side by side: this build of nccl-tests has no MPI; build it with MPI=1"
    if report.errors:
        return report.errors[0]
    how = f" and exit status {status}" if status else ""
    if not report.headers:
        return f"nccl-tests ended without a header that this program knows{how}"
    if left > 0:
        return f"nccl-tests ended with {left} cycles to go{how}"
    if report.ranks and report.ranks != ranks:
        return f"nccl-tests ran {report.ranks} ranks where the experiment has {ranks}"
    return None


def _follow(rank: int, host: str, port: int) -> int:
    """Another host's part: reports what the first host sends, on its own clock."""
    try:
        stream = _dial(host, port).makefile("rb")
        for line in stream:
            event = json.loads(line)
            _say(rank, {"t_ns": time.time_ns() - event.pop("age_ns"), **event})
            if event["event"] in ("done", "error"):
                return OK if event["event"] == "done" else LOST
        message = "the first host has ended"
    except (OSError, ValueError) as error:
        message = f"the first host is lost: {error}"
    _say(rank, {"event": "error", "message": message, "iteration": None})
    return LOST


def _meet(host: str, port: int, others: int) -> list[socket.socket]:
    """Connections to the other hosts."""
    if not others:
        return []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as server:
        server.settimeout(_MEET_S)
        return [server.accept()[0] for _ in range(others)]


def _dial(host: str, port: int) -> socket.socket:
    """A connection to the first host, which may start later; it stays silent as long as nccl-tests does."""
    deadline_s = time.monotonic() + _MEET_S
    while True:
        try:
            connection = socket.create_connection((host, port), timeout=_MEET_S)
            connection.settimeout(None)
            return connection
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def _say(rank: int, event: dict[str, Any]) -> None:
    print(json.dumps({"rank": rank, "t_ns": time.time_ns(), **event}), flush=True)


def _program_at(argv: list[str]) -> int:
    """The position of nccl-tests itself in the command: the last word that is one of its programs."""
    return max((at for at, word in enumerate(argv) if "_perf" in Path(word).name), default=len(argv) - 1)


def _end(process: "subprocess.Popen[str]") -> None:
    """Lets the launcher end its ranks, including those on other hosts."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_LEAVE_S)
    process.kill()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nccl_tests_rank", description=__doc__)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--place", choices=("out", "in"), default="out")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    args.command = args.command[1:] if args.command[:1] == ["--"] else args.command
    return args


if __name__ == "__main__":
    main()
