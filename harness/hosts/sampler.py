"""The sampling of NIC counters, a part of the agent: the bytes that each NIC has moved, a hundred times a second.

It reads /proc/net/dev, SIOCGIFFLAGS and, if a NIC also belongs to an RDMA device, its port's counters in sysfs: some 20
us per sample of three NICs without RDMA, and 50 us where the thread sleeps for a millisecond in between.
"""

from __future__ import annotations

import array
import base64
import bisect
import fcntl
import glob
import os
import socket
import struct
import sys
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from typing import Iterator  # noqa: UP035  (old hosts: Python 3.8)

HURRY_S = 0.001
"""Interval between samples shortly before a fault, while it takes effect, and a while longer, so that the return of
traffic is timed with that precision."""
LINGER_S = 0.2
"""Length of that while. A longer one would take CPU time from the systems being measured."""

PAUSES = 9
"""The pause after a sample is at least this many times the CPU time that the sample took; once that time in a hurry. A
translated guest needs 0.5 to 5 ms per sample, and the sampler, which has priority, left its ranks half of the CPU."""

CLOSELY_S = 2.0
"""Longest time for which close samples are taken before a fault that does not come."""

SIOCGIFFLAGS = 0x8913
IFF_UP_AND_RUNNING = 0x1 | 0x40

ROW = 5
"""Numbers of one NIC in a row of samples."""


def rdma_port_of(nic: str, sysfs: str) -> str | None:
    """The folder in sysfs of the RDMA port that sends over `nic`; None without one."""
    for port in sorted(glob.glob(sysfs + "/class/infiniband/*/ports/*")):  # noqa: PTH207
        with suppress(OSError), open(port + "/gid_attrs/ndevs/0") as file:  # noqa: PTH123
            if file.read().strip() == nic:
                return port
    for owner in glob.glob(f"{sysfs}/class/infiniband/*/device/net/{nic}"):  # noqa: PTH207
        with suppress(OSError, ValueError), open(owner + "/dev_port") as file:  # noqa: PTH123
            return f"{owner.rsplit('/device/', 1)[0]}/ports/{int(file.read()) + 1}"
    return None


class RdmaCounter:
    """One data counter of an RDMA port, kept open: bytes so far, which sysfs counts in words of four."""

    def __init__(self, path: str) -> None:
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> int:
        """The bytes so far; -1 if the port does not report them."""
        try:
            return 4 * int(os.pread(self.fd, 64, 0))
        except (OSError, ValueError):
            return -1


