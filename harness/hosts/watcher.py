"""The watch: a program that runs on a host beside the agent and reads other parts of its state ten times a second.

CPU, memory, TCP, NIC errors, RDMA ports, GPUs: `reports.series` lists the metrics. The agent starts it with its own
Python, which needs nothing installed. It is a process and not a thread of the agent, because a driver in trouble may
block or crash its caller, and the agent must fire, heal and sample at that very moment.

    watcher.py {"interval_s": 0.1, "nics": [...], "pids": {"rank0": 123}, "sysfs": "/sys", "proc": "/proc"}

It reads until its standard input ends, then writes one JSON line:

    {"series": [[device, metric], ...], "t_ns": A, "place": A, "value": A}

with A arrays of the same length (int64, int32, float64) as base64 of zlib, little-endian: at `t_ns` the series at
`place` was `value`. A value that could not be read is NaN; a kind of device that the host lacks has a series `present`
of 0.

Promises: a failing read loses its own values and no others; a sample never takes more than a fifth of one core, else
the samples come further apart; memory is bounded, else every second sample is dropped and the interval doubles.
"""

from __future__ import annotations

import array
import base64
import glob
import json
import os
import sys
import threading
import time
import zlib
from contextlib import suppress
from functools import partial
from typing import Any, Callable, Dict, Optional, Tuple  # noqa: UP035  (old hosts: Python 3.8)

VERBS_EVERY_S = 0.5
"""Interval at which RDMA devices are opened and queried; readings in between repeat the last one."""
GIDS = 16
"""Entries of a port's table that are read: addresses come first, and a table may have a thousand."""

Key = Tuple[str, str]  # noqa: UP006
Values = Dict[Key, Optional[float]]  # noqa: UP006, UP045

NICE = 5
"""The watch yields to ranks and agent; its readings carry the time at which they were really taken."""
MAX_SHARE = 0.2
MAX_VALUES = 2_000_000
RESCAN_S = 1.0
"""Interval of the search for processes that a rank starts."""

NAN = float("nan")
TICKS_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


TCP_COUNTERS = {
    "Tcp": {"OutSegs": "segments_sent", "RetransSegs": "segments_retransmitted", "EstabResets": "resets"},
    "TcpExt": {
        "TCPTimeouts": "timeouts",
        "TCPFastRetrans": "fast_retransmissions",
        "TCPLostRetransmit": "lost_again",
    },
}
"""By table and column of /proc/net/snmp and netstat: our name."""

NIC_COLUMNS = {
    1: "rx_packets", 2: "rx_errors", 3: "rx_dropped", 9: "tx_packets", 10: "tx_errors", 11: "tx_dropped",
    14: "tx_carrier_errors",
}  # fmt: skip
"""By place in a line of /proc/net/dev: our name."""

NVML_FIELDS = {
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX": ("nvlink_tx_bytes", 1024.0),
    "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX": ("nvlink_rx_bytes", 1024.0),
    "NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("nvlink_crc_errors", 1.0),
    "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("nvlink_replays", 1.0),
    "NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("nvlink_recoveries", 1.0),
    "NVML_FI_DEV_PCIE_COUNT_TX_BYTES": ("pcie_tx_bytes", 1.0),
    "NVML_FI_DEV_PCIE_COUNT_RX_BYTES": ("pcie_rx_bytes", 1.0),
    "NVML_FI_DEV_PCIE_REPLAY_COUNTER": ("pcie_replays", 1.0),
}
"""NVML's name, our name, and the factor from its unit to ours. All of them only grow."""

WRAP = 2**32
"""The value at which NVML's 32-bit counters wrap. PCIe's bytes do, so more than this between two samples is reported
too low."""


def text_of(path: str) -> str:
    """The present content of a small file."""
    with open(path, encoding="ascii", errors="replace") as file:  # noqa: PTH123
        return file.read()


class Cpu:
    """Shares of all CPUs' time since the previous reading: busy in total, and busy with network interrupts."""

    def __init__(self, proc: str) -> None:
        self.path = proc + "/stat"
        self.before = self.ticks()

    def ticks(self) -> list[int]:
        return [int(word) for word in text_of(self.path).split("\n", 1)[0].split()[1:9]]

    def read(self) -> Values:
        now = self.ticks()
        user, nice, system, idle, iowait, irq, softirq, steal = (b - a for a, b in zip(self.before, now))  # noqa: B905
        total = user + nice + system + idle + iowait + irq + softirq + steal
        if total <= 0:
            return {}
        self.before = now
        return {
            ("cpu", "busy_share"): 1 - (idle + iowait) / total,
            ("cpu", "softirq_share"): (irq + softirq) / total,
            ("cpu", "steal_share"): steal / total,
        }


