"""Figures by their data: what is drawn equals what the frame says. No pixel is compared."""

import random
import re
import tomllib
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.markers import MarkerStyle
from synthetic_run import make_run

from harness.systems.catalogue import CATALOGUE
from r2ccl_core.planning.algorithms import ALGORITHMS, for_losses
from r2ccl_core.schedules.r2cc_all_reduce import predicted_ratio
from reports import columns, embed, palette, stats
from reports.core_log import core_events
from reports.figures import (
    aftermath,
    bandwidth,
    hit_cost,
    host_bytes,
    k_sweep,
    overview,
    recovery,
    slowdown,
    style,
    timeline,
)
from reports.headline import headline
from reports.load import LoadedRun, counters, load_folder
from reports.measures import trial_frame
from reports.palette import GLYPHS, glyph
from reports.recovery import by_then, throughput
from reports.setting import setting_of
from reports.trial import SIMULATED, Trial
from reports.wording import number, plural, sized

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SIZES = {1 << 20: 12, 8 << 20: 6}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedRun:
    return load_folder(make_run(tmp_path_factory.mktemp("runs"), sizes=SIZES))


@pytest.fixture(scope="module")
def frame(loaded: LoadedRun) -> pd.DataFrame:
    return trial_frame([loaded])


def drawn_medians(ax: Axes, color: str) -> list[float]:
    """The heights of the markers of one colour that are joined or lined up by size."""
    lines = [line for line in ax.lines if line.get_color() == color and line.get_marker() not in ("None", "", "x")]
    return [float(y) for line in lines for y in np.atleast_1d(line.get_ydata()) if y == y]


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for ax in figure.axes for text in ax.texts]


@pytest.mark.parametrize(("panel", "column"), [(0, "before_gbs"), (1, "hit_gbs"), (2, "after_gbs")])
def test_bandwidth_points_are_the_medians_over_repeats(frame: pd.DataFrame, panel: int, column: str) -> None:
    ax = bandwidth.draw(frame).axes[panel]
    for system, (color, *_) in style.looks(style.systems_of(frame)).items():
        own = frame[frame["system"] == system].groupby("size_bytes")[column]
        expected = [stats.median(values) for _, values in own if values.notna().any()]
        assert drawn_medians(ax, color) == pytest.approx(expected)


def test_bandwidth_intervals_are_those_of_stats(frame: pd.DataFrame) -> None:
    ax = bandwidth.draw(frame).axes[0]
    color = style.looks(style.systems_of(frame))["balance"][0]
    spans = [line.get_ydata() for line in ax.lines if line.get_color() == color and len(line.get_ydata()) > 2]
    drawn = {(round(float(np.nanmin(y)), 9), round(float(np.nanmax(y)), 9)) for y in map(np.asarray, spans)}
    for _, values in frame[frame["system"] == "balance"].groupby("size_bytes")["before_gbs"]:
        low, high = stats.interval(values)
        assert (round(low, 9), round(high, 9)) in drawn


def test_the_limit_of_the_nics_is_a_line_before_and_after_the_fault(frame: pd.DataFrame) -> None:
    figure = bandwidth.draw(frame)
    assert [text for text in texts(figure) if "limit" in text] == ["NICs' limit 0.1875 GB/s", "NICs' limit 0.125 GB/s"]
    limits = [text for ax in figure.axes for text in ax.texts if "limit" in text.get_text()]
    assert all(text.get_bbox_patch() is not None and text.get_zorder() > 2 for text in limits), "no line crosses them"
    assert 0.1875 in [line.get_ydata()[0] for line in figure.axes[0].lines if len(line.get_ydata())]


def test_a_system_that_stopped_is_a_cross_on_zero_for_every_size(frame: pd.DataFrame) -> None:
    figure = bandwidth.draw(frame)
    for ax in figure.axes[1:]:
        crosses = [line for line in ax.lines if line.get_marker() == "x"]
        assert [list(line.get_ydata()) for line in crosses] == [[0]] * len(SIZES)
        (word,) = [text for text in ax.texts if text.get_text() == "stopped"]
        patch = word.get_bbox_patch()
        assert patch is not None and word.get_zorder() > max(line.get_zorder() for line in ax.lines), (
            "no line crosses it"
        )
    assert not [line for line in figure.axes[0].lines if line.get_marker() == "x"]


def test_slowdown_stands_against_the_models_and_the_floor(frame: pd.DataFrame) -> None:
    assert [line.value for line in slowdown.model_lines(frame)] == pytest.approx([1.125, 1.5, 2.0])
    ax = slowdown.draw(frame).axes[0]
    color = style.looks(style.systems_of(frame))["balance"][0]
    expected = frame[frame["system"] == "balance"].groupby("size_bytes")["slowdown"].median()
    assert drawn_medians(ax, color) == pytest.approx(list(expected))


