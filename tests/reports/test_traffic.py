"""What hosts received: a NIC's bytes less the headers of its frames, in whole operations."""

import pandas as pd
import pytest
from synthetic_run import make_run

from reports.after import after
from reports.core_log import core_events
from reports.load import load_folder
from reports.traffic import HEADERS_BYTES, HostBytes, counted, over_schedule
from reports.trial import Trial

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


def before(trial: Trial, samples: pd.DataFrame, watched: pd.DataFrame | None) -> float:
    [found] = [b for b in counted(samples, watched, trial, after(trial, core_events(trial))) if b.phase == "before"]
    assert (found.host, found.source) == (HOST, "counters")
    items = [i for i in trial.iterations if i.phase == "before"]
    return found.received_bytes / (sum(i.duration_ns for i in items) / len(items) / MS)


def test_headers_are_taken_away_where_frames_were_counted(trial: Trial) -> None:
    samples, seldom = readings(trial, 10 * MS, 90_000), readings(trial, 100 * MS, 90_000)
    assert before(trial, samples, None) == pytest.approx(90_000, rel=1e-3)
    payload = 90_000 * (1 - HEADERS_BYTES / FRAME_BYTES)
    assert before(trial, samples, watch(seldom)) == pytest.approx(payload, rel=1e-4)
    small = readings(trial, 100 * MS, 90_000, frame_bytes=150)
    assert before(trial, samples, watch(small)) == pytest.approx(90_000 * 84 / 150, rel=1e-3)


def test_frames_that_are_not_known_take_nothing_away(trial: Trial) -> None:
    samples, frames = readings(trial, 10 * MS, 90_000), watch(readings(trial, 100 * MS, 90_000))
    as_counted = before(trial, samples, None)
    assert before(trial, samples, frames.assign(device="eth1")) == as_counted
    assert before(trial, samples, frames.assign(metric="tx_packets")) == as_counted
    assert before(trial, samples, frames.assign(value=float("nan"))) == as_counted
    middle = frames["t_ns"].median()
    set_back = frames["value"].where(frames["t_ns"] < middle, frames["value"] - frames["value"].max())
    assert before(trial, samples, frames.assign(value=set_back)) == as_counted
    begin_ns = next(i.t_ns for i in trial.iterations if i.phase == "before")
    too_late = frames[frames["t_ns"] > begin_ns + 200 * MS]
    assert before(trial, samples, too_late) == as_counted


def test_the_host_farthest_from_its_schedule_is_told() -> None:
    received = [
        *(HostBytes(host, "after", "counters", count) for host, count in (("a", 101.0), ("b", 195.0), ("c", 7.0))),
        *(HostBytes(host, "after", "schedule", count) for host, count in (("a", 100.0), ("b", 200.0))),
        HostBytes("a", "before", "counters", 1.0),
    ]
    assert over_schedule(received) == pytest.approx(0.975)
    assert over_schedule(received[:3]) is None