class Ranks:
    """CPU time and memory of the processes that the agent started, with all their descendants."""

    def __init__(self, proc: str, pids: dict[str, int]) -> None:
        self.proc, self.pids = proc, pids
        self.families: dict[str, list[int]] = {}
        self.scanned_s = float("-inf")

    def read(self) -> Values:
        if time.monotonic() - self.scanned_s > RESCAN_S:
            self.scanned_s = time.monotonic()
            self.families = {name: self.family(pid) for name, pid in self.pids.items()}
        values: Values = {}
        for name, family in self.families.items():
            usages = [usage for usage in map(self.usage, family) if usage is not None]
            if usages:
                values[name, "cpu_seconds"] = sum(seconds for seconds, _ in usages)
                values[name, "rss_bytes"] = sum(rss for _, rss in usages)
        return values

    def family(self, pid: int) -> list[int]:
        """`pid` and its descendants."""
        found = [pid]
        for parent in found:
            for path in glob.glob(f"{self.proc}/{parent}/task/*/children"):  # noqa: PTH207
                with suppress(OSError, ValueError):
                    found += [int(word) for word in text_of(path).split()]
        return found

    def usage(self, pid: int) -> tuple[float, float] | None:
        """CPU seconds of the process and of its ended children, and resident bytes; None if it is gone."""
        try:
            fields = text_of(f"{self.proc}/{pid}/stat").rpartition(")")[2].split()
        except OSError:
            return None
        return sum(map(int, fields[11:15])) / TICKS_S, int(fields[21]) * PAGE_BYTES


class Memory:
    """The memory that programs could still get, by the kernel's estimate, and the processes that the kernel has ended
    for lack of it."""

    def __init__(self, proc: str) -> None:
        self.meminfo, self.vmstat = proc + "/meminfo", proc + "/vmstat"

    def read(self) -> Values:
        values: Values = {("memory", "available_bytes"): None}
        for line in text_of(self.meminfo).split("\n", 8):
            if line.startswith("MemAvailable:"):
                values["memory", "available_bytes"] = int(line.split()[1]) * 1024.0
        with suppress(OSError):
            for line in text_of(self.vmstat).split("\n"):
                if line.startswith("oom_kill "):
                    values["memory", "oom_kills"] = float(line.split()[1])
        return values


class Tcp:
    """Counters of TCP in the network namespace of this process."""

    def __init__(self, proc: str) -> None:
        self.paths = [proc + "/net/snmp", proc + "/net/netstat"]

    def read(self) -> Values:
        values: Values = {}
        for path in self.paths:
            lines = text_of(path).split("\n")
            for names, numbers in zip(lines[::2], lines[1::2]):  # noqa: B905
                table, _, rest = names.partition(": ")
                wanted = TCP_COUNTERS.get(table)
                if wanted:
                    counted = dict(zip(rest.split(), numbers.split()[1:]))  # noqa: B905
                    values.update({("tcp", wanted[n]): float(counted[n]) for n in wanted if n in counted})
        return values


class Nics:
    """Errors and packets of each NIC, by the kernel's counters."""

    def __init__(self, proc: str, sysfs: str, nics: list[str]) -> None:
        self.path, self.sysfs, self.nics = proc + "/net/dev", sysfs, nics

    def read(self) -> Values:
        rows = [line.split(":", 1) for line in text_of(self.path).split("\n") if ":" in line]
        counted = {row[0].strip(): row[1].split() for row in rows}
        values: Values = {}
        for nic in self.nics:
            fields = counted.get(nic)
            values[nic, "present"] = float(fields is not None)
            for column, metric in NIC_COLUMNS.items():
                values[nic, metric] = float(fields[column]) if fields else None
            values[nic, "carrier_changes"] = self.carrier_changes(nic)
        return values

    def carrier_changes(self, nic: str) -> float | None:
        try:
            return float(text_of(f"{self.sysfs}/class/net/{nic}/carrier_changes"))
        except (OSError, ValueError):
            return None


