"""One row per trial: the measures equal what the stored iterations and events say."""

import json
import math
from dataclasses import replace
from pathlib import Path
from statistics import median_high, median_low

import pytest
from synthetic_run import make_run

from r2ccl_core.planning.bound import bound_s, fault_free_ring_s
from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import model, traffic
from reports.after import after
from reports.core_log import core_events
from reports.load import load_folder
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.setting import Setting, setting_of
from reports.summary import scope, sentences
from reports.trial import Trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), repeats=2, sizes={1 << 20: 8, 64 << 20: 6})


def test_every_trial_is_one_row_with_every_measure(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded])
    assert len(frame) == len(loaded.final_trials) == 12
    assert set(METRICS) <= set(frame.columns)
    assert list(frame["system"].unique()) == ["failstop", "hot_repair", "balance"]


def test_numbers_on_an_axis_are_in_their_order(tmp_path: Path) -> None:
    """10 came before 2 in every figure and table."""
    folder = make_run(tmp_path, repeats=3, sizes={1 << 20: 4}, systems={"k16": 2, "k2": 2}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        stored = json.loads(path.read_text())
        axes = {"share": ["2", "4", "10"][stored["repeat"]]}
        path.write_text(json.dumps(stored | {"axes": axes, "repeat": 0}))
    frame = trial_frame([load_folder(folder)])
    assert [points["share"] for points in frame["points"]] == ["2", "2", "4", "4", "10", "10"]
    assert frame["system"].tolist() == ["k2", "k16"] * 3


def test_measures_equal_what_the_iterations_say(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded]).set_index("trial_id")
    for trial in loaded.final_trials:
        if trial.mode == 0:
            continue
        durations = {p: [i.duration_ns for i in trial.iterations if i.phase == p] for p in ("before", "hit", "after")}
        row = frame.loc[trial.trial_id]
        assert row["slowdown"] == pytest.approx(median_low(durations["after"]) / median_low(durations["before"]))
        assert row["hit_cost_ms"] == pytest.approx((durations["hit"][0] - median_low(durations["after"])) / 1e6)
        assert row["before_gbs"] == pytest.approx(
            median_high(i.busbw_gbs for i in trial.iterations if i.phase == "before")
        )


def test_speeds_times_and_their_ratio_are_of_one_iteration_and_hits_count_together(folder: Path) -> None:
    loaded = load_folder(folder)
    trial = next(t for t in loaded.final_trials if t.system == "balance" and t.size_bytes == 1 << 20)
    one = trial.iterations[0].model_copy(update={"duration_ns": 1_000_000, "busbw_gbs": 1.0})
    made = [("before", 1), ("before", 1), ("hit", 1), ("hit", 270), ("hit", 2), ("after", 2), ("after", 269)]
    iterations = tuple(
        one.model_copy(update={"iteration": n, "phase": phase, "duration_ns": ms * 1_000_000, "busbw_gbs": 1 / ms})
        for n, (phase, ms) in enumerate(made)
    )
    (row,) = trial_frame([replace(loaded, trials=(trial.model_copy(update={"iterations": iterations}),))]).to_dict(
        "records"
    )
    assert (row["after_ms"], row["after_gbs"], row["slowdown"]) == (2, 0.5, 2), "one stood still, and is no speed"
    assert (row["hit_ms"], row["hit_gbs"]) == (91, pytest.approx(1 / 91)), "two of three were fast, and one stood still"
    assert row["hit_cost_ms"] == 273 - 3 * 2
    assert row["lost_ms"] == sum(ms for _, ms in made[2:]) - 5


def switching(trial: Trial, at_ns: int) -> Trial:
    event = {"t_ns": at_ns, "kind": "switched", "nic": "", "peer": "", "detail": "forest in 3.0 ms"}
    core = {rank: values | {"events": [*values["events"], event]} for rank, values in trial.core.items()}
    return trial.model_copy(update={"core": core})


def test_after_a_switch_of_the_schedule_only_what_follows_it_counts(folder: Path) -> None:
    loaded = load_folder(folder)
    trial = next(t for t in loaded.final_trials if t.system == "balance" and t.size_bytes == 1 << 20)
    items = [i for i in trial.iterations if i.phase == "after"]
    switched = switching(trial, items[1].t_ns + 1000)
    parts = after(switched, core_events(switched))
    assert (parts.old, parts.switch, parts.steady) == ((items[0],), items[1], tuple(items[2:]))
    run = replace(loaded, trials=(switched,))
    (row,) = trial_frame([run]).to_dict("records")
    usual = median_low(i.duration_ns for i in items[2:])
    before = median_low(i.duration_ns for i in trial.iterations if i.phase == "before")
    assert row["slowdown"] == pytest.approx(usual / before)
    assert row["switch_ms"] == pytest.approx(items[1].duration_ns / 1e6)
    assert row["switch_cost_ms"] == pytest.approx((items[1].duration_ns - usual) / 1e6)
    hit = next(i for i in trial.iterations if i.phase == "hit")
    assert row["hit_cost_ms"] == pytest.approx((hit.duration_ns - items[0].duration_ns) / 1e6)
    assert "its switch of schedules made one operation" in " ".join(sentences(trial_frame([run]), []))
    # Where the first operation after the hit one switches, none is like the one that was hit.
    at_once = replace(loaded, trials=(switching(trial, items[0].t_ns + 1000),))
    (row,) = trial_frame([at_once]).to_dict("records")
    assert row["switch_ms"] == pytest.approx(items[0].duration_ns / 1e6)
    assert math.isnan(row["hit_cost_ms"]) and math.isnan(row["stall_ms"])
    sentences(trial_frame([at_once]), [])