def test_the_caption_of_the_slowdown_says_which_lines_are_drawn(frame: pd.DataFrame) -> None:
    assert "beside 2 models and 1 lower bound as lines" in slowdown.caption(frame)
    one = frame[frame["system"] == "balance"].drop(columns="floor")
    assert "beside 1 model as a line;" in slowdown.caption(one)


def test_captions_tell_the_number_of_repeats_and_who_is_left_out(frame: pd.DataFrame) -> None:
    assert "5 repeats per point" in bandwidth.caption(frame)
    assert "5 repeats per point, none for failstop (stopped)" in slowdown.caption(frame)
    twice = pd.concat([frame, frame[frame["system"] == "failstop"].assign(system="nccl")])
    assert "none for failstop and nccl (stopped)" in slowdown.caption(twice)
    thrice = pd.concat([twice, frame[frame["system"] == "failstop"].assign(system="ucx")])
    assert "none for failstop, nccl and ucx (stopped)" in slowdown.caption(thrice)
    short = frame.assign(slowdown=frame["slowdown"].where(frame["system"] != "balance"))
    assert "none for failstop (stopped), balance (no value)" in slowdown.caption(short)
    assert "the median iteration after it" in slowdown.caption(frame) and "mean" not in slowdown.caption(frame)
    flapping = slowdown.caption(frame.assign(comes_and_goes=True))
    assert "from the first that is hit until the repair over the mean of those before the fault in" in flapping
    both = slowdown.caption(frame.assign(comes_and_goes=frame["system"] == "balance"))
    assert "the median iteration after it" in both and "where the fault comes and goes" in both
    assert "5 repeats per point" in hit_cost.caption(frame)
    assert "30 trials" in aftermath.caption(frame)


def test_hit_cost_has_both_measures(frame: pd.DataFrame) -> None:
    figure = hit_cost.draw(frame)
    color = style.looks(style.systems_of(frame))["hot_repair"][0]
    for ax, column in zip(figure.axes, ("hit_cost_ms", "stall_ms"), strict=True):
        expected = frame[frame["system"] == "hot_repair"].groupby("size_bytes")[column].median()
        assert drawn_medians(ax, color) == pytest.approx(list(expected))
    assert "target" not in texts(figure), "the project's targets are no business of other experiments"


def test_a_system_has_one_colour_whoever_stands_beside_it(frame: pd.DataFrame) -> None:
    alone = frame[frame["system"] == "balance"]
    everybody = style.systems_of(frame)
    assert style.looks(style.systems_of(alone))["balance"] == style.looks(everybody)["balance"]
    with style.palette(columns.places(headline(frame))):
        assert style.looks(style.systems_of(alone))["balance"] == style.looks(everybody)["balance"]
        drawn = slowdown.draw(alone).axes[0].lines
    assert style.looks(everybody)["balance"][0] in {line.get_color() for line in drawn}


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_systems_of_an_experiment_differ_in_colour_or_mark(path: Path) -> None:
    entries = tomllib.loads(path.read_text()).get("system", [])
    found = palette.places(names := [entry.get("name", entry.get("use")) for entry in entries])
    assert len(set(found.values())) == len(set(names))
    known = [found[name].color for name in names if name in palette.OWN]
    assert len(set(known)) == len(known), "of the catalogue's, those that are compared differ in colour, too"


def test_every_system_of_the_catalogue_has_a_pair_of_its_own() -> None:
    assert palette.OWN.keys() == CATALOGUE.keys()
    assert len(set(palette.OWN.values())) == len(CATALOGUE)
    assert all(place.mark < palette.OF_OTHERS for place in palette.OWN.values())
    assert len(palette.GLYPHS) == len(style.MARKERS) == len(set(style.LINES)) == len(set(style.HATCHES))


def test_an_algorithm_has_one_colour_in_every_figure() -> None:
    """Green was the forest in the map of the planner's choices, and the system `auto` in every other figure."""
    records = ALGORITHMS.values()
    systems = {one.alias or one.name: one.color for one in records if (one.alias or one.name) in palette.OWN}
    assert systems.keys() >= {"hot_repair", *for_losses()}
    assert systems == {name: palette.COLORS[palette.OWN[name].color] for name in systems}
    assert len({one.color for one in records}) == len(records), "areas of one colour in the map"
    beside = {name: palette.OWN[name].color for name in ("failstop", "balance", "auto", *systems)}
    assert len(set(beside.values())) == len(beside), "the core's systems, which are compared with each other"


def test_the_colour_of_a_system_follows_from_its_name_alone() -> None:
    """Whatever else a report shows, measured or simulated. Two foreign names of one pair differ in the mark."""
    names = [*palette.OWN, *(f"{name}{SIMULATED}" for name in palette.OWN), "mine", *(f"k{k}" for k in range(40))]
    own = {name: palette.own(name) for name in names}
    assert all(own[name] == own[f"{name}{SIMULATED}"] for name in palette.OWN)
    chance = random.Random(7)
    for count in range(1, 40):
        chosen = chance.sample(names, count)
        found = palette.places(chosen)
        assert all(place.color == own[name].color for name, place in found.items())
        assert all(found[name] == own[name] for name in chosen if name in palette.OWN)
        assert len(set(found.values())) == len(found)
        assert palette.places(sorted(chosen)) == found
        drawn = style.looks(chosen).values()
        for part in ("marker", "line", "hatch"):
            assert len({(look.color, getattr(look, part)) for look in drawn}) == count, part


