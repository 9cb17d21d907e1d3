"""Run folders as a sweep would leave them, made up from a model: what the tests of reports read.

Deterministic: equal arguments give equal files. Durations follow the NICs' rate, T/T0 the mode's model.
"""

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r2ccl_core.units import format_size
from reports.trial import SCHEMA, Run, Trial, save

HOSTS, NICS, RATE_BIT_S = 3, 3, 500e6
ITERATIONS = {1 << 20: 40, 8 << 20: 16, 64 << 20: 6}
MODES = {"failstop": 0, "hot_repair": 1, "balance": 2}
SLOWDOWN = {0: 1.5, 1: 2.03, 2: 1.52}
SAMPLE_NS = 10_000_000
START_NS = 1_790_000_000_000_000_000
UNDRAWN = (
    "from reports import report as r; whole = r.content; "
    "r.content = lambda runs, frame, lines, figures=None: whole(runs, frame, lines); "
)
"""The beginning of a program whose report has no figures, as by the fixture of this name."""
AS_IN_PAGES = (
    "from reports import embed, report; "
    "report.save = lambda figure, folder, name, caption, alt, types=(): "
    "embed.save(figure, folder, name, caption, alt, ('svg',)); "
)
"""The beginning of a program whose report has no files of figures but those of its page, as in tests/reports."""


def make_run(
    runs: Path,
    name: str = "allreduce",
    *,
    repeats: int = 5,
    sizes: dict[int, int] | None = None,
    systems: dict[str, int] | None = None,
    counters: bool = True,
    fault: bool = True,
    seed: int = 1,
) -> Path:
    """Writes a run folder below `runs`; `sizes` maps bytes to iterations. Returns the folder."""
    folder = runs / f"{name}-20260921-101500"
    rng = random.Random(seed)
    sizes, systems = sizes or ITERATIONS, systems or MODES
    _write(folder / "run.json", run_record(name, sizes, systems, repeats, fault))
    (folder / "experiment.toml").write_text(f'schema = 1\nname = "{name}"\n')
    now_ns = START_NS
    for repeat in range(repeats):
        for size, count in sizes.items():
            for system, mode in systems.items():
                trial, samples = make_trial(rng, system, mode, size, count, repeat, now_ns, fault)
                write_trial(folder, trial, samples if counters else None)
                now_ns += 3_000_000_000
    return folder


def stored_run(tmp_path: Path, name: str, *trials: Trial) -> Path:
    """The folder of a run of `trials`, without their tables."""
    folder = tmp_path / f"{name}-1"
    for each in trials:
        (folder / "trials" / each.trial_id).mkdir(parents=True)
        save(folder / "trials" / each.trial_id / "trial.json", each)
    save(folder / "run.json", Run(experiment={"name": name}, started="2026-01-01T00:00:00Z", finished="x"))
    return folder


def run_record(name: str, sizes: dict[int, int], systems: dict[str, int], repeats: int, fault: bool) -> dict[str, Any]:
    """The content of run.json."""
    expect = {0: "failed", 1: "ok", 2: "ok"}
    return {
        "schema": SCHEMA,
        "experiment": {
            "schema": 1,
            "name": name,
            "description": "One of three NICs goes down in mid-collective",
            # Of no kind: the NICs' rate is that of NICs, not of a token bucket that lets a burst pass.
            "cluster": {"hosts": HOSTS, "nics": NICS, "rate": "500 Mbit/s", "mtu": 1500},
            "workload": {"backend": "perf", "collective": "all_reduce", "sizes": [format_size(s) for s in sizes]},
            "system": [{"name": s, "mode": m, "env": {}, "expect_on_fault": expect[m]} for s, m in systems.items()],
            "fault": [{"kind": "nic_down", "host": "host1", "nic": "eth1"}] if fault else [],
            "sweep": {"repeats": repeats, "seed": 1},
        },
        "provenance": {
            "commit": "0123456789abcdef0123456789abcdef01234567",
            "dirty": False,
            "command": f"harness sweep experiments/{name}.toml",
            "versions": {"python": "3.11.7", "r2ccl": "0.1.0", "numpy": "2.4.0"},
            "kernel": "6.1.0-25-amd64",
            "cpu": "A processor",
            "cpu_count": 2,
            "cluster": {"kind": "local", "tag": "a1b2c3", "hosts": {"host0": "198.18.0.2"}},
        },
        "started": "2026-09-21T10:15:00Z",
        "finished": "2026-09-21T10:17:31Z",
        "tags": {"identity": "916c117360fb3339", "only": {}},
    }