def test_a_switch_back_after_the_repair_is_not_counted(folder: Path) -> None:
    trial = next(t for t in load_folder(folder).final_trials if t.system == "balance")
    assert trial.fault is not None
    assert trial.fault.heal_ns is not None
    assert after(switching(trial, trial.fault.heal_ns + 1), []).switch is None
    back = switching(trial, trial.fault.heal_ns + 1)
    assert after(back, core_events(back)).switch is None


def test_values_on_other_axes_are_never_in_one_case(folder: Path) -> None:
    loaded = load_folder(folder)
    changes = {"axes": {"nics": "2"}, "settings": {"cluster.nics": 2}}
    some = [t.model_copy(update=changes | {"trial_id": f"{t.trial_id}-nics=2"}) for t in loaded.final_trials]
    frame = trial_frame([replace(loaded, trials=(*loaded.final_trials, *some))])
    assert frame.groupby("case")["nics"].unique().map(list).to_list() == [[3], [2]]
    assert any("nics 2" in case for case in frame["case"])


def test_bytes_per_host_are_counted_and_stand_beside_the_schedules(folder: Path) -> None:
    frame = trial_frame([load_folder(folder)])
    row = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].iloc[0]
    by = {(b.host, b.phase, b.source): b.received_bytes / row["size_bytes"] for b in row["received_bytes"]}
    assert by["host1", "before", "schedule"] == by["host1", "after", "schedule"] == pytest.approx(4 / 3, rel=1e-6)
    # The synthetic NICs send at their full rate while an iteration runs.
    assert by["host0", "before", "counters"] == pytest.approx(4 / 3, rel=0.06)


def test_the_share_of_the_bound_is_bound_over_measured_time(folder: Path) -> None:
    frame = trial_frame([load_folder(folder)])
    row = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].iloc[0]
    rates = [2 / 3 * 3 * 500e6 / 8, 3 * 500e6 / 8, 3 * 500e6 / 8]
    least_s = bound_s("all_reduce", rates, 64 << 20)
    assert row["bound_share"] == pytest.approx(least_s / (row["after_ms"] / 1e3), rel=0.01)


def test_schedules_are_told_by_the_hosts_own_names(folder: Path) -> None:
    trial = next(t for t in load_folder(folder).final_trials if t.system == "balance")
    named = trial.evidence.model_copy(update={"clock_offsets_ns": {"node7": 0, "node3": 0, "node5": 0}})
    system = {"mode": 3, "env": {"R2CC_AR_MIN_BYTES": "0"}}
    told = {host: core | {"cost": {"alpha_s": 1e-4, "nic_bytes_s": 6e7}} for host, core in trial.core.items()}
    trial = trial.model_copy(update={"evidence": named, "mode": 3, "core": told})
    said = traffic.scheduled(trial, Setting(3, 3, 500e6), system, "node3")
    after_loss = {item.host: item.received_bytes for item in said if item.phase == "after"}
    assert list(after_loss) == ["node7", "node3", "node5"]
    assert min(after_loss, key=lambda host: after_loss[host]) == "node3"


def test_fail_stop_has_a_time_to_its_error_and_nothing_after_the_fault(folder: Path) -> None:
    loaded = load_folder(folder)
    frame = trial_frame([loaded]).set_index("trial_id")
    for trial in (t for t in loaded.final_trials if t.mode == 0):
        row = frame.loc[trial.trial_id]
        assert trial.error is not None
        assert row["error_after_ms"] * 1e6 == pytest.approx(trial.error.after_fault_ns)
        assert math.isnan(row["slowdown"])
        assert math.isnan(row["after_gbs"])


def test_models_and_limits_stand_beside_the_measures(folder: Path) -> None:
    frame = trial_frame([load_folder(folder)])
    assert frame.groupby("system")["model"].first().dropna().to_dict() == pytest.approx(
        {"hot_repair": 2, "balance": 1.5}
    )
    assert set(frame["limit_gbs"].dropna()) == {0.1875}
    assert set(frame["limit_after_gbs"].dropna()) == {0.125}


