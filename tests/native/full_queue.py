"""What a full queue drops: small and large packets beside a flow of 95 % of the rate and TCP streams, by kind of queue.

python tests/native/full_queue.py [--seconds 10] [--mbit 200]

Hosts are network namespaces. The third one sends datagrams to the second, whose switch port a queue limits to the rate;
the first one sends four TCP streams there as well, so that the queue is full from then on, and every 10 ms a datagram
of either size. tbf and bfifo take what fits into their bytes, pfifo what fits into its number of packets. The simulated
queues (wire/simulated/world.cc) do as the former. Needs the right to make network namespaces.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from rails import Rails, rails, sh

from faults.nic_shared_congestion import FLOW

SMALL, LARGE = 32, 1400
"""Bytes in a probe, beside 42 of headers."""
LATENCY_MS = 20

SINK = """\
import json, socket, sys, threading
own, until = sys.argv[1], float(sys.argv[2])
listener = socket.create_server((own, 7001))
def take(stream):
    while stream.recv(1 << 20): pass
def serve():
    while True: threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
probes = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probes.bind((own, 7002))
probes.settimeout(3)
print("ready", flush=True)
came = {}
try:
    while True:
        size = len(probes.recv(65536))
        came[size] = came.get(size, 0) + 1
except TimeoutError: pass
print(json.dumps(came))
"""
SOURCE = """\
import socket, sys, threading, time
peer, seconds, sizes = sys.argv[1], float(sys.argv[2]), [int(size) for size in sys.argv[3:]]
def send():
    stream = socket.create_connection((peer, 7001))
    while True: stream.send(bytes(1 << 18))
for _ in range(4): threading.Thread(target=send, daemon=True).start()
time.sleep(1)
probes = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
probes.connect((peer, 7002))
sent, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    for size in sizes: probes.send(bytes(size))
    sent += 1
    time.sleep(0.0103)
print(sent)
"""


def python(network: Rails, host: int, code: str, *words: object) -> subprocess.Popen[str]:
    argv = network.inside(host, sys.executable, "-I", "-S", "-c", code, *map(str, words))
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def measure(queue: str, seconds: float, mbit: int) -> str:
    with rails(3, 1, f"{mbit}mbit") as network:
        packets = mbit * 1000 * LATENCY_MS // 8 // 1500
        port = ("tc", "-n", network.switch, "qdisc", "replace", "dev", "p1-0")
        limit = mbit * 1000 * LATENCY_MS // 8
        sh(*port, "root", "handle", "1:", "tbf", "rate", f"{mbit}mbit", "burst", "64kb", "limit", limit)
        if queue == "pfifo":
            sh(*port, "parent", "1:1", "handle", "10:", "pfifo", "limit", packets)
        to = network.address(1, 0)
        sink = python(network, 1, SINK, to, seconds)
        flow = python(network, 2, FLOW, "eth0", network.address(2, 0), to, 0.95e6 * mbit)
        for process in (sink, flow):
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
        assert flow.stdin is not None
        flow.stdin.write("\n")
        flow.stdin.flush()
        source = python(network, 0, SOURCE, to, seconds, SMALL, LARGE)
        sent = int(source.communicate()[0])
        came = {int(size): count for size, count in json.loads(sink.communicate()[0]).items()}
        flow.communicate("")
    lost = ", ".join(f"{size + 28} bytes {1 - came.get(size, 0) / sent:.1%}" for size in (SMALL, LARGE))
    return f"{queue}: of {sent} packets each are dropped: {lost}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--mbit", type=int, default=200)
    args = parser.parse_args()
    for queue in ("bfifo", "pfifo"):
        print(measure(queue, args.seconds, args.mbit), flush=True)


if __name__ == "__main__":
    main()