def test_systems_of_one_colour_differ_in_a_report_of_several_runs() -> None:
    shown = [("nccl", 1), ("failstop", 1), ("nccl", 2), (f"balance{SIMULATED}", 2), ("balance", 1)]
    found = palette.places_by_run(shown)
    assert len(set(found.values())) == len(shown)
    assert all(place.color == palette.own(name).color for (name, _), place in found.items())
    assert found["nccl", 2].mark == found[f"balance{SIMULATED}", 2].mark == 1, "the second run's"


def test_the_first_figure_has_a_row_a_system_and_says_so_in_words(frame: pd.DataFrame) -> None:
    lines = headline(frame)
    for form in (nullcontext, style.narrowed):
        with form():
            left, right = overview.draw(lines).axes
        assert [label.get_text() for label in left.get_yticklabels()] == ["failstop", "hot_repair", "balance"]
        assert "stopped" in [text.get_text() for text in left.texts]
        widths = [bar.get_width() for bar in right.patches]
        top = [line for line in lines if line.size_bytes == max(li.size_bytes for li in lines)]
        assert widths == pytest.approx([line["lost_ms"].median for line in top if line["lost_ms"].n])
    said = overview.result(lines)
    assert re.search(r"failstop, nic_down: 0\.\d+ GB/s healthy, stopped;", said)
    assert re.search(r"balance, nic_down: 0\.\d+ GB/s healthy, 0\.\d+ after the fault, \d+ ms lost", said)


def test_no_bar_hides_a_dot_of_the_aftermath(frame: pd.DataFrame) -> None:
    """A single trial was hidden behind its median, so that no system could be told."""
    single = frame.drop_duplicates(["system", "size_bytes"]).query("size_bytes == size_bytes.max()")
    assert all(line.get_marker() != "None" for line in aftermath.draw(single).axes[0].lines)
    assert "bars" not in aftermath.caption(single) and "every dot is one trial, the bars" in aftermath.caption(frame)
    lines = aftermath.draw(frame).axes[0].lines
    dots, bars = ([x for x in lines if (x.get_marker() != "None") is with_dots] for with_dots in (True, False))
    assert bars and min(dot.get_zorder() for dot in dots) > max(bar.get_zorder() for bar in bars)


def test_a_long_label_is_whole_in_every_kind_of_file(frame: pd.DataFrame, tmp_path: Path) -> None:
    """The PNG has the layout of the SVG: its letters were wider, and the first one began outside."""
    named = [frame.assign(system=frame["system"] + f" (simulated) (run {run}), eth0 of host1 flapping"[:42])
             for run in range(6)]  # fmt: skip
    drawn = overview.draw(headline(pd.concat(named)))
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    assert len(labels) == 18 and max(map(len, labels)) == overview.LABEL and not any("\n" in each for each in labels)
    embed.save(drawn, tmp_path, "long", "", "")
    dark = imread(tmp_path / "long.png")[..., :3].min(axis=2) < 0.6
    assert np.flatnonzero(dark.any(axis=0))[0] >= 6, "pixels, of 9"


def test_aftermath_has_one_dot_a_trial_and_stage(frame: pd.DataFrame) -> None:
    long = aftermath.times(frame)
    counted = long.groupby("stage").size()
    assert counted[aftermath.STAGES["detect_ms"]] == len(frame)
    assert counted[aftermath.STAGES["error_after_ms"]] == (frame["status"] == "failed").sum()
    lines = aftermath.draw(frame).axes[0].lines
    dots = sum(len(np.asarray(line.get_xdata())) for line in lines if line.get_linestyle() == "None")
    assert dots == len(long)


