"""One host's part of the perftest backend: ib_write_bw to the next host and from the one before it, over all rails.

The hosts meet at R2CC_ROOT, where they agree on ports and wait for each other before each iteration. ib_write_bw's own
connections use the management network. PERFTEST_DEVICES names the RDMA devices, one for each NIC, where they are not to
be found by the NICs' addresses.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from harness.backends.perftest import REMEDY
from harness.backends.perftest_ports import Port, ports_of
from harness.backends.perftest_text import Result, parse
from harness.backends.said import telling
from harness.errors import LogError, RdmaPortError
from r2ccl_core.control.rendezvous import parse_root
from r2ccl_core.perf.stdin import end_with_stdin

OK, USAGE, LOST = 0, 2, 3
LARGEST_MESSAGE = 1 << 20
FEWEST_MESSAGES = 5
"""ib_write_bw takes no fewer."""
_POLL_S = 0.01


class EndedError(Exception):
    """This host cannot continue; the text is one line."""


class Meeting:
    """All hosts, by way of the first: what each says, all hear."""

    def __init__(self, root: str, rank: int, hosts: int, limit_s: float) -> None:
        host, port = parse_root(root)
        self._rank, self._streams = rank, []
        sockets = self._accept(host, port, hosts - 1, limit_s) if rank == 0 else [_dial(host, port, limit_s)]
        for one in sockets:
            one.settimeout(None)
            self._streams.append(one.makefile("rw", encoding="utf-8", newline="\n"))
            one.close()  # the stream keeps it open

    def share(self, said: Any) -> list[Any]:
        """What every host says, by rank. Raises `EndedError` where one is gone."""
        try:
            if self._rank > 0:
                self._write(self._streams[0], [self._rank, said])
                return list(self._read(self._streams[0]))
            heard = dict([(0, said), *(self._read(stream) for stream in self._streams)])
            everything = [heard[rank] for rank in sorted(heard)]
            for stream in self._streams:
                self._write(stream, everything)
        except (OSError, ValueError) as error:
            raise EndedError(f"another host has ended: {error}") from None
        return everything

    def close(self) -> None:
        """This host takes no part any more."""
        for stream in self._streams:
            stream.close()

    @staticmethod
    def _accept(host: str, port: int, others: int, limit_s: float) -> list[socket.socket]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.create_server((host, port), family=family) as server:
            server.settimeout(limit_s)
            return [server.accept()[0] for _ in range(others)]

    @staticmethod
    def _write(stream: Any, value: Any) -> None:
        stream.write(json.dumps(value) + "\n")
        stream.flush()

    @staticmethod
    def _read(stream: Any) -> Any:
        line = stream.readline()
        if not line:
            raise OSError("its connection is closed")
        return json.loads(line)


class Host:
    """The programs of one host."""

    def __init__(self, args: argparse.Namespace, rank: int, ports: list[Port]) -> None:
        self._rank, self._ports = rank, ports
        per_rail = max(1, args.sent_bytes // len(ports))
        self._message_bytes = min(LARGEST_MESSAGE, 1 << max(1, per_rail // FEWEST_MESSAGES).bit_length() - 1)
        self._messages = max(FEWEST_MESSAGES, -(-per_rail // self._message_bytes))
        self._program, self._limit_s = args.program, args.ready_s
        self.running: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()

    def serve(self) -> tuple[list["subprocess.Popen[str]"], list[int]]:
        """A server for each rail, which listens, and its port."""
        programs, numbers = [], [_free_port() for _ in self._ports]
        for port, number in zip(self._ports, numbers, strict=True):
            programs.append(self._start(port, number, []))
        deadline_s = time.monotonic() + self._limit_s
        for program, number in zip(programs, numbers, strict=True):
            while not _is_listening(number):
                if program.poll() is not None:
                    self.finish(program)
                    raise EndedError("ib_write_bw ended before it had a client")
                if time.monotonic() > deadline_s:
                    raise EndedError(f"ib_write_bw does not listen within {self._limit_s:.0f} s")
                time.sleep(_POLL_S)
        return programs, numbers

    def write(self, address: str, numbers: list[int]) -> list["subprocess.Popen[str]"]:
        """A client for each rail, of the servers at that address."""
        return [self._start(port, number, [address]) for port, number in zip(self._ports, numbers, strict=True)]

    def result(self, program: "subprocess.Popen[str]") -> Result:
        """What a client measured, once it has ended."""
        text = self.finish(program)
        try:
            return parse(text)
        except LogError as error:
            raise EndedError(f"{_named(program)}: {error}") from None

    def finish(self, program: "subprocess.Popen[str]") -> str:
        """What it printed, once it has ended."""
        text, errors = program.communicate()
        print(text, flush=True)
        print(errors, file=sys.stderr, flush=True)
        if program.returncode != 0:
            why = telling([*errors.splitlines(), *text.splitlines()]) or "no message"
            raise EndedError(f"{_named(program)}: exit status {program.returncode}: {why}")
        return text

    def end(self) -> None:
        """Leaves no program behind."""
        with self._lock:
            for program in self.running:
                with suppress(OSError):
                    program.kill()

    def _start(self, port: Port, number: int, more: list[str]) -> "subprocess.Popen[str]":
        argv = [self._program, "-d", port.device, "-i", str(port.number), "-p", str(number), "-F", "-N"]
        argv += [] if port.gid_index is None else ["-x", str(port.gid_index)]
        argv += ["-s", str(self._message_bytes), "-n", str(self._messages), "--report_gbits", *more]
        pipe = subprocess.PIPE
        with self._lock:
            program = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, errors="replace"
            )
            self.running.append(program)
        return program


def main() -> NoReturn:
    """Exits with 0 ok, 2 usage, 3 a program failed or a host was lost."""
    args, rank = _arguments(), int(os.environ["R2CC_RANK"])
    nics = [nic for nic in os.environ.get("R2CC_SOCKET_IFNAME", "").lstrip("=").split(",") if nic]
    devices = [name for name in os.environ.get("PERFTEST_DEVICES", "").split(",") if name]
    try:
        if shutil.which(args.program) is None:
            raise RdmaPortError(f"{args.program} is not on this host; {REMEDY}")
        ports = ports_of(nics, devices)
    except RdmaPortError as error:
        _fail(rank, str(error), None)
        sys.exit(USAGE)
    host = Host(args, rank, ports)
    end_with_stdin(host.end)
    iteration: int | None = None
    try:
        meeting = Meeting(os.environ["R2CC_ROOT"], rank, int(os.environ["R2CC_SIZE"]), args.ready_s)
        _say(rank, "ready")
        for iteration in range(-args.warmup, args.iterations):
            _iterate(args, rank, host, meeting, iteration)
    except (EndedError, OSError) as error:
        host.end()
        _fail(rank, str(error), iteration)
        sys.exit(LOST)
    mode = int(os.environ.get("R2CC_MODE", "0"))
    told = {"mode": mode, "nics": [], "events": [], "rdma_ports": [asdict(port) for port in ports]}
    _say(rank, "done", core=told)
    sys.exit(OK)


def _iterate(args: argparse.Namespace, rank: int, host: Host, meeting: Meeting, iteration: int) -> None:
    """One run over all rails at once. Its time is that of a collective's bytes at the bandwidth measured, of which the
    start of programs is no part."""
    place = {"size_bytes": args.size_bytes, "iteration": iteration, "place": "out"}
    servers, numbers = host.serve()
    every = meeting.share(numbers)
    following = (rank + 1) % len(every)
    begun_ns = time.time_ns()
    _say(rank, "begin", t_ns=begun_ns, **place)
    clients = host.write(args.addresses.split(",")[following], every[following])
    results = [host.result(client) for client in clients]
    for server in servers:
        host.finish(server)
    lasted_ns = time.time_ns() - begun_ns
    meeting.share(None)
    bytes_s = sum(result.bytes_s for result in results)
    told = {"duration_ns": lasted_ns, "measured_ns": round(args.sent_bytes / bytes_s * 1e9), "wrong": None}
    _say(rank, "iteration", t_ns=begun_ns, **place, **told)


def _named(program: "subprocess.Popen[str]") -> str:
    assert isinstance(program.args, list)
    return " ".join(program.args[:3])


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _is_listening(port: int) -> bool:
    """Without a connection, which the server would take for its client."""
    rows = [line.split() for file in ("tcp", "tcp6") for line in _lines(Path("/proc/net") / file)[1:]]
    return any(row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port for row in rows)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


def _dial(host: str, port: int, limit_s: float) -> socket.socket:
    """A connection to the first host, which may start later."""
    deadline_s = time.monotonic() + limit_s
    while True:
        try:
            return socket.create_connection((host, port), timeout=limit_s)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)


def _fail(rank: int, message: str, iteration: int | None) -> None:
    print(message, file=sys.stderr, flush=True)
    _say(rank, "error", message=message, iteration=iteration)


def _say(rank: int, event: str, **fields: object) -> None:
    print(json.dumps({"event": event, "rank": rank, "t_ns": time.time_ns()} | fields), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="perftest_rank", description=__doc__)
    parser.add_argument("--program", default="ib_write_bw")
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--sent-bytes", type=int, required=True, help="by each host in one iteration")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--ready-s", type=float, default=20.0)
    parser.add_argument("--addresses", required=True, help="of all hosts, by rank, on the management network")
    return parser.parse_args()


if __name__ == "__main__":
    main()
