"""One rank of the noop backend: real processes that synchronise over the management network, without data.

An iteration lasts as long as requested, and longer in proportion to the share of NICs that are down. In mode 0, the
rank whose NIC is lost reports it and exits, and its exit ends the others, as in fail-stop. Only the standard library is
used: the program starts in a few hundredths of a second, under every Python that hosts may have.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import socket
import struct
import sys
import threading
import time

_SIOCGIFFLAGS = 0x8913
_IFF_UP = 0x1
_POLL_S = 0.001


class LostError(Exception):
    """This rank cannot continue; the text says why."""


def main() -> int:
    """Runs one rank to its end; the exit status is that of a measuring program."""
    args = _arguments()
    rank, ranks = int(os.environ["R2CC_RANK"]), int(os.environ["R2CC_SIZE"])
    nics = [n for n in os.environ.get("R2CC_SOCKET_IFNAME", "").lstrip("=").split(",") if _is_up(n) is not None]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    try:
        peers = _gather(os.environ["R2CC_ROOT"], rank, ranks)
        _say("ready", rank)
        for iteration in range(-args.warmup, args.iterations):
            _iterate(args, rank, peers, nics, iteration)
    except (LostError, OSError) as error:
        _say("error", rank, message=str(error), iteration=None)
        return 3
    _say("done", rank, core={"mode": int(os.environ.get("R2CC_MODE", "0")), "nics": [], "events": []})
    return 0


def _iterate(args: argparse.Namespace, rank: int, peers: list[socket.socket], nics: list[str], iteration: int) -> None:
    """One iteration: synchronise, wait as long as the bytes would take, synchronise again."""
    place = {"size_bytes": args.size_bytes, "iteration": iteration, "place": "out"}
    _barrier(rank, peers)
    start_ns = time.time_ns()
    _say("begin", rank, t_ns=start_ns, **place)
    _work(args.duration_s, nics)
    _barrier(rank, peers)
    _say("iteration", rank, t_ns=start_ns, duration_ns=time.time_ns() - start_ns, wrong=0, **place)


def _work(duration_s: float, nics: list[str]) -> None:
    """Lets `duration_s` of work pass, at a pace set by the share of NICs that are up."""
    done_s, last = 0.0, time.monotonic()
    while done_s < duration_s:
        time.sleep(min(_POLL_S, duration_s))
        lost = [nic for nic in nics if not _is_up(nic)]
        if lost and os.environ.get("R2CC_MODE") == "0":
            raise LostError(f"NIC {lost[0]} is down")
        now = time.monotonic()
        done_s += (now - last) * (1 - len(lost) / len(nics) if nics else 1)
        last = now


def _is_up(nic: str) -> bool | None:
    """Whether the interface is up; None if there is none of that name."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sh14x", nic.encode(), 0))
        except OSError:
            return None
    flags: int = struct.unpack("16sh14x", answer)[1]
    return bool(flags & _IFF_UP)


def _gather(root: str, rank: int, ranks: int) -> list[socket.socket]:
    """On rank 0: a connection to every other rank; on another rank: its connection to rank 0."""
    host, _, port = root.rpartition(":")
    if rank > 0:
        return [_dial(host.strip("[]"), int(port))]
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.create_server((host.strip("[]"), int(port)), family=family) as server:
        server.settimeout(20)
        return [server.accept()[0] for _ in range(ranks - 1)]


def _dial(host: str, port: int) -> socket.socket:
    """A connection to rank 0, which may start later than this rank."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((host, port), timeout=20)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _barrier(rank: int, peers: list[socket.socket]) -> None:
    """Rank 0 hears from every rank, then answers every rank."""
    if rank > 0:
        peers[0].sendall(b"x")
    for peer in peers:
        if peer.recv(1) != b"x":
            raise LostError("another rank has ended")
    if rank == 0:
        for peer in peers:
            peer.sendall(b"x")


def _say(event: str, rank: int, **fields: object) -> None:
    print(json.dumps({"event": event, "rank": rank, "t_ns": time.time_ns()} | fields), flush=True)


def _end_with_stdin() -> None:
    # Not sys.stdin: a daemon thread that holds its lock would abort the interpreter at exit.
    while os.read(0, 4096):
        pass
    os._exit(3)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="noop_rank", description=__doc__)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--warmup", type=int, default=0)
    parser.add_argument("--duration-s", type=float, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