class Rdma:
    """Every port of every RDMA device, from sysfs: state, rate, and all the counters that its driver has."""

    def __init__(self, sysfs: str) -> None:
        self.ports = sorted(glob.glob(sysfs + "/class/infiniband/*/ports/*"))  # noqa: PTH207
        self.files = {port: self.counter_files(port) for port in self.ports}

    @staticmethod
    def counter_files(port: str) -> list[str]:
        found = glob.glob(port + "/counters/*") + glob.glob(port + "/hw_counters/*")  # noqa: PTH207
        return sorted(path for path in found if os.path.basename(path) != "lifespan")  # noqa: PTH119

    @staticmethod
    def name_of(port: str) -> str:
        """``mlx5_0:1``, as NCCL and perftest write it."""
        parts = port.split("/")
        return f"{parts[-3]}:{parts[-1]}"

    def read(self) -> Values:
        values: Values = {("rdma", "present"): float(len(self.ports))}
        for port in self.ports:
            device = self.name_of(port)
            values[device, "state"] = self.number(port + "/state", ":")
            values[device, "physical_state"] = self.number(port + "/phys_state", ":")
            values[device, "rate_bit_s"] = self.rate(port + "/rate")
            for path in self.files[port]:
                metric = os.path.basename(path)  # noqa: PTH119
                value = self.number(path, None)
                if metric in ("port_rcv_data", "port_xmit_data"):  # these two count words of four bytes
                    metric, value = metric.replace("_data", "_bytes"), None if value is None else 4 * value
                values[device, metric] = value
        return values

    @staticmethod
    def number(path: str, until: str | None) -> float | None:
        """The leading number of a file; None if it cannot be read, as with some counters of some drivers."""
        try:
            return float(text_of(path).split(until)[0])
        except (OSError, ValueError, IndexError):
            return None

    @staticmethod
    def rate(path: str) -> float | None:
        """``100 Gb/sec (4X EDR)`` in bits per second."""
        try:
            return float(text_of(path).split()[0]) * 1e9
        except (OSError, ValueError, IndexError):
            return None


class Verbs:
    """By pyverbs, if this Python has it: the MTU that a port really uses, and how many GIDs it has.

    A device is open only while it is queried: a kernel that takes a NIC from its driver waits for every process that
    has its RDMA device open, and it waited for the watch until the trial was over.
    """

    def __init__(self) -> None:
        from pyverbs import device  # type: ignore[import-not-found, unused-ignore]

        self.module = device
        self.due_s = 0.0
        self.known: set[Key] = set()
        device.get_device_list()  # raises without RDMA, so that this source is not queried again

    def read(self) -> Values:
        if time.monotonic() < self.due_s:
            return {}
        self.due_s = time.monotonic() + VERBS_EVERY_S
        values: Values = dict.fromkeys(self.known)
        for device in self.module.get_device_list():
            name = device.name.decode()
            with suppress(Exception), self.module.Context(name=name) as context:
                for port in range(1, context.query_device().phys_port_cnt + 1):
                    known = context.query_port(port)
                    values[f"{name}:{port}", "active_mtu_bytes"] = 128.0 * 2**known.active_mtu
                    gids = (context.query_gid(port, i).gid for i in range(min(GIDS, known.gid_tbl_len)))
                    values[f"{name}:{port}", "gids"] = float(sum(1 for gid in gids if gid.strip("0:")))
        self.known |= set(values)
        return values


