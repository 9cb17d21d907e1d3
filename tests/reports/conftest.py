"""Synthetic run folders that look like a sweep's: deterministic, written through the schema itself."""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from reports.trial import Fault, Iteration, Run, Trial, TrialError, save

MIB = 1024**2
SYSTEMS = {"failstop": 0, "hot_repair": 1, "balance": 2}
HOSTS, NICS, RATE_BIT_S = 3, 3, 500e6
START_NS = 1_760_000_000_000_000_000
SHARE = 0.94
SLOWER = {0: math.nan, 1: 2.03, 2: 1.53}
PROVENANCE = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": False,
    "command": "harness sweep experiments/allreduce.toml",
    "versions": {"python": "3.11.2", "numpy": "2.4.6"},
    "kernel": "6.1.0",
    "cpu": "Some CPU",
    "cpu_count": 2,
    "cluster": {"kind": "local", "hosts": ["host0", "host1", "host2"]},
}


def experiment(sizes: Sequence[int], systems: dict[str, int], repeats: int) -> dict[str, Any]:
    """The part of a resolved experiment that reports read."""
    return {
        "schema": 1,
        "name": "allreduce",
        "description": "One of three NICs goes down in mid-collective",
        "cluster": {"kind": "local", "hosts": HOSTS, "nics": NICS, "rate": "500 Mbit/s"},
        "workload": {"collective": "all_reduce", "sizes": [f"{s // MIB}MiB" for s in sizes]},
        "system": [{"name": n, "mode": m, "expect_on_fault": "ok" if m else "failed"} for n, m in systems.items()],
        "fault": [{"name": None, "kind": "nic_down", "host": "host1", "nic": "eth1"}],
        "sweep": {"repeats": repeats, "seed": 1},
    }


class Clock:
    """Durations of one trial's iterations, one after the other."""

    def __init__(self, trial_seed: int, size_bytes: int) -> None:
        self.random = np.random.default_rng(trial_seed)
        self.healthy_s = size_bytes * 4 / 3 / (NICS * RATE_BIT_S / 8 * SHARE)

    def lasts_ns(self, factor: float) -> int:
        """One iteration, `factor` times as long as a healthy one, with noise."""
        return int(self.healthy_s * factor * float(self.random.lognormal(0, 0.015)) * 1e9)


def make_trial(system: str, mode: int, size: int, repeat: int, seed: int, iterations: int) -> Trial:
    """One fault trial; the fault strikes in the middle iteration."""
    clock, t_ns, struck = Clock(seed, size), START_NS + seed * 10**10, iterations // 2
    done: list[Iteration] = []
    fault: Fault | None = None
    for number in range(-1, iterations):
        phase = "warmup" if number < 0 else "before" if number < struck else "hit" if number == struck else "after"
        lasts_ns = clock.lasts_ns(SLOWER[mode] if phase == "after" and mode else 1.0)
        if phase == "hit":
            before_ns = t_ns + int(0.3 * lasts_ns)
            fault = Fault(kind="nic_down", host="host1", nic="eth1", t_before_ns=before_ns,
                          t_after_ns=before_ns + 400_000)  # fmt: skip
            if mode == 0:
                break
            lasts_ns = int(lasts_ns * (0.3 + 0.7 * SLOWER[mode]) + clock.random.uniform(0.012, 0.045) * 1e9)
        busbw = size / lasts_ns * 4 / 3
        done.append(Iteration(iteration=number, phase=phase, t_ns=t_ns, duration_ns=lasts_ns, wrong=0,
                              algbw_gbs=size / lasts_ns, busbw_gbs=busbw))  # fmt: skip
        t_ns += lasts_ns + 800_000
    assert fault is not None
    error_ns = int(clock.random.uniform(2e6, 9e6))
    fault = fault.model_copy(update={"heal_ns": max(t_ns, fault.t_after_ns + 80_000_000)})
    return Trial(
        trial_id=f"{system}-{size // MIB}MiB-nic_down-r{repeat}", system=system, mode=mode, collective="all_reduce",
        size_bytes=size, dtype="float32", op="sum", place="out", repeat=repeat, attempt=1,
        status="ok" if mode else "failed", expected=True,
        reason="" if mode else "rank 0: host1 lost (6 ms after the fault)",
        fault=fault, iterations=tuple(done), core=_core(fault, mode),
        evidence={"in_flight": True, "struck_iteration": struck, "dead_nic_tx_after": 0, "dead_nic_rx_after": 0,
                  "healed": True},
        error=None if mode else TrialError(rank=0, message="host1 lost", t_ns=fault.t_before_ns + error_ns,
                                           after_fault_ns=error_ns),
    )  # fmt: skip


