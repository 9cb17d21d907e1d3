"""The watch as it runs on a host: against this machine, against trees of files in the real layout, and against itself.

There is no RDMA device and no GPU here. What sysfs holds of an RDMA port is made up as files; of NVML only our
arithmetic on its answers is tested, with a module that answers like it.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import HostError
from harness.hosts import watcher
from harness.hosts.base import Reading
from harness.hosts.noop import NoopHost
from harness.hosts.sampler import Sampler
from harness.hosts.watch import unpack_readings
from reports.series import METRICS

LIMIT_S = 120.0
BUSY = ["sh", "-c", "while :; do :; done"]


def ignore(stream: str, line: str) -> None:
    pass


def values_of(readings: list[Reading], device: str, metric: str) -> list[float | None]:
    return [r.value for r in readings if (r.device, r.metric) == (device, metric)]


def watched_until(host: NoopHost, enough: Callable[[], bool], **pids: int) -> list[Reading]:
    host.watch_start(pids, 0.02)
    deadline = time.monotonic() + LIMIT_S
    while not enough():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return host.watch_stop()


def watched_longer(host: NoopHost, seconds: float, device: str, metric: str, least: int) -> list[Reading]:
    """Readings with at least so many values of a metric; a watch on a busy machine is begun again, and takes longer."""
    while True:
        end = time.monotonic() + seconds
        readings = watched_until(host, lambda end=end: time.monotonic() > end)
        if len(values_of(readings, device, metric)) >= least or seconds > LIMIT_S / 4:
            return readings
        seconds *= 3


def cpu_seconds(pid: int) -> float:
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15])) / 100


def test_this_machine_is_seen_with_its_ranks(host: NoopHost) -> None:
    process = host.start(["sh", "-c", "while :; do :; done & wait"], env={}, on_line=ignore)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

    def worked(least_s: float) -> bool:
        words = children.read_text().split()
        return bool(words) and cpu_seconds(int(words[0])) > least_s

    seconds: list[float] = []
    least_s = 0.3
    while not seconds:  # the child may have worked before a busy machine's watch sees anything
        assert least_s < LIMIT_S
        readings = watched_until(host, partial(worked, least_s), rank4=process.pid)
        seconds = [v for v in values_of(readings, "rank4", "cpu_seconds") if v is not None]
        least_s *= 2
    assert seconds == sorted(seconds)
    assert seconds[-1] > 0.2, "the child's time counts as the rank's"
    busy = [v for v in values_of(readings, "cpu", "busy_share") if v is not None]
    assert busy and all(0 <= share <= 1 for share in busy) and max(busy) > 0.1
    (available,) = {v > 0 for v in values_of(readings, "memory", "available_bytes") if v is not None}
    assert available
    assert values_of(readings, "lo", "present")[0] == 1
    assert values_of(readings, "absent0", "present")[0] == 0
    assert set(values_of(readings, "absent0", "rx_errors")) == {None}
    assert [r.t_ns for r in readings] == sorted(r.t_ns for r in readings)


def test_what_is_told_is_documented_and_what_is_absent_is_told(host: NoopHost) -> None:
    readings = watched_longer(host, 0.3, "rdma", "present", 1)
    assert {r.metric for r in readings} <= set(METRICS)
    assert values_of(readings, "rdma", "present")[:1] == [0]
    assert values_of(readings, "gpu", "present")[:1] == [0]


def test_the_watch_is_cheap(host: NoopHost) -> None:
    readings = watched_longer(host, 1.0, "watch", "sample_cpu_us", 6)
    spent_us = [v for v in values_of(readings, "watch", "sample_cpu_us") if v is not None]
    assert len(spent_us) >= 5
    # It takes under 1 ms; ten times that would be a tenth of a core at ten samples a second.
    assert sorted(spent_us)[len(spent_us) // 2] < 10_000


def test_a_watch_that_was_killed_says_so(host: NoopHost) -> None:
    host.watch_start({}, 0.02)
    watch = host._watch
    assert watch is not None
    os.kill(watch._process.pid, 9)
    with pytest.raises(HostError, match=r"^host7: the watch told nothing: exit status -9$"):
        host.watch_stop()
    assert host.watch_stop() == []


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


PORT = "class/infiniband/mlx5_1/ports/1"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    files = {
        "state": "4: ACTIVE\n",
        "phys_state": "5: LinkUp\n",
        "rate": "100 Gb/sec (4X EDR)\n",
        "counters/port_rcv_data": "1000\n",
        "counters/port_xmit_data": "2000\n",
        "counters/symbol_error": "3\n",
        "hw_counters/out_of_sequence": "7\n",
        "hw_counters/lifespan": "10\n",
        "gid_attrs/ndevs/0": "lo\n",
    }
    write(tmp_path, {f"{PORT}/{name}": text for name, text in files.items()})
    return tmp_path


def test_an_rdma_port_is_read_from_sysfs(sysfs: Path) -> None:
    source = watcher.Rdma(str(sysfs))
    values = source.read()
    told = {metric: value for (device, metric), value in values.items() if device == "mlx5_1:1"}
    assert told == {
        "state": 4, "physical_state": 5, "rate_bit_s": 100e9, "port_rcv_bytes": 4000, "port_xmit_bytes": 8000,
        "symbol_error": 3, "out_of_sequence": 7,
    }  # fmt: skip
    (sysfs / PORT / "state").write_text("1: DOWN\n")
    (sysfs / PORT / "hw_counters" / "out_of_sequence").write_text("")
    (sysfs / PORT / "rate").unlink()
    values = source.read()
    assert values["mlx5_1:1", "state"] == 1
    assert values["mlx5_1:1", "out_of_sequence"] is None
    assert values["mlx5_1:1", "rate_bit_s"] is None
    assert values["mlx5_1:1", "symbol_error"] == 3


def test_the_fast_sampling_has_the_bytes_of_the_nics_rdma_port(sysfs: Path) -> None:
    sampler = Sampler(["lo", "absent0"], 0.01, str(sysfs))
    sampler.read_once()
    (sysfs / PORT / "counters" / "port_xmit_data").write_text("2500\n")
    sampler.read_once()
    sampler.close()
    first, second = sampler.rows[:11], sampler.rows[11:]
    assert (list(first[4:6]), list(second[4:6])) == ([4000, 8000], [4000, 10000])
    assert list(first[9:11]) == [-1, -1]


def test_rdma_devices_are_open_only_while_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that takes a NIC from its driver waits for whoever has its RDMA device open."""
    opened: list[str] = []

    class Context:
        def __init__(self, name: str) -> None:
            opened.append(name)

        def __enter__(self) -> "Context":
            return self

        def __exit__(self, *_: object) -> None:
            opened.pop()

        def query_device(self) -> SimpleNamespace:
            return SimpleNamespace(phys_port_cnt=1)

        def query_port(self, port: int) -> SimpleNamespace:
            return SimpleNamespace(active_mtu=3, gid_tbl_len=1024)

        def query_gid(self, port: int, index: int) -> SimpleNamespace:
            return SimpleNamespace(gid=["fe80:0000::1", "0000::ffff:0a64:0001"][index] if index < 2 else "0000:0000::")

    there = [SimpleNamespace(name=b"rxe0")]
    device = SimpleNamespace(get_device_list=lambda: there, Context=Context)
    monkeypatch.setitem(sys.modules, "pyverbs", SimpleNamespace(device=device))
    monkeypatch.setattr(watcher, "VERBS_EVERY_S", 0.0)
    source = watcher.Verbs()
    assert source.read() == {("rxe0:1", "active_mtu_bytes"): 1024, ("rxe0:1", "gids"): 2}
    assert opened == []
    there.clear()
    assert source.read() == {("rxe0:1", "active_mtu_bytes"): None, ("rxe0:1", "gids"): None}