class Gpus:
    """Every GPU through NVML. `nvml` is the module; a metric that a GPU lacks, or that fails, is None."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        self.gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        self.fields = [(getattr(nvml, name), *ours) for name, ours in NVML_FIELDS.items() if hasattr(nvml, name)]
        self.unknown: set[tuple[int, str]] = set()
        self.counted: dict[tuple[int, str], tuple[float, float]] = {}
        self.last_xid: dict[int, float] = dict.fromkeys(range(len(self.gpus)), 0.0)
        self.events = self.watch_xids()
        self.slow_pcie = self.lacks_pcie_counters()

    def read(self) -> Values:
        values: Values = {("gpu", "present"): float(len(self.gpus))}
        self.take_xids()
        for number, gpu in enumerate(self.gpus):
            device = f"gpu{number}"
            for metric, value in self.of_one(number, gpu).items():
                values[device, metric] = value
            values[device, "last_xid"] = self.last_xid[number]
        # A field that no GPU here has is reported missing once: querying it costs as much as an existing one.
        everywhere = range(len(self.gpus))
        self.fields = [f for f in self.fields if not all((number, f[1]) in self.unknown for number in everywhere)]
        return values

    def of_one(self, number: int, gpu: Any) -> dict[str, float | None]:
        n = self.nvml
        values = {
            "busy_share": self.attempt(lambda: n.nvmlDeviceGetUtilizationRates(gpu).gpu / 100),
            "memory_used_bytes": self.attempt(lambda: n.nvmlDeviceGetMemoryInfo(gpu).used),
            "power_w": self.attempt(lambda: n.nvmlDeviceGetPowerUsage(gpu) / 1000),
            "temperature_c": self.attempt(lambda: n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU)),
        }
        values.update(self.field_values(number, gpu))
        if self.slow_pcie:
            # Each query takes 20 ms and returns the mean over that time: used only if the driver has no counters.
            for metric, kind in (("pcie_tx_bytes_s", "TX"), ("pcie_rx_bytes_s", "RX")):
                which = getattr(n, f"NVML_PCIE_UTIL_{kind}_BYTES")
                values[metric] = self.attempt(partial(self.throughput, gpu, which))
        return values

    def throughput(self, gpu: Any, which: int) -> float:
        """Bytes per second over PCIe."""
        return float(self.nvml.nvmlDeviceGetPcieThroughput(gpu, which)) * 1024

    def field_values(self, number: int, gpu: Any) -> dict[str, float | None]:
        every_link = 0xFFFFFFFF
        asked = [(field, every_link if ours.startswith("nvlink") else 0) for field, ours, _ in self.fields]
        values: dict[str, float | None] = {ours: None for _, ours, _ in self.fields}
        with suppress(Exception):
            answers = self.nvml.nvmlDeviceGetFieldValues(gpu, asked)
            for answer, (_, ours, unit) in zip(answers, self.fields):  # noqa: B905
                if answer.nvmlReturn == self.nvml.NVML_SUCCESS:
                    values[ours] = self.total((number, ours), answer) * unit
                elif answer.nvmlReturn in (self.nvml.NVML_ERROR_NOT_SUPPORTED, self.nvml.NVML_ERROR_INVALID_ARGUMENT):
                    self.unknown.add((number, ours))
        return values

    def total(self, series: tuple[int, str], answer: Any) -> float:
        """The counter, without the jumps back of a 32-bit one."""
        now = self.number(answer)
        if answer.valueType != self.nvml.NVML_VALUE_TYPE_UNSIGNED_INT:
            return now
        before, total = self.counted.get(series, (now, now))
        self.counted[series] = now, total + (now - before) % WRAP
        return self.counted[series][1]

    def number(self, answer: Any) -> float:
        """The member of NVML's union that its type selects."""
        n = self.nvml
        members = {
            n.NVML_VALUE_TYPE_DOUBLE: "dVal",
            n.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
            n.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
            n.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
            n.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        }
        return float(getattr(answer.value, members[answer.valueType]))

    def lacks_pcie_counters(self) -> bool:
        return all(self.field_values(n, gpu).get("pcie_tx_bytes") is None for n, gpu in enumerate(self.gpus))

    def watch_xids(self) -> Any:
        """An event set for the driver's critical errors; None if this user may not have one."""
        with suppress(Exception):
            events = self.nvml.nvmlEventSetCreate()
            for gpu in self.gpus:
                self.nvml.nvmlDeviceRegisterEvents(gpu, self.nvml.nvmlEventTypeXidCriticalError, events)
            return events
        return None

    def take_xids(self) -> None:
        with suppress(Exception):
            while self.events is not None:
                event = self.nvml.nvmlEventSetWait_v2(self.events, 0)
                gpu = self.nvml.nvmlDeviceGetIndex(event.device)
                self.last_xid[gpu] = float(event.eventData)

    @staticmethod
    def attempt(read: Callable[[], float]) -> float | None:
        try:
            return float(read())
        except Exception:  # NVML has a hundred error classes, and none may end the watch
            return None


def installed_gpus() -> Gpus:
    """The GPUs of this host; raises an error without a driver or pynvml."""
    if not glob.glob("/dev/nvidia[0-9]*"):  # noqa: PTH207
        raise OSError("no GPU")
    import pynvml  # type: ignore[import-untyped, unused-ignore]

    return Gpus(pynvml)


def see_installed_packages() -> None:
    """Adds this Python's installed packages to the path, after its standard library: it was started without them."""
    import site

    prefixes = [sys.prefix]
    environment = os.path.dirname(os.path.dirname(sys.executable or ""))  # noqa: PTH120
    if os.path.exists(environment + "/pyvenv.cfg"):  # noqa: PTH110
        prefixes.insert(0, environment)
    sys.path += [*site.getsitepackages(prefixes), "/usr/lib/python3/dist-packages"]