def test_a_timeline_stacks_what_each_host_sent(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance" and t.size_bytes == 8 << 20)
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    figure = timeline.draw(trial, rates, core_events(trial), setting_of(loaded.run))
    strip, *hosts = figure.axes
    assert [ax.get_ylabel() for ax in hosts] == ["host0", "host1", "host2"]
    assert "hit:" in " ".join(text.get_text() for text in strip.texts)
    grid, bands = timeline.stack(rates[rates["host"] == "host1"])
    dead = (grid > trial.fault.t_after_ns + 20e6) & (grid < trial.fault.heal_ns)  # type: ignore[union-attr,operator]
    assert bands["eth1"][dead].max() == 0
    assert bands["eth0"][dead].max() > 400


def test_the_hit_iteration_of_a_system_that_stopped_is_a_bar_until_its_error(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "failstop")
    last, error = trial.iterations[-1], trial.error
    assert error is not None
    assert timeline.unfinished(trial) == (last.t_ns + last.duration_ns, error.t_ns)
    going = next(t for t in loaded.trials if t.system == "balance")
    assert timeline.unfinished(going) is None
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    strip = timeline.draw(trial, rates, core_events(trial), setting_of(loaded.run)).axes[0]
    assert len([bars for bars in strip.collections if bars.get_hatch()]) == 1


def test_a_long_trial_has_few_bars_that_cover_the_same_time(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance" and t.size_bytes == 8 << 20)
    assert len(timeline.bars(trial.iterations)) == len(trial.iterations)
    first = trial.iterations[0]
    ms = 1_000_000
    phases = ["warmup"] * 3 + ["before"] * 20_000 + ["hit"] + ["after"] * 20_000
    long = [
        first.model_copy(update={"iteration": n, "phase": phase, "t_ns": n * ms, "duration_ns": ms})
        for n, phase in enumerate(phases)
    ]
    long[-1] = long[-1].model_copy(update={"duration_ns": 1000 * ms})
    bars = timeline.bars(long)
    assert [(bar.begin_ns // ms, bar.end_ns // ms) for bar in bars] == [
        (0, 3), (3, 20_003), (20_003, 20_004), (20_004, 40_003), (40_003, 41_003)
    ]  # fmt: skip
    assert [bar.colour for bar in bars[1:4]] == [timeline.BETWEEN, style.ACCENT, timeline.BETWEEN]
    assert timeline.bars([]) == timeline.labelled([]) == []


def test_durations_of_hit_iterations_do_not_cover_each_other(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance")
    each = [
        trial.iterations[0].model_copy(update={"phase": "hit", "t_ns": n, "duration_ns": 2 if n % 50 else 3})
        for n in range(200)
    ]
    assert [item.t_ns for item in timeline.labelled(each)] == [0, 50, 100, 150, 25, 75, 125, 175]


def test_no_line_of_a_fault_crosses_the_text_of_the_iteration_that_it_hit(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance")
    first = trial.iterations[0]
    hit = first.model_copy(update={"phase": "hit", "t_ns": 100, "duration_ns": 50})
    assert [timeline.label_ns(hit, begins) for begins in ([], [90], [120], [130, 120, 160])] == [100, 100, 120, 130]
    later = hit.model_copy(update={"t_ns": 222, "duration_ns": 778})
    assert timeline.labelled([hit, later]) == [later, hit]
    assert timeline.labelled([hit, later], [145]) == [later], "their texts are 77 apart of 900"


def test_several_faults_have_numbers_that_do_not_cover_each_other(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance")
    fault = trial.fault
    assert fault is not None
    strikes = [{"label": f"host{n} eth{n} nic down", "colour": "#D55E00"} for n in range(2)]
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    both = told(trial.model_copy(update={"further_faults": [fault]}), *strikes)
    figure = timeline.draw(both, rates, [], setting_of(loaded.run))
    with style.applied():
        figure.draw_without_rendering()
    strip = max(figure.axes, key=lambda ax: ax.get_position().y1)
    one, two = (text for text in strip.texts if text.get_text() in ("1", "2"))
    assert one.get_window_extent().x1 < two.get_window_extent().x0
    assert [text.get_text() for text in figure.legends[1].get_texts()] == [
        "1: host0 eth0 nic down", "2: host1 eth1 nic down"
    ]  # fmt: skip


def test_a_timeline_draws_a_fault_as_the_fault_says(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "balance")
    fault = trial.fault
    assert fault is not None and fault.heal_ns is not None
    own = timeline.Window(fault.t_before_ns, fault.heal_ns, "nic_down on host1 eth1", style.ACCENT)
    assert timeline.windows(told(trial)) == [own]
    hint = {"label": "host1 eth1 loses 2 %", "colour": "tab:orange"}
    assert timeline.windows(told(trial, hint)) == [own._replace(label=hint["label"], colour="tab:orange")]
    assert timeline.windows(told(trial, {"label": "no fault", "colour": None}))[0].colour is None
    hostile = timeline.windows(told(trial, {"label": "x" * 900, "colour": "</svg>"}))[0]
    assert hostile.colour == style.ACCENT and len(hostile.label) < 60

    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    figure = timeline.draw(told(trial, hint), rates, [], setting_of(loaded.run))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[-1] == "host1 eth1 loses 2 %"


def crowded(trial: Trial) -> tuple[Trial, list[dict[str, Any]]]:
    """The trial with four faults of long names, and every mark in the cores' logs."""
    fault = trial.fault
    assert fault is not None
    many = trial.model_copy(update={"further_faults": [fault] * 3})
    strikes = [{"label": f"host{n} eth{n} shares its wire with another flow", "colour": "tab:orange"} for n in range(4)]
    return told(many, *strikes), [{"kind": kind, "t_ns": fault.t_after_ns} for kind in timeline.EVENT_MARKS]


def test_every_event_of_a_timeline_has_its_own_mark() -> None:
    marks = [MarkerStyle(marker) for marker, _ in timeline.EVENT_MARKS.values()]
    assert len({mark.get_marker() for mark in marks}) == len(marks)
    assert all(mark.is_filled() for mark in marks), "their edges are white"
    assert {"path_down", "path_held", "path_returned"} <= timeline.EVENT_MARKS.keys()


@pytest.mark.parametrize("dpi", [72, 100, 180])
@pytest.mark.parametrize("nics", [3, 14])
def test_the_legends_of_a_timeline_fit_and_explain_every_mark(loaded: LoadedRun, dpi: int, nics: int) -> None:
    trial, events = crowded(next(t for t in loaded.trials if t.system == "balance"))
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    rates = pd.concat([rates.assign(nic=rates["nic"].astype(str) + "x" * n) for n in range(-(-nics // 3))])
    watched = pd.DataFrame(
        [{"panel": "CPU busy (%)", "host": f"machine-{n:07d}", "seconds": 0.1, "value": 5.0} for n in range(8)]
    )
    figure = timeline.draw(trial, rates, events, setting_of(loaded.run), watched)
    figure.set_dpi(dpi)
    with style.applied():
        figure.draw_without_rendering()
    strip = max(figure.axes, key=lambda ax: ax.get_position().y1)
    boxes = [each.get_window_extent() for each in (*figure.legends, strip)]
    assert len(boxes) == 4 and all(low.y1 <= high.y0 + 0.1 for high, low in pairwise(boxes))
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 for box in boxes)
    labels = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert {name for _, name in timeline.EVENT_MARKS.values()} <= labels
    assert sum("eth" in label for label in labels if "shares" not in label) == min(timeline.MAX_NICS, 3 * -(-nics // 3))
    assert {label for label in labels if "shares" in label} == {
        *(f"{n + 1}: host{n} eth{n} shares its wire with another flow" for n in range(2)),
        "3: host2 eth2 shares its wire with another flow and 1 more",
    }


def told(trial: Trial, *strikes: dict[str, Any]) -> Trial:
    return trial.model_copy(update={"evidence": trial.evidence.model_copy(update={"strikes": strikes})})


def test_bytes_per_host_are_medians_with_a_line_of_the_schedule(frame: pd.DataFrame) -> None:
    figure = host_bytes.draw(frame)
    long = host_bytes.counts(frame)
    for ax, phase in zip(figure.axes, ("before", "after"), strict=True):
        counted = long[(long["phase"] == phase) & (long["source"] == "counters")]
        expected = counted.groupby(["system", "host"])["share"].median()
        assert sorted(bar.get_height() for bar in ax.patches) == pytest.approx(sorted(expected))
        lines = [path.vertices[0][1] for c in ax.collections for path in c.get_paths()]
        assert lines == pytest.approx([4 / 3] * len(expected), rel=1e-5)
    assert "5 repeats per point" in host_bytes.caption(frame)
    assert re.search(r"balance before the fault: 1\.3\d*", host_bytes.result(frame)), host_bytes.result(frame)


def test_bytes_per_host_say_which_bars_and_lines_are_missing(frame: pd.DataFrame) -> None:
    """A run of all_gather with gloo: its panel after the fault had no bar, and the legend a line that none drew."""

    def only(row: Any) -> Any:
        counted = [one for one in row["received_bytes"] or () if one.source == "counters"]
        return [one for one in counted if row["system"] != "hot_repair" or one.phase == "before"] or None

    part = frame.assign(received_bytes=frame.apply(only, axis=1))
    labels = [text.get_text() for text in host_bytes.draw(part).legends[0].get_texts()]
    assert "hot_repair" in labels and "as the schedule says" not in labels
    told = host_bytes.caption(part)
    assert "black line" not in told and "as the schedule says" not in told
    assert (
        " Not after it: failstop, hot_repair, which ran no operation on the schedule that follows the fault until "
        in told
    )
    whole = host_bytes.caption(frame)
    assert "the black lines are what the system's schedule moves" in whole and "Not after it: failstop, which" in whole
    assert "as the schedule says" in [t.get_text() for t in host_bytes.draw(frame).legends[0].get_texts()]


def test_recovery_times_are_steps_one_a_trial(frame: pd.DataFrame) -> None:
    times, shares = recovery.steps(frame, "balance")
    own = by_then(frame[frame["system"] == "balance"]).dropna()
    assert list(times) == sorted(own)
    assert shares[-1] == 100
    drawn = [line for line in recovery.draw(frame).axes[0].lines if line.get_marker() == "o"]
    assert [list(line.get_xdata()) for line in drawn] == [list(times)]


def sweep_over_k(frame: pd.DataFrame) -> pd.DataFrame:
    own = frame[frame["system"] == "balance"]
    return own.assign(pipeline=[1, 2, 4, 8, 16] * (len(own) // 5))


def test_the_k_sweep_has_medians_and_the_formula(frame: pd.DataFrame) -> None:
    ks = sweep_over_k(frame)
    ax = k_sweep.draw(ks).axes[0]
    (points,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert list(points.get_ydata()) == pytest.approx(list(ks.groupby("pipeline")["slowdown"].median()))
    (formula,) = [line for line in ax.lines if line.get_marker() == "None"]
    assert formula.get_ydata()[0] == pytest.approx(predicted_ratio(3, 1 / 3, 1))
    assert formula.get_ydata()[-1] == pytest.approx(predicted_ratio(3, 1 / 3, 16))
    assert "2 repeats per measured point" in k_sweep.caption(ks)
    (formula,) = [line for line in k_sweep.draw(ks.assign(ranks=6)).axes[0].lines if line.get_marker() == "None"]
    assert formula.get_ydata()[0] == pytest.approx(predicted_ratio(6, 1 / 3, 1)), "ranks, not hosts"


def test_many_models_of_one_mode_are_no_lines(frame: pd.DataFrame) -> None:
    many = frame.assign(model=[1 + n / 100 for n in range(len(frame))])
    assert [line.text for line in slowdown.model_lines(many)] == ["no schedule beats 1.125"]


def test_systems_with_numbers_stand_in_their_order(frame: pd.DataFrame) -> None:
    named = frame.iloc[:4].assign(system=["k16", "k2", "k1", "\N{SUPERSCRIPT TWO}k"], mode=3)
    assert style.systems_of(named)[:3] == ["k1", "k2", "k16"]


def test_a_legend_has_no_more_columns_than_fit(frame: pd.DataFrame) -> None:
    long = frame.assign(system=frame["system"] + " (a-run-with-a-long-name-20260921-101500)")
    figure = slowdown.draw(long)
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width


def test_a_timeline_of_a_trial_without_iterations_can_be_drawn(loaded: LoadedRun) -> None:
    trial = next(t for t in loaded.trials if t.system == "failstop")
    rates = throughput(counters(loaded, trial))  # type: ignore[arg-type]
    bare = trial.model_copy(update={"iterations": (), "fault": None, "error": None})
    assert len(timeline.draw(bare, rates, [], setting_of(loaded.run)).axes) == 4


def test_colours_of_the_first_systems_differ_in_grey() -> None:
    def lightness(color: str) -> float:
        red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        luminance = 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2
        return 116 * float(np.cbrt(luminance)) - 16

    values = sorted(map(lightness, style.COLORS[:3]))
    assert min(np.diff(values)) > 20


def test_a_frame_without_a_fault_has_one_panel(tmp_path: Path) -> None:
    healthy = trial_frame([load_folder(make_run(tmp_path, sizes={1 << 20: 4}, fault=False, repeats=2))])
    assert len(bandwidth.draw(healthy).axes) == 1
    (panel,) = overview.draw(headline(healthy)).axes
    assert panel.get_xlabel() == "bus bandwidth (GB/s)" and len(panel.collections) == 3, "each with its interval"


def test_names_are_text_and_not_mathematics(frame: pd.DataFrame, tmp_path: Path) -> None:
    hostile = frame.assign(system=frame["system"].replace("balance", r"$\frac{</svg><script>"))
    with style.applied():
        for module in (bandwidth, slowdown, hit_cost, aftermath, recovery, host_bytes):
            module.draw(hostile).savefig(tmp_path / "figure.svg")
            assert "<script" not in (tmp_path / "figure.svg").read_text()


def test_eight_runs_have_eight_marks_in_figures_and_in_text() -> None:
    places = palette.places_by_run(("balance", run) for run in range(1, 9))
    with style.palette({f"balance (run {run})": place for (_, run), place in places.items()}):
        drawn = style.looks([f"balance (run {run})" for run in range(1, 9)]).values()
    assert {look.color for look in drawn} == {style.COLORS[2]}
    for part in ("marker", "line", "hatch"):
        assert len({getattr(look, part) for look in drawn}) == 8, part


def test_no_two_runs_have_one_mark_in_text() -> None:
    marks = [place.mark for place in palette.places_by_run(("balance", run) for run in range(1, 31)).values()]
    assert len({glyph(mark) for mark in marks}) == 30
    assert (glyph(marks[0]), glyph(marks[11]), glyph(marks[12])) == (GLYPHS[0], GLYPHS[11], "13")


@pytest.mark.parametrize("module", [bandwidth, slowdown, hit_cost, aftermath, recovery, host_bytes])
def test_every_figure_has_a_form_for_phones(frame: pd.DataFrame, module: Any) -> None:
    wide = module.draw(frame)
    with style.narrowed():
        figure = module.draw(frame)
    assert figure.get_figwidth() == style.NARROW_IN < wide.get_figwidth()
    figure.draw_without_rendering()
    assert figure.legends[0].get_window_extent().width <= figure.bbox.width
    assert [drawn_in(ax) for ax in figure.axes] == [drawn_in(ax) for ax in wide.axes], "the same data"
    lefts = {round(ax.get_position().x0, 1) for ax in figure.axes}
    assert len(lefts) == 1, "panels stand one above the other"


def drawn_in(ax: Axes) -> list[int]:
    """The numbers of points of everything that is drawn in a panel."""
    lines = [len(np.atleast_1d(line.get_xdata())) for line in ax.lines]
    return [*lines, *(len(c.get_offsets()) for c in ax.collections), len(ax.patches)]


def test_a_size_without_any_slowdown_says_that_it_is_not_known(frame: pd.DataFrame) -> None:
    def texts(of: pd.DataFrame) -> list[str]:
        return [text.get_text() for text in slowdown.draw(of).axes[0].texts]

    assert "not known" not in texts(frame)
    part = frame.assign(slowdown=frame["slowdown"].where(frame["size_bytes"] > 1 << 20))
    assert texts(part).count("not known") == 1


def test_figures_over_all_sizes_say_in_words_what_they_show(frame: pd.DataFrame) -> None:
    known = frame[frame["detect_ms"].notna()]
    for system, own in known.groupby("system")["detect_ms"]:
        assert f"{system} {number(own.median())} ms ({plural(len(own), 'trial')})" in aftermath.result(frame)
    assert "chunks moved" in aftermath.result(frame) or frame["migrate_ms"].isna().all()
    for system, own in by_then(frame).dropna().groupby(frame["system"]):
        shown = f"{system} {number(own.median())}, at most {number(own.max())} ms ({len(own)})"
        assert shown in recovery.result(frame)


def test_times_of_0_are_raised_for_the_logarithmic_axis_only(frame: pd.DataFrame) -> None:
    own = frame[frame["system"] == "balance"].head(4)
    apart = own.assign(detect_ms=[0.0, 0.0, 4.0, 4.0], migrate_ms=0.0, recover_ms=[0.0, 0.0, 10.36, 20.0])
    apart = apart.assign(recover_most_ms=[0.0, 0.0, 10.36, 20.0], by_mean=False)
    assert "loss noticed (core's log): balance 2 ms (4 trials)" in aftermath.result(apart)
    assert "chunks moved (core's log): balance 0 ms (4 trials)" in aftermath.result(apart)
    assert "traffic back (NIC counters): balance 5.18 ms (4 trials)" in aftermath.result(apart)
    assert "balance 5.18, at most 20 ms (4)" in recovery.result(apart)
    ax = aftermath.draw(apart).axes[0]
    bars = [line for line in ax.lines if line.get_color() == "#111111"]
    assert sorted(float(np.ravel(line.get_xdata())[0]) for line in bars) == pytest.approx([0.01, 2, 5.18])
    dots = sorted(float(x) for line in ax.lines if line not in bars for x in np.ravel(line.get_xdata()))
    assert dots == pytest.approx([*[0.01] * 6, 1, 1, 4, 4, 10.36, 20])
    assert drawn_times(recovery.draw(apart)) == [[1, 1, 10.36, 20]]


def test_a_trial_without_a_stop_stands_where_it_was_back_at_the_latest(frame: pd.DataFrame) -> None:
    own = frame[frame["system"] == "balance"].head(4)
    most = [3.0, 9.0, 5.0, 31.0]
    still = own.assign(recover_ms=[0.0, 0.0, 0.0, 30.0], recover_most_ms=most, by_mean=False)
    assert list(recovery.steps(still, "balance")[0]) == [3, 5, 9, 30]
    words = "o stop was seen in 3 trials, which count by their longest pause: at most 5 ms in the median, 9 ms in all"
    for module in (recovery, aftermath):
        assert words in module.result(still) and words in module.caption(still)
        assert "close samples before" not in module.result(still) + module.caption(still)
        assert "o stop was seen" not in module.result(still.assign(recover_ms=most))
    assert sorted(aftermath.times(still).query("stage.str.startswith('traffic')")["ms"]) == [3, 5, 9, 30]


def test_a_trial_without_a_baseline_stands_at_what_the_mean_leaves(frame: pd.DataFrame) -> None:
    """It was drawn as faster than those of which more was known."""
    own = frame[frame["system"] == "balance"].head(3)
    by_mean = own.assign(recover_ms=[0.0, 11.0, 2.0], recover_most_ms=[10.0, 11.0, 4.0], by_mean=[True, True, False])
    assert list(recovery.steps(by_mean, "balance")[0]) == [2, 10, 11]
    assert "≤" not in "".join(label.get_text() for label in recovery.draw(by_mean).axes[0].get_xticklabels())
    for module in (recovery, aftermath):
        for text in (module.result(by_mean), module.caption(by_mean)):
            assert "2 trials had less than 0.2 s of close samples before the fault" in text
            assert "up to its end" in text, "a trial whose hit iteration was short stands there"
            assert "o stop was seen" not in text and "older" not in text


def drawn_times(figure: Figure) -> list[list[float]]:
    return [list(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() != "None"]


def test_a_linear_axis_shows_times_of_0_where_they_are(frame: pd.DataFrame) -> None:
    still = frame[frame["system"] == "balance"].head(3).assign(recover_ms=0.0, recover_most_ms=0.0, by_mean=False)
    assert "balance 0, at most 0 ms (3)" in recovery.result(still)
    figure = recovery.draw(still)
    assert figure.axes[0].get_xscale() == "linear" and figure.axes[0].get_xlim() == (-0.06, 2)
    assert drawn_times(figure) == [[0, 0, 0]]


@pytest.mark.parametrize("latest_ms", [0.0, 40.0])
def test_systems_whose_traffic_never_fell_stand_beside_each_other_and_beside_the_axis(
    frame: pd.DataFrame, latest_ms: float
) -> None:
    own = frame[frame["system"] == "balance"].head(3)
    times = {"a": [0.0] * 3, "b": [0.0] * 3, "c": [0.0, 0.0, latest_ms]}
    still = pd.concat([own.assign(system=system, recover_ms=ms, recover_most_ms=ms) for system, ms in times.items()])
    figure = recovery.draw(still)
    figure.canvas.draw()
    ax = figure.axes[0]
    axis = ax.transAxes.transform((0, 0))[0]
    firsts = [float(line.get_transform().transform(line.get_xydata())[0][0]) for line in ax.lines]
    lines, markers = firsts[::2], firsts[1::2]
    assert lines == markers and len(lines) == 3
    assert min(np.diff([axis, *lines])) > 3, "pixels"


def test_a_panel_with_fewer_repeats_says_so(frame: pd.DataFrame) -> None:
    assert "first 5 repeats" not in hit_cost.caption(frame)
    few = frame.assign(stall_ms=frame["stall_ms"].where(frame["repeat"] == 0))
    assert "first 5 repeats per point, none for failstop (stopped); second 1 repeat per point, " in hit_cost.caption(
        few
    )


def test_recovery_counts_what_is_not_known_by_size_and_says_why(frame: pd.DataFrame) -> None:
    went_on = frame[frame["system"] == "balance"]
    known = went_on.assign(recover_ms=5.0)
    assert "not known" not in recovery.caption(known)
    smallest = known["size_bytes"].min()
    few = known.assign(recover_ms=known["recover_ms"].where(known["size_bytes"] != smallest))
    count = int((few["size_bytes"] == smallest).sum())
    assert f"{count} trials is not known ({count} of {sized(int(smallest))}): too short" in recovery.caption(few)
    stopped = few.assign(status="failed")
    assert "not known" not in recovery.caption(stopped)


def test_the_caption_says_what_dots_mean_of_lines_with_dots_only(frame: pd.DataFrame) -> None:
    own = frame[frame["system"] == "balance"].assign(detect_ms=0.0, recover_ms=0.0, recover_most_ms=5.0)
    own = own.assign(by_mean=False)
    both = "line of traffic back", "earlier than 0.01 ms"
    assert [text in aftermath.caption(own) for text in both] == [True, True]
    assert [text in aftermath.caption(own.assign(recover_ms=float("nan"))) for text in both] == [False, True]
    assert [text in aftermath.caption(own.assign(by_mean=True)) for text in both] == [False, True]
    later = own.assign(detect_ms=1.0, migrate_ms=1.0)
    assert [text in aftermath.caption(later) for text in both] == [True, False]


def test_alternative_texts_name_the_size_where_only_one_is_known(frame: pd.DataFrame) -> None:
    known = frame.assign(recover_ms=1.0)
    for result in (recovery.result, aftermath.result):
        assert result(known).startswith("medians over all sizes")
    smallest = frame["size_bytes"] == frame["size_bytes"].min()
    one = known.assign(recover_ms=known["recover_ms"].where(smallest))
    assert recovery.result(one).startswith("medians at 1MiB, and how many trials: ")


def test_a_caption_says_which_cell_has_no_median_and_why(frame: pd.DataFrame) -> None:
    small = (frame["system"] == "balance") & (frame["size_bytes"] == frame["size_bytes"].min())
    gone = frame.assign(**{name: frame[name].mask(small) for name in ("slowdown", "after_ms", "after_gbs")})
    assert "balance at 1MiB (no comparable iteration after the fault)" in slowdown.caption(gone)
    assert "after it: 5 repeats per point, none for balance at 1MiB (no comparable" in bandwidth.caption(gone)
    low = frame.assign(slowdown=frame["slowdown"].mask(small & (frame["repeat"] > 0)))
    low = low.assign(slowdown_reads_low=small & (frame["repeat"] > 0), disturbed_slowdown=small & (frame["repeat"] > 0))
    assert "balance at 1MiB (not known in 4 of 5 trials)" in slowdown.caption(low), "a lone dot is no median"