def _core(fault: Fault, mode: int) -> dict[str, Any]:
    kinds = ("path_down", "migrated") if mode else ("path_down", "failed")
    events = [
        {"t_ns": fault.t_after_ns + (i + 1) * 900_000, "kind": kind, "nic": "eth1", "peer": 1, "detail": "link_down"}
        for i, kind in enumerate(kinds)
    ]
    return {str(rank): {"mode": mode, "nics": [], "events": events} for rank in range(HOSTS)}


def make_samples(trial: Trial) -> pa.Table:
    """Counters of all NICs every 10 ms, as the iterations and the fault would make them."""
    assert trial.fault is not None
    end_ns = (trial.fault.heal_ns or trial.fault.t_after_ns) + 30_000_000
    start_ns = trial.iterations[0].t_ns - 30_000_000
    times = np.arange(start_ns, end_ns, 10_000_000)
    columns: dict[str, list[Any]] = {n: [] for n in ("t_ns", "host", "nic", "rx_bytes", "tx_bytes", "up")}
    for host in (f"host{h}" for h in range(HOSTS)):
        for nic in (f"eth{n}" for n in range(NICS)):
            sent = np.cumsum([_rate(trial, host, nic, int(t)) / 8 * 0.01 for t in times]).astype(np.int64)
            columns["t_ns"] += times.tolist()
            columns["host"] += [host] * len(times)
            columns["nic"] += [nic] * len(times)
            columns["rx_bytes"] += sent.tolist()
            columns["tx_bytes"] += sent.tolist()
            columns["up"] += [not _dead(trial.fault, host, nic, int(t)) for t in times]
    return pa.table(columns)


def _dead(fault: Fault, host: str, nic: str, t_ns: int) -> bool:
    return host == fault.host and nic == fault.nic and fault.t_after_ns <= t_ns < (fault.heal_ns or t_ns + 1)


def _rate(trial: Trial, host: str, nic: str, t_ns: int) -> float:
    fault = trial.fault
    assert fault is not None
    busy = any(i.t_ns <= t_ns < i.t_ns + i.duration_ns for i in trial.iterations)
    if not busy or (t_ns >= fault.t_after_ns and nic == fault.nic) or (t_ns > fault.t_after_ns and not trial.mode):
        return 0.0
    half = trial.mode == 1 and t_ns >= fault.t_after_ns and nic == "eth0"
    return RATE_BIT_S * (0.5 if half else 0.98)


def write_run(
    path: Path,
    sizes: Sequence[int] = (MIB, 8 * MIB, 64 * MIB),
    systems: dict[str, int] | None = None,
    repeats: int = 3,
    iterations: int = 8,
    samples: bool = True,
) -> Path:
    """A finished run folder at `path`."""
    kinds = SYSTEMS if systems is None else systems
    (path / "trials").mkdir(parents=True)
    run = Run(experiment=experiment(sizes, kinds, repeats), provenance=PROVENANCE,
              started="2026-01-31T12:34:56Z", finished="2026-01-31T12:37:01Z")  # fmt: skip
    save(path / "run.json", run)
    for seed, (repeat, size, system) in enumerate(_grid(repeats, sizes, kinds)):
        trial = make_trial(system, kinds[system], size, repeat, seed, iterations)
        folder = path / "trials" / trial.trial_id
        folder.mkdir()
        if samples:
            pa.parquet.write_table(make_samples(trial), folder / "nics.parquet")
        save(folder / "trial.json", trial)
    return path


def _grid(repeats: int, sizes: Sequence[int], systems: dict[str, int]) -> Iterator[tuple[int, int, str]]:
    return ((r, s, name) for r in range(repeats) for s in sizes for name in systems)


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """`make_run(name="allreduce-...", **what write_run takes)` gives the folder of a new synthetic run."""

    def make(name: str = "allreduce-20260131-123456", **kwargs: Any) -> Path:
        return write_run(tmp_path / name, **kwargs)

    return make