class Watch(threading.Thread):
    """Reads all sources at an interval and keeps their values."""

    def __init__(self, task: dict[str, Any]) -> None:
        super().__init__(name="watch", daemon=True)
        proc, sysfs = task.get("proc", "/proc"), task.get("sysfs", "/sys")
        self.interval_s: float = task["interval_s"]
        self.stopping = threading.Event()
        self.series: dict[Key, int] = {}
        self.t_ns, self.place, self.value = array.array("q"), array.array("i"), array.array("d")
        self.makers: dict[str, Callable[[], Any]] = {
            "cpu": lambda: Cpu(proc),
            "ranks": lambda: Ranks(proc, task.get("pids", {})),
            "memory": lambda: Memory(proc),
            "tcp": lambda: Tcp(proc),
            "nics": lambda: Nics(proc, sysfs, task.get("nics", [])),
            "rdma": lambda: Rdma(sysfs),
            "verbs": Verbs,
            "gpu": installed_gpus,
        }
        self.sources: list[Any] = []
        self.seen: dict[Any, Values] = {}

    def run(self) -> None:
        with suppress(Exception):
            see_installed_packages()
        for name, make in self.makers.items():
            try:
                self.sources.append(make())
            except Exception:  # absent, or not readable for this user
                self.keep(time.time_ns(), {(name, "present"): 0.0})
        due = time.monotonic()
        while not self.stopping.is_set():
            began_s, cpu_s = time.monotonic(), time.thread_time()
            self.sample()
            self.keep(time.time_ns(), {
                ("watch", "sample_us"): 1e6 * (time.monotonic() - began_s),
                ("watch", "sample_cpu_us"): 1e6 * (time.thread_time() - cpu_s),
            })  # fmt: skip
            self.thin_out()
            rest = max(self.interval_s, (time.thread_time() - cpu_s) / MAX_SHARE)
            due = max(due + rest, time.monotonic())
            self.stopping.wait(max(0.0, due - time.monotonic()))

    def sample(self) -> None:
        """One reading of every source, each with its own time."""
        for source in self.sources:
            before_ns = time.time_ns()
            try:
                values = source.read()
                self.seen.setdefault(source, {}).update(values)
            except Exception:  # its values are missing this time
                values = dict.fromkeys(self.seen.get(source, {}))
            self.keep((before_ns + time.time_ns()) // 2, values)

    def keep(self, t_ns: int, values: Values) -> None:
        for key, value in values.items():
            place = self.series.setdefault(key, len(self.series))
            self.t_ns.append(t_ns)
            self.place.append(place)
            self.value.append(NAN if value is None else value)

    def thin_out(self) -> None:
        """Drops every second reading of every series and doubles the interval, before there are too many readings."""
        if len(self.value) < MAX_VALUES:
            return
        self.interval_s *= 2
        met: dict[int, int] = {}
        kept = array.array("q")
        for at, place in enumerate(self.place):
            met[place] = met.get(place, 0) + 1
            if met[place] % 2:
                kept.append(at)
        self.t_ns = array.array("q", (self.t_ns[at] for at in kept))
        self.value = array.array("d", (self.value[at] for at in kept))
        self.place = array.array("i", (self.place[at] for at in kept))

    def told(self) -> str:
        """All readings as one line of JSON; may be called while a source is blocked."""
        size = min(len(self.t_ns), len(self.place), len(self.value))
        columns = {"t_ns": self.t_ns[:size], "place": self.place[:size], "value": self.value[:size]}
        told = {name: packed(column) for name, column in columns.items()}
        return json.dumps(dict(told, series=list(self.series)))


def packed(values: Any) -> str:
    """Base64 of zlib of the values, little-endian."""
    if sys.byteorder != "little":
        values.byteswap()
    return base64.b64encode(zlib.compress(values.tobytes(), 1)).decode()


def main() -> None:
    """Watches until standard input ends."""
    with suppress(OSError):
        os.nice(NICE)
    watch = Watch(json.loads(sys.argv[1]))
    watch.start()
    while os.read(0, 4096):
        pass
    watch.stopping.set()
    watch.join(0.5)
    told = memoryview(watch.told().encode() + b"\n")
    while told:
        told = told[os.write(1, told) :]
    os._exit(0)  # does not wait for a thread that hangs in a driver


if __name__ == "__main__":
    main()