@pytest.mark.parametrize("dev_port", [0, 1])
def test_an_infiniband_port_is_found_by_its_network_device(tmp_path: Path, dev_port: int) -> None:
    ports = {
        f"class/infiniband/mlx5_3/ports/{n}/counters/port_{w}_data": f"{n}" for n in (1, 2) for w in ("rcv", "xmit")
    }
    write(tmp_path, ports | {"class/infiniband/mlx5_3/device/net/lo/dev_port": f"{dev_port}\n"})
    sampler = Sampler(["lo"], 0.01, str(tmp_path))
    sampler.read_once()
    sampler.close()
    assert list(sampler.rows[4:6]) == [4 * (dev_port + 1)] * 2


def nvml(**answers: Any) -> Any:
    """A module that answers as NVML's does, for the arithmetic on its answers alone."""

    def fields(gpu: str, asked: list[tuple[int, int]]) -> list[Any]:
        known = {1: (0, "ullVal", 4, 2048), 2: (0, "uiVal", 1, 5), 3: (3, "", 0, 0)}
        made = []
        for number, _ in asked:
            status, member, kind, value = known[number]
            made.append(
                SimpleNamespace(nvmlReturn=status, valueType=kind, value=SimpleNamespace(**{member or "x": value}))
            )
        return made

    def fail(*_: Any) -> Any:
        raise RuntimeError("GPU is lost")

    pending = [SimpleNamespace(device="g1", eventData=79)]
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda i: f"g{i}",
        nvmlDeviceGetIndex=lambda gpu: int(gpu[1:]),
        nvmlDeviceGetUtilizationRates=lambda gpu: SimpleNamespace(gpu=25),
        nvmlDeviceGetMemoryInfo=lambda gpu: SimpleNamespace(used=1 << 30) if gpu == "g0" else fail(),
        nvmlDeviceGetPowerUsage=lambda gpu: 345_000,
        nvmlDeviceGetTemperature=fail,
        nvmlDeviceGetPcieThroughput=lambda gpu, which: 7,
        nvmlDeviceGetFieldValues=fields,
        nvmlEventSetCreate=lambda: "set",
        nvmlDeviceRegisterEvents=lambda *_: None,
        nvmlEventSetWait_v2=lambda *_: pending.pop() if pending else fail(),
        nvmlEventTypeXidCriticalError=8,
        NVML_SUCCESS=0,
        NVML_ERROR_INVALID_ARGUMENT=2,
        NVML_ERROR_NOT_SUPPORTED=3,
        NVML_VALUE_TYPE_DOUBLE=0,
        NVML_VALUE_TYPE_UNSIGNED_INT=1,
        NVML_VALUE_TYPE_UNSIGNED_LONG=2,
        NVML_VALUE_TYPE_UNSIGNED_LONG_LONG=4,
        NVML_VALUE_TYPE_SIGNED_LONG_LONG=5,
        NVML_PCIE_UTIL_TX_BYTES=0,
        NVML_PCIE_UTIL_RX_BYTES=1,
        NVML_TEMPERATURE_GPU=0,
        NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX=1,
        NVML_FI_DEV_PCIE_REPLAY_COUNTER=2,
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL=3,
        **answers,
    )