class Sampler(threading.Thread):
    """Reads the counters of some NICs at a fixed interval, into one flat array until it is stopped.

    One row is: t_ns, then rx bytes, tx bytes, carrier, and RDMA rx and tx bytes of each NIC. A NIC that does not exist
    reads -1, -1, 0; one without an RDMA port, or whose port does not count, -1, -1 for the last two.
    """

    def __init__(self, nics: list[str], interval_s: float, sysfs: str = "/sys") -> None:
        super().__init__(name="sampler", daemon=True)
        self.nics, self.interval_s = nics, interval_s
        self.rows = array.array("q")
        self.stopping, self.hurry = threading.Event(), threading.Event()
        self.hurried = False
        self.hurried_until_s = self.closely_until_s = 0.0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.dev = os.open("/proc/net/dev", os.O_RDONLY | os.O_CLOEXEC)
        self.questions = [struct.pack("16sH22x", nic.encode(), 0) for nic in nics]
        self.rdma = [self.rdma_counters(rdma_port_of(nic, sysfs)) for nic in nics]

    @staticmethod
    def rdma_counters(port: str | None) -> list[RdmaCounter]:
        """The counters of received and of sent bytes; empty if there are none."""
        try:
            return [RdmaCounter(f"{port}/counters/port_{way}_data") for way in ("rcv", "xmit")] if port else []
        except OSError:
            return []

    def run(self) -> None:
        with suppress(PermissionError):  # a few microseconds, which must be on time on a busy host
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), -20)
        due = time.monotonic()
        while not self.stopping.is_set():
            began = time.thread_time()
            self.read_once()
            took_s = time.thread_time() - began
            if self.hurried or time.monotonic() < self.hurried_until_s:
                time.sleep(max(HURRY_S, took_s))
                due = time.monotonic()
                continue
            now = time.monotonic()
            due = now + HURRY_S if now < self.closely_until_s else due + self.interval_s
            due = max(due, now + PAUSES * took_s)
            self.hurry.wait(due - time.monotonic())

    def closely(self) -> None:
        """Samples at the interval HURRY_S until the next fault, for CLOSELY_S at most and with a tenth of a core at
        most, so that what is usual is known as closely as what follows the fault."""
        self.closely_until_s = time.monotonic() + CLOSELY_S

    @contextmanager
    def hurrying(self) -> Iterator[None]:
        """Samples at the interval HURRY_S while the body runs, and LINGER_S longer."""
        self.hurried = True
        self.closely_until_s = 0.0
        self.hurry.set()
        try:
            yield
        finally:
            self.hurried_until_s = time.monotonic() + LINGER_S
            self.hurried = False
            self.hurry.clear()

    def read_once(self) -> None:
        """Appends one row.

        The clock is read first: the counters are of some moment between it and the next row's clock, however long this
        thread has to wait in between.
        """
        row = [time.time_ns()]
        text = os.pread(self.dev, 65536, 0)
        counters = dict(line.split(b":", 1) for line in text.splitlines()[2:])
        named = {name.strip(): fields.split() for name, fields in counters.items()}
        for nic, question, rdma in zip(self.nics, self.questions, self.rdma):  # noqa: B905  (Python 3.8)
            fields = named.get(nic.encode())
            row += [int(fields[0]), int(fields[8])] if fields else [-1, -1]
            row.append(self.carrier(question))
            row += [counter.read() for counter in rdma] or [-1, -1]
        self.rows.extend(row)

    def moved_now(self, nic: str) -> int:
        """Bytes that `nic` has received and sent, by its counters."""
        past_the_kernel = sum(max(0, counter.read()) for counter in self.rdma[self.nics.index(nic)])
        for line in os.pread(self.dev, 65536, 0).splitlines()[2:]:
            name, _, fields = line.partition(b":")
            if name.strip() == nic.encode():
                numbers = fields.split()
                return int(numbers[0]) + int(numbers[8]) + past_the_kernel
        return past_the_kernel

    def moved_at(self, nic: str, t_ns: int) -> float:
        """The same at a past time, interpolated linearly between two samples."""
        width, at = 1 + ROW * len(self.nics), 1 + ROW * self.nics.index(nic)
        rows = self.rows[: len(self.rows) // width * width]
        times = rows[0::width]
        after = bisect.bisect_left(times, t_ns)
        if after == 0:
            return self.moved(rows, at)
        low_ns, low = times[after - 1], self.moved(rows, (after - 1) * width + at)
        if after < len(times):
            high_ns, high = times[after], self.moved(rows, after * width + at)
        else:  # the time lies after the last sample
            high_ns, high = max(t_ns, time.time_ns()), self.moved_now(nic)
        return low + (t_ns - low_ns) / max(1, high_ns - low_ns) * (high - low)

    @staticmethod
    def moved(rows: array.array[int], at: int) -> int:
        """Received and sent bytes of the NIC whose numbers begin at `at`, through the kernel and past it."""
        return rows[at] + rows[at + 1] + max(0, rows[at + 3]) + max(0, rows[at + 4])

    def carrier(self, question: bytes) -> int:
        """1 while the link is up and has a carrier."""
        try:
            answer = fcntl.ioctl(self.socket.fileno(), SIOCGIFFLAGS, question)
        except OSError:
            return 0
        flags = struct.unpack_from("16sH", answer)[1]
        return int(flags & IFF_UP_AND_RUNNING == IFF_UP_AND_RUNNING)

    def close(self) -> None:
        """Closes its files and sockets."""
        self.socket.close()
        for fd in (self.dev, *(counter.fd for counters in self.rdma for counter in counters)):
            os.close(fd)

    def stop(self) -> str:
        """Stops sampling; returns the rows as base64 of zlib of little-endian 64-bit integers."""
        self.stopping.set()
        self.hurry.set()
        self.join()
        self.read_once()
        self.close()
        if sys.byteorder != "little":
            self.rows.byteswap()
        return base64.b64encode(zlib.compress(self.rows.tobytes(), 1)).decode()
