"""What hosts received: a NIC's bytes less the headers of its frames, in whole operations."""

from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from reports import series
from reports.after import after
from reports.core_log import core_events
from reports.load import counters, load_folder
from reports.measures import trial_frame
from reports.setting import Setting
from reports.traffic import HEADERS_BYTES, HostBytes, counted, over_schedule, scheduled
from reports.trial import Evidence, Trial

MS = 1_000_000
FRAME_BYTES = 9000
HOST = "host0"


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    folder = make_run(tmp_path_factory.mktemp("runs"), repeats=1, sizes={64 << 20: 6}, counters=False)
    return next(t for t in load_folder(folder).final_trials if t.system == "balance")


def readings(trial: Trial, every_ns: int, bytes_a_ms: int, frame_bytes: int = FRAME_BYTES) -> pd.DataFrame:
    """One NIC that receives evenly all the time, from before the first operation until after the last."""
    first, last = trial.iterations[0], trial.iterations[-1]
    begin, end = first.t_ns - 300 * MS, last.t_ns + last.duration_ns + 300 * MS
    rows = [(t, HOST, "eth0", (t - begin) // MS * bytes_a_ms) for t in range(begin, end, every_ns)]
    frame = pd.DataFrame(rows, columns=["t_ns", "host", "nic", "rx_bytes"])
    return frame.assign(frames=frame["rx_bytes"] / frame_bytes)


def watch(frames: pd.DataFrame, metric: str = "rx_packets") -> pd.DataFrame:
    named = frames.rename(columns={"nic": "device", "frames": "value"})
    return named.assign(metric=metric)[["t_ns", "host", "device", "metric", "value"]]


def before(trial: Trial, samples: pd.DataFrame, watched: pd.DataFrame | None) -> tuple[float, bool]:
    """Bytes a millisecond, and whether that is exact."""
    [found] = [b for b in counted(samples, watched, trial, after(trial, core_events(trial))) if b.phase == "before"]
    assert (found.host, found.source) == (HOST, "counters")
    items = [i for i in trial.iterations if i.phase == "before"]
    span_ns = items[-1].t_ns + items[-1].duration_ns - items[0].t_ns
    return found.received_bytes * len(items) / (span_ns / MS), found.exact


def test_headers_are_taken_away_where_frames_were_counted(trial: Trial) -> None:
    samples, seldom = readings(trial, 10 * MS, 90_000), readings(trial, 100 * MS, 90_000)
    assert before(trial, samples, None) == (pytest.approx(90_000, rel=1e-3), False)
    payload = 90_000 * (1 - HEADERS_BYTES / FRAME_BYTES)
    assert before(trial, samples, watch(seldom)) == (pytest.approx(payload, rel=1e-4), True)
    small = readings(trial, 100 * MS, 90_000, frame_bytes=150)
    assert before(trial, samples, watch(small)) == (pytest.approx(90_000 * 84 / 150, rel=1e-3), True)


def test_frames_that_are_not_known_take_nothing_away(trial: Trial) -> None:
    samples, frames = readings(trial, 10 * MS, 90_000), watch(readings(trial, 100 * MS, 90_000))
    as_counted = before(trial, samples, None)
    assert not as_counted[1]
    assert before(trial, samples, frames.assign(device="eth1")) == as_counted
    assert before(trial, samples, frames.assign(metric="tx_packets")) == as_counted
    assert before(trial, samples, frames.assign(value=float("nan"))) == as_counted
    middle = frames["t_ns"].median()
    set_back = frames["value"].where(frames["t_ns"] < middle, frames["value"] - frames["value"].max())
    assert before(trial, samples, frames.assign(value=set_back)) == as_counted
    begin_ns = next(i.t_ns for i in trial.iterations if i.phase == "before")
    too_late = frames[frames["t_ns"] > begin_ns + 200 * MS]
    assert before(trial, samples, too_late) == as_counted


def test_one_nic_whose_frames_are_not_known_makes_its_host_inexact(trial: Trial) -> None:
    samples, frames = readings(trial, 10 * MS, 90_000), watch(readings(trial, 100 * MS, 90_000))
    two = pd.concat([samples, samples.assign(nic="eth1")])
    received, exact = before(trial, two, frames)
    assert not exact and received == pytest.approx(90_000 * (2 - HEADERS_BYTES / FRAME_BYTES), rel=1e-4)
    assert before(trial, two, pd.concat([frames, frames.assign(device="eth1")]))[1]


def test_pauses_between_operations_and_coarse_samples_lose_no_byte(trial: Trial) -> None:
    """Five operations of 8 ms, 4 ms apart, sampled every 10 ms: as many bytes as moved, but not told as exact."""
    first = next(i for i in trial.iterations if i.phase == "before")
    begins = [first.t_ns + n * 12 * MS for n in range(10)]
    items = tuple(
        first.model_copy(update={"iteration": n, "t_ns": begin, "duration_ns": 8 * MS})
        for n, begin in enumerate(begins)
    )
    short = trial.model_copy(update={"iterations": items, "core": {}})
    times = range(first.t_ns - 50 * MS, begins[-1] + 60 * MS, 10 * MS)
    moved = [sum(min(max(t - begin, 0), 8 * MS) for begin in begins) // 8 for t in times]
    samples = pd.DataFrame({"t_ns": times, "host": HOST, "nic": "eth0", "rx_bytes": moved})
    [found] = counted(samples, None, short, after(short, []))
    assert found.received_bytes == pytest.approx(MS, rel=0.06)
    assert not found.exact
    missing = short.model_copy(update={"iterations": items[:4] + items[5:]})
    assert counted(samples, None, missing, after(missing, [])) == []


def test_the_host_farthest_from_its_schedule_is_told() -> None:
    received = [
        *(HostBytes(host, "after", "counters", count) for host, count in (("a", 101.0), ("b", 195.0), ("c", 7.0))),
        HostBytes("d", "after", "counters", 150.0, exact=False),
        *(HostBytes(host, "after", "schedule", count) for host, count in (("a", 100.0), ("b", 200.0), ("d", 100.0))),
        HostBytes("a", "before", "counters", 1.0),
    ]
    assert over_schedule(received) == pytest.approx(0.975)
    assert over_schedule(received[:4]) is None


def test_a_trial_is_held_against_its_schedule_by_what_was_watched(tmp_path: Path) -> None:
    loaded = load_folder(make_run(tmp_path, repeats=1, sizes={64 << 20: 6}, systems={"balance": 2}))
    [trial] = loaded.final_trials
    assert pd.isna(trial_frame([loaded])["over_schedule"][0]), "headers are counted, too"
    bytes_so_far = counters(loaded, trial)
    assert not isinstance(bytes_so_far, str)
    rows = [
        (row.t_ns, row.host, row.nic, "rx_packets", row.rx_bytes / FRAME_BYTES)
        for row in bytes_so_far.itertuples()
    ]  # fmt: skip
    series.write(loaded.trial_folder(trial) / series.WATCH.file, series.WATCH, rows)
    row = trial_frame([loaded]).iloc[0]
    share = {(b.host, b.phase, b.source): b.received_bytes / row["size_bytes"] for b in row["received_bytes"]}
    keys = [key for key in share if key[2] == "counters"]
    far = max((share[host, phase, "counters"] / (4 / 3) for host, phase, _ in keys), key=lambda r: abs(r - 1))
    assert row["over_schedule"] == pytest.approx(far)
    assert far == pytest.approx(1, abs=0.06)


def test_only_our_communicators_schedules_are_known(trial: Trial) -> None:
    setting, system = Setting(3, 3, 500e6), {"mode": 2, "env": {"R2CC_ALGO": "forest"}}
    shares = [b.received_bytes / trial.size_bytes for b in scheduled(trial, setting, {}, None)]
    assert shares == pytest.approx([4 / 3] * 3, rel=1e-6)
    foreign = {host: {k: v for k, v in core.items() if k != "algo"} for host, core in trial.core.items()}
    assert scheduled(trial.model_copy(update={"core": foreign}), setting, {}, None) == []
    assert scheduled(trial, setting, system, "host1") == [], "what messages cost is not told"


def test_a_schedule_is_the_one_of_the_costs_that_its_ranks_agreed_on(trial: Trial) -> None:
    """4 hosts x 3 NICs: at 0.3 ms a message a forest has other trees, and other bytes a host, than usually."""
    big = trial.model_copy(update={"size_bytes": 256 << 20})
    setting, system = Setting(4, 3, 500e6), {"mode": 2, "env": {"R2CC_ALGO": "forest"}}

    def degraded(cost: dict[str, float] | None) -> float:
        core = {str(host): {"algo": "forest", "cost": cost} for host in range(4)}
        said = scheduled(big.model_copy(update={"core": core, "evidence": Evidence()}), setting, system, "host1")
        return next(b.received_bytes for b in said if (b.host, b.phase) == ("host1", "after")) / big.size_bytes

    assert degraded({"alpha_s": 3e-4, "nic_bytes_s": 6.25e7}) == pytest.approx(1.091, abs=0.002)
    assert degraded(None) == pytest.approx(1.0, abs=0.002)
    core = {str(host): {"algo": "forest", "cost": {"alpha_s": "?"}} for host in range(4)}
    assert scheduled(big.model_copy(update={"core": core}), setting, system, "host1") == []