def test_what_nvml_answers_is_counted_in_our_units_and_one_failure_costs_one_value() -> None:
    values = watcher.Gpus(nvml()).read()
    assert values["gpu", "present"] == 2
    assert values["gpu0", "busy_share"] == 0.25
    assert values["gpu0", "power_w"] == 345
    assert values["gpu0", "nvlink_tx_bytes"] == 2048 * 1024
    assert values["gpu0", "pcie_replays"] == 5
    assert values["gpu0", "nvlink_replays"] is None
    assert values["gpu0", "pcie_tx_bytes_s"] == 7 * 1024, "the mean of 20 ms, where there is no counter"
    assert values["gpu0", "temperature_c"] is None
    assert (values["gpu0", "memory_used_bytes"], values["gpu1", "memory_used_bytes"]) == (1 << 30, None)
    assert (values["gpu0", "last_xid"], values["gpu1", "last_xid"]) == (0, 79)
    assert {metric for _, metric in values} <= set(METRICS)


def test_a_counter_of_32_bits_goes_on_where_it_begins_again() -> None:
    counted = iter([2**32 - 100, 2**32 - 10, 20, 20])

    def fields(gpu: str, asked: list[tuple[int, int]]) -> list[Any]:
        return [SimpleNamespace(nvmlReturn=0, valueType=1, value=SimpleNamespace(uiVal=next(counted))) for _ in asked]

    module = nvml()
    for name in ("NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", "NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"):
        delattr(module, name)
    module.nvmlDeviceGetCount, module.nvmlDeviceGetFieldValues = (lambda: 1), fields
    gpus = watcher.Gpus(module)  # reads once to learn whether PCIe's counters are there
    assert [gpus.read()["gpu0", "pcie_replays"] for _ in range(3)] == [2**32 - 10, 2**32 + 20, 2**32 + 20]


def test_a_field_that_no_gpu_has_is_told_as_missing_once() -> None:
    gpus = watcher.Gpus(nvml())
    assert gpus.read()["gpu0", "nvlink_replays"] is None
    assert ("gpu0", "nvlink_replays") not in gpus.read()
    assert gpus.read()["gpu0", "nvlink_tx_bytes"] == 2048 * 1024


class Failing:
    """A source that answers once and fails from then on."""

    def __init__(self) -> None:
        self.asked = 0

    def read(self) -> watcher.Values:
        self.asked += 1
        if self.asked > 1:
            raise OSError("gone")
        return {("thing", "x"): 5.0}


def test_a_source_that_fails_tells_that_and_the_others_go_on() -> None:
    watch = watcher.Watch({"interval_s": 0.1})
    watch.sources = [Failing(), watcher.Memory("/proc")]
    watch.sample()
    watch.sample()
    readings = unpack_readings(watch.told())
    assert values_of(readings, "thing", "x") == [5, None]
    assert None not in values_of(readings, "memory", "available_bytes")
    assert len(values_of(readings, "memory", "available_bytes")) == 2
    assert (
        None not in values_of(readings, "memory", "oom_kills") and len(values_of(readings, "memory", "oom_kills")) == 2
    )


def test_memory_is_bounded_and_the_whole_time_stays_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "MAX_VALUES", 40)
    watch = watcher.Watch({"interval_s": 0.1})
    for t_ns in range(100):
        watch.keep(t_ns, {("a", "x"): float(t_ns), ("b", "y"): -1.0})
        watch.thin_out()
    readings = unpack_readings(watch.told())
    kept = values_of(readings, "a", "x")
    assert len(readings) <= 42
    assert kept[0] == 0
    assert kept[-1] in (98, 99)
    assert len(values_of(readings, "b", "y")) == len(kept)
    assert watch.interval_s > 0.1
