"""What the hosts were doing: rates from counters, what is left out, what the figure draws, how an effect is told."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from synthetic_run import make_run

from reports import series
from reports.effect import effect_error_ms, effect_text
from reports.figures import aftermath, recovery, state, timeline
from reports.load import LoadedRun, counters, load_folder, log_events, nccl_trouble, watched
from reports.measures import trial_frame
from reports.recovery import throughput
from reports.report import _story, write_report
from reports.setting import setting_of
from reports.state import panels_of, state_frame
from reports.trial import Trial

S = 1_000_000_000


@pytest.fixture
def loaded(tmp_path: Path) -> LoadedRun:
    return load_folder(make_run(tmp_path, repeats=1, sizes={1 << 20: 4}, systems={"balance": 2}))


@pytest.fixture
def trial(loaded: LoadedRun) -> Trial:
    return loaded.trials[0]


def readings(trial: Trial) -> list[tuple[int, str, str, str, float | None]]:
    """Two hosts over three seconds around the fault; host1 resends 50 segments a second from the fault on."""
    assert trial.fault is not None
    zero, rows = trial.fault.t_before_ns, list[tuple[int, str, str, str, float | None]]()
    for tick in range(-10, 11):
        for host in ("host0", "host1"):
            t_ns = zero + tick * S // 10
            resent = 5.0 * max(0, tick) if host == "host1" else 0.0
            rows.append((t_ns, host, "cpu", "busy_share", 0.5))
            rows.append((t_ns, host, "tcp", "segments_retransmitted", 100 + resent))
            rows.append((t_ns, host, "eth0", "rx_dropped", 3.0))
            rows.append((t_ns + 100, host, "gpu0", "busy_share", 0.2 if host == "host0" else None))
            rows.append((t_ns + 150, host, "gpu1", "busy_share", 0.9 if host == "host0" else None))
            rows.append((t_ns + 100, host, "gpu0", "nvlink_tx_bytes", 1e8 * (tick + 10)))
            rows.append((t_ns + 150, host, "gpu1", "nvlink_tx_bytes", 1e8 * (tick + 10)))
    return rows


def table(rows: list[tuple[int, str, str, str, float | None]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(series.WATCH.columns))


def panel(frame: pd.DataFrame, label: str) -> pd.DataFrame:
    return dict(panels_of(frame))[label]


def test_counters_become_rates_and_shares_stay(trial: Trial) -> None:
    frame = state_frame(table(readings(trial)), trial)
    assert set(panel(frame, "CPU busy (%)")["value"]) == {50.0}
    resent = panel(frame, "TCP segments\nsent again (1/s)")
    late = resent[(resent["host"] == "host1") & (resent["seconds"] > 0.05)]["value"]
    assert late.to_numpy() == pytest.approx(50.0)
    assert set(resent[resent["host"] == "host0"]["value"]) == {0.0}
    assert resent["seconds"].min() == pytest.approx(-0.9)


def test_devices_of_a_host_are_joined(trial: Trial) -> None:
    frame = state_frame(table(readings(trial)), trial)
    assert panel(frame, "GPU busy (%)")["value"].to_numpy() == pytest.approx(90.0)
    assert panel(frame, "NVLink sent\n(GB/s)")["value"].to_numpy() == pytest.approx(2.0)


def test_nothing_is_shown_of_what_did_not_happen_or_is_not_there(trial: Trial) -> None:
    frame = state_frame(table(readings(trial)), trial)
    labels = [label for label, _ in panels_of(frame)]
    assert labels == ["CPU busy (%)", "TCP segments\nsent again (1/s)", "GPU busy (%)", "NVLink sent\n(GB/s)"]
    assert state_frame(table([]), trial).empty


def test_rdma_ports_that_are_not_active_or_gone_are_counted(trial: Trial) -> None:
    states = {"rxe0:1": [4.0, 4.0, 4.0], "rxe1:1": [4.0, 1.0, None]}
    rows = [(i * S, "h", port, "state", value) for port, values in states.items() for i, value in enumerate(values)]
    rows += [(i * S, "h", "rxe0:1", "gids", 2.0) for i in range(3)]
    assert [label for label, _ in panels_of(state_frame(table(rows), trial))] == ["RDMA ports\nnot active"]
    assert list(state_frame(table(rows), trial)["value"]) == [0.0, 1.0, 1.0]
    changed = state_frame(table([*rows, (3 * S, "h", "rxe0:1", "gids", 1.0)]), trial)
    assert list(panel(changed, "RDMA GIDs")["value"]) == [2.0, 2.0, 2.0, 1.0]


def test_a_counter_that_goes_back_tells_nothing(trial: Trial) -> None:
    rows = [(i * S, "h", "tcp", "segments_retransmitted", value) for i, value in enumerate([5.0, 9.0, 2.0, 3.0])]
    values = state_frame(table(rows), trial)["value"]
    assert list(values) == [4.0, 1.0]


def test_the_timeline_draws_the_frame_below_itself(loaded: LoadedRun, trial: Trial) -> None:
    frame = state_frame(table(readings(trial)), trial)
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    figure = timeline.draw(trial, rates, [], setting_of(loaded.run), frame)
    _, *hosts_and_panels = figure.axes
    panels = hosts_and_panels[rates["host"].nunique() :]
    assert {ax.get_xlim() for ax in figure.axes} == {figure.axes[0].get_xlim()}, "one axis of time"
    shown = [" ".join(ax.get_ylabel().split()) for ax in panels]
    assert shown == [" ".join(label.split()) for label, _ in panels_of(frame)]
    for ax, (_, part) in zip(panels, panels_of(frame), strict=True):
        drawn = [line for line in ax.lines if len(np.atleast_1d(line.get_ydata())) > 2]
        assert len(drawn) == part["host"].nunique()
        for line, (_, own) in zip(drawn, part.groupby("host"), strict=True):
            assert list(np.asarray(line.get_ydata())) == pytest.approx(list(own.sort_values("seconds")["value"]))
    assert "100 ms" in state.caption(frame)


def test_the_page_shows_it_and_a_broken_table_costs_only_itself(loaded: LoadedRun, trial: Trial) -> None:
    path = loaded.trial_folder(trial) / series.WATCH.file
    series.write(path, series.WATCH, readings(trial))
    assert "Below: the state of every host" in write_report(loaded.folder).read_text(encoding="utf-8")
    path.write_bytes(path.read_bytes()[:100])
    broken = write_report(loaded.folder).read_text(encoding="utf-8")
    assert "watch.parquet: broken or cut short" in broken and "Below: the state of every host" not in broken


def test_tables_come_back_as_they_were_written(loaded: LoadedRun, trial: Trial) -> None:
    folder, rows = loaded.trial_folder(trial), readings(trial)
    series.write(folder / series.WATCH.file, series.WATCH, rows)
    back = watched(loaded, trial)
    assert not isinstance(back, str)
    assert back["t_ns"].tolist() == [row[0] for row in rows]
    assert back["value"].isna().sum() == sum(row[4] is None for row in rows)
    event = (trial.iterations[0].t_ns + 1, "host0", 0, "nccl", "network", "INFO", "Using network r2ccl", "{}", False)
    series.write(folder / series.EVENTS.file, series.EVENTS, [event, (None, *event[1:])])
    told = log_events(loaded, trial)
    assert not isinstance(told, str)
    assert [tuple(row) for row in told.itertuples(index=False)] == [event], "a row without a time is none"


def test_what_nccl_complained_of_is_marked_in_the_timeline(loaded: LoadedRun, trial: Trial) -> None:
    assert nccl_trouble(log_events(loaded, trial)) == []
    at = trial.iterations[0].t_ns
    rows = [
        (at, "host0", 0, "nccl", "network", "INFO", "Using network Socket", "{}", False),
        (at + 5, "host0", 0, "nccl", "connection_error", "WARN", "closed by peer", "{}", True),
        (at + 6, "host0", 0, "core", "path_down", None, "stalled", "{}", None),
    ]
    series.write(loaded.trial_folder(trial) / series.EVENTS.file, series.EVENTS, rows)
    (mark,) = nccl_trouble(log_events(loaded, trial))
    assert (mark["t_ns"], mark["detail"]) == (at + 5, "closed by peer")
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    figure = timeline.draw(trial, rates, [mark], setting_of(loaded.run))
    stars = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
    assert [list(line.get_ydata()) for line in stars] == [[2.6]]


def test_a_table_of_a_newer_program_is_refused(loaded: LoadedRun, trial: Trial) -> None:
    newer = series.Table("watch", 9, series.WATCH.columns, series.WATCH.required)
    series.write(loaded.trial_folder(trial) / newer.file, newer, readings(trial))
    assert "version 9 is newer than this program's 1" in str(watched(loaded, trial))


def test_a_table_from_before_a_column_was_added_is_read(tmp_path: Path) -> None:
    old = series.Table(
        "nics", 1, {k: v for k, v in series.NICS.columns.items() if k not in series.NICS.added}, ("t_ns",)
    )
    series.write(tmp_path / "nics.parquet", old, [(5, "h", "eth0", 1, 2, True)])
    read = series.read(tmp_path / "nics.parquet", series.NICS, "x")
    assert not isinstance(read, str)
    assert list(read.columns) == list(old.columns)


@pytest.mark.parametrize(
    ("effect", "told"),
    [
        ({"t_ns": 1_234_000_000, "error_ns": 2_100_000}, "effect at 1.234 s ± 2.1 ms"),
        ({"t_ns": 0, "error_ns": 6_000_000}, "effect at 0.000 s ± 6.0 ms (more than 5 ms: not known well enough)"),
        ({"t_ns": "x", "error_ns": 1}, None),
        (None, None),
    ],
)
def test_the_moment_of_effect_is_told_with_its_uncertainty(trial: Trial, effect: object, told: str | None) -> None:
    begin = min(i.t_ns for i in trial.iterations if i.iteration >= 0)
    if isinstance(effect, dict) and isinstance(effect["t_ns"], int):
        effect = effect | {"t_ns": begin + effect["t_ns"]}
    evidence = trial.evidence.model_copy(update={"effects": [effect, {}]})
    after = trial.model_copy(update={"evidence": evidence})
    assert effect_text(after) == told
    assert effect_text(after, 1) is None and effect_text(after, 2) is None
    assert effect_error_ms(after) == (12 if "not known" in (told or "") else 0)


@pytest.mark.parametrize(("error_ns", "known"), [(2_000_000, True), (6_000_000, False)])
def test_figures_of_times_from_the_effect_say_where_it_is_not_known_well_enough(
    loaded: LoadedRun, error_ns: int, known: bool
) -> None:
    """The text of a trial said it, and neither the figures nor their alternative texts."""
    effects = {"effects": [{"t_ns": loaded.trials[0].iterations[0].t_ns, "error_ns": error_ns}]}
    trials = [t.model_copy(update={"evidence": t.evidence.model_copy(update=effects)}) for t in loaded.trials]
    run = replace(loaded, trials=tuple(trials))
    frame = trial_frame([run]).assign(recover_ms=1.0)
    told = [text(frame) for module in (aftermath, recovery) for text in (module.result, module.caption)]
    told += [_story(run, trial) for trial in trials if trial.core]
    assert told and all(("not known well enough" in text) is not known for text in told)