def make_trial(
    rng: random.Random, system: str, mode: int, size: int, count: int, repeat: int, start_ns: int, fault: bool
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The content of a trial.json, and the columns of its nics.parquet."""
    healthy_ns = size * 2 * (HOSTS - 1) / HOSTS / (NICS * RATE_BIT_S / 8 * 0.945) * 1e9 + 0.4e6
    struck = count // 2 if fault else count + 1
    iterations, at_ns, fault_ns = [], start_ns + 100_000_000, 0
    for number in range(-1, count):
        duration = healthy_ns * rng.uniform(0.985, 1.02)
        phase = "warmup" if number < 0 else "before"
        if number == struck:
            fault_ns = int(at_ns + 0.3 * duration)
            if mode == 0:
                break
            duration = 0.3 * healthy_ns + 0.7 * duration * SLOWDOWN[mode] + rng.uniform(12e6, 38e6)
            phase = "hit"
        elif number > struck:
            duration, phase = duration * SLOWDOWN[mode], "after"
        iterations.append(_iteration(number, phase, int(at_ns), int(duration), size))
        at_ns += duration + 250_000
    error_ns = fault_ns + int(rng.uniform(8e6, 24e6))
    stopped = fault and mode == 0
    end_ns = int(error_ns if stopped else at_ns)
    heal_ns = end_ns + 60_000_000
    trial = {
        "schema": SCHEMA,
        "trial_id": f"{system}-{format_size(size)}-{'nic_down' if fault else 'healthy'}-r{repeat}",
        "system": system,
        "mode": mode,
        "collective": "all_reduce",
        "size_bytes": size,
        "dtype": "float32",
        "op": "sum",
        "place": "out",
        "scenario": "nic_down" if fault else "healthy",
        "repeat": repeat,
        "attempt": 1,
        "status": "failed" if stopped else "ok",
        "expected": True,
        "reason": f"rank 0: {_STOPPED} ({(error_ns - fault_ns) / 1e6:.0f} ms after the fault)" if stopped else "",
        "fault": _fault(fault_ns, heal_ns) if fault else None,
        "iterations": iterations,
        "evidence": {
            "in_flight": True if fault else None,
            "struck_iteration": struck if fault else None,
            "dead_nic_tx_after": 0 if fault else None,
            "dead_nic_rx_after": 0 if fault else None,
            "healed": True if fault else None,
            "step_seconds": {"watch": 1.5},
            "clock_offsets_ns": {f"host{h}": 0 for h in range(HOSTS)},
        },
        "core": {str(r): _core(rng, mode, fault_ns, heal_ns) for r in range(HOSTS)} if fault else {},
        "error": {"rank": 0, "message": _STOPPED, "t_ns": error_ns, "after_fault_ns": error_ns - fault_ns}
        if stopped
        else None,
    }
    return trial, _samples(rng, mode, start_ns, iterations, fault_ns if fault else None, heal_ns, stopped)


def write_trial(folder: Path, trial: dict[str, Any], samples: dict[str, list[Any]] | None = None) -> Path:
    """Adds a trial to a run folder; returns the trial's folder."""
    place = folder / "trials" / trial["trial_id"]
    _write(place / "trial.json", trial)
    if samples is not None:
        pq.write_table(pa.table(samples), place / "nics.parquet")
    return place


_STOPPED = "NIC eth1 (10.101.0.1 to 10.101.0.2) was lost: stalled; R2CC_MODE=0 stops at the first failure"


def _write(path: Path, values: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def _iteration(number: int, phase: str, t_ns: int, duration_ns: int, size: int) -> dict[str, Any]:
    algbw = size / duration_ns
    busbw = algbw * 2 * (HOSTS - 1) / HOSTS
    values = {"iteration": number, "phase": phase, "t_ns": t_ns, "duration_ns": duration_ns}
    return values | {"wrong": 0, "algbw_gbs": algbw, "busbw_gbs": busbw}


def _fault(fault_ns: int, heal_ns: int) -> dict[str, Any]:
    struck = {"kind": "nic_down", "host": "host1", "nic": "eth1"}
    return struck | {"t_before_ns": fault_ns, "t_after_ns": fault_ns + 700_000, "heal_ns": heal_ns}


def _core(rng: random.Random, mode: int, fault_ns: int, heal_ns: int) -> dict[str, Any]:
    down_ns = fault_ns + int(rng.uniform(1e6, 6e6))
    events = [_event(down_ns, "path_down", "stalled")]
    if mode:
        events.append(_event(down_ns + int(rng.uniform(0.2e6, 2e6)), "migrated", "7 chunks go to the other NICs"))
    counts = {"replayed_chunks": 7 if mode else 0, "duplicate_chunks": 0}
    return {"mode": mode, "algo": "ring", "nics": [], "events": events} | counts


def _event(t_ns: int, kind: str, detail: str) -> dict[str, Any]:
    return {"t_ns": t_ns, "kind": kind, "nic": "eth1", "peer": "10.101.0.2", "detail": detail}


def _samples(
    rng: random.Random,
    mode: int,
    start_ns: int,
    iterations: list[dict[str, Any]],
    fault_ns: int | None,
    heal_ns: int,
    stopped: bool,
) -> dict[str, list[Any]]:
    """Counters of every NIC each 10 ms: bytes flow while an iteration runs, as the mode shares them out."""
    columns: dict[str, list[Any]] = {n: [] for n in ("t_ns", "host", "nic", "rx_bytes", "tx_bytes", "up")}
    last = iterations[-1]
    end_ns = heal_ns + 25_000_000
    busy_end_ns = fault_ns if stopped and fault_ns else last["t_ns"] + last["duration_ns"]
    first_ns = iterations[0]["t_ns"]
    for host in range(HOSTS):
        sent = [1000] * NICS
        for t_ns in range(start_ns + host * 1_100_000, end_ns, SAMPLE_NS):
            busy = first_ns <= t_ns < busy_end_ns
            for nic in range(NICS):
                share = _share(mode, nic, t_ns, fault_ns)
                dead = fault_ns is not None and fault_ns <= t_ns < heal_ns and host == 1 and nic == 1
                if busy:
                    sent[nic] += int(RATE_BIT_S / 8 * SAMPLE_NS / 1e9 * 0.98 * share * rng.uniform(0.94, 1.0))
                values = (t_ns, f"host{host}", f"eth{nic}", sent[nic], sent[nic], not dead)
                for column, value in zip(columns.values(), values, strict=True):
                    column.append(value)
    return columns


def _share(mode: int, nic: int, t_ns: int, fault_ns: int | None) -> float:
    """Part of its rate that a NIC carries. After the fault eth1 is out; eth0 is hot repair's back-up."""
    if fault_ns is None or t_ns < fault_ns:
        return 1.0
    if nic == 1 or t_ns < fault_ns + 20_000_000:
        return 0.0
    return 1.0 if mode == 2 or nic == 0 else 0.5