@pytest.mark.parametrize(
    ("collective", "gpus", "limit"),
    [
        # Two hosts exchange 1 byte for each byte of the vector; bus bandwidth counts 2 * (ranks - 1) / ranks of it.
        ("all_reduce", 1, 2.0),
        ("all_reduce", 2, 3.0),
        ("all_reduce", 8, 3.75),
        ("all_gather", 2, 3.0),
        ("reduce_scatter", 2, 3.0),
        ("broadcast", 2, 2.0),
        ("sendrecv", 2, 2.0),
        # Each of a host's two ranks sends half of its vector to the other host, and bus bandwidth counts 3 / 4.
        ("alltoall", 2, 1.5),
        ("", 2, 2.0),
    ],
)
def test_the_limit_of_bus_bandwidth_is_what_hosts_need_of_each_other(collective: str, gpus: int, limit: float) -> None:
    setting = Setting(hosts=2, nics=4, rate_bit_s=4e9, gpus=gpus)
    assert setting.limit_gbs(collective) == pytest.approx(limit)
    assert setting.limit_after_gbs(collective) == pytest.approx(limit * 3 / 4)


@pytest.mark.parametrize(
    ("size", "rate", "passes"),
    # Two hosts send a byte for each byte of the vector; two NICs of 500 Mbit/s let 266 KB pass, of 100 Gbit/s 50 MB.
    [(64 << 10, 500e6, True), (1 << 20, 500e6, True), (4 << 20, 500e6, False), (256 << 20, 100e9, True)],
)
def test_what_passes_in_a_burst_is_not_limited_by_the_rate(size: int, rate: float, passes: bool) -> None:
    setting = Setting(hosts=2, nics=2, rate_bit_s=rate, shaped=True)
    assert setting.passes_in_burst("all_reduce", size) is passes
    assert not Setting(hosts=2, nics=2, rate_bit_s=rate).passes_in_burst("all_reduce", size), "real NICs have no bucket"
    assert not setting.passes_in_burst("", size)


def test_models_say_nothing_of_what_passes_in_a_burst(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sizes={64 << 10: 4, 64 << 20: 4}, counters=False)
    stored = json.loads((folder / "run.json").read_text())
    stored["experiment"]["cluster"]["kind"] = "local"
    (folder / "run.json").write_text(json.dumps(stored))
    frame = trial_frame([load_folder(folder)])
    for size, known in ((64 << 10, False), (64 << 20, True)):
        own = frame[(frame["size_bytes"] == size) & (frame["system"] == "balance")]
        for column in ("share", "model", "floor", "bound_share", "limit_gbs", "limit_after_gbs"):
            assert own[column].notna().all() == known, column
        assert own["slowdown"].notna().all()


def test_with_two_ranks_a_host_the_models_have_six(folder: Path) -> None:
    loaded = load_folder(folder)
    workload = {**loaded.run.experiment["workload"], "gpus": 2}
    run = loaded.run.model_copy(update={"experiment": {**loaded.run.experiment, "workload": workload}})
    assert setting_of(run).ranks == 6 and setting_of(run, {"workload.gpus": 4}).ranks == 12
    frame = trial_frame([replace(loaded, run=run)])
    row = frame[(frame["system"] == "balance") & (frame["size_bytes"] == 64 << 20)].iloc[0]
    assert (row["hosts"], row["ranks"], row["model"]) == (3, 6, pytest.approx(1.5))
    # The bound speaks of hosts; T0 is the ring of all ranks.
    rates = [2 / 3, 1, 1]
    assert row["floor"] == pytest.approx(bound_s("all_reduce", rates, 1) / fault_free_ring_s(6, 1, 1))
    by = {(b.host, b.phase, b.source): b.received_bytes / row["size_bytes"] for b in row["received_bytes"]}
    assert by["host1", "before", "schedule"] == by["host1", "after", "schedule"] == pytest.approx(5 / 3, rel=1e-6)
    trial = next(t for t in loaded.final_trials if t.system == "balance" and t.size_bytes == 64 << 20)
    r2cc = model.of_system(trial.model_copy(update={"mode": 3}), setting_of(run), {})
    assert r2cc == pytest.approx(predicted_ratio(6, 1 / 3, 4))
    assert "3 hosts with 2 ranks and 3 NICs of 500 Mbit/s each" in scope(frame, setting_of(run))


def test_an_inconclusive_trial_has_a_status_but_no_measure(tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    path = folder / "trials/balance-1MiB-nic_down-r0/trial.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"status": "inconclusive", "expected": False}))
    row = trial_frame([load_folder(folder)]).set_index("trial_id").loc["balance-1MiB-nic_down-r0"]
    assert row["status"] == "inconclusive"
    assert all(math.isnan(row[name]) for name in METRICS)


@pytest.mark.parametrize("core", [{"0": None}, {"0": {"events": [None, {"kind": 3}]}}, {"x": {"events": "no"}}])
def test_strange_stats_of_a_core_do_no_harm(tmp_path: Path, core: object) -> None:
    folder = make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"core": core}))
    frame = trial_frame([load_folder(folder)])
    assert frame["detect_ms"].isna().all()
