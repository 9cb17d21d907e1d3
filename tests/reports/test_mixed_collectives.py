"""A run over several collectives and sizes: what is said names the one it is about, once, and fits where it stands."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from synthetic_run import make_run

from reports import columns, palette, stats
from reports.figures import bandwidth, slowdown
from reports.figures import overview as figure
from reports.headline import Line, headline
from reports.load import load_folder
from reports.measures import trial_frame
from reports.overview import overview, remarks
from reports.summary import sentences
from reports.wording import number

SIZES = {64 << 10: 6, 8 << 20: 6}
GOING = ("hot_repair", "balance")


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    """The later half of the repeats are all_gathers; after a fault they are half as slow again."""
    folder = make_run(tmp_path_factory.mktemp("runs"), repeats=6, sizes=SIZES, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        gathers = trial["repeat"] >= 3
        trial |= {"collective": "all_gather" if gathers else "all_reduce", "repeat": trial["repeat"] % 3}
        trial["axes"] = {"collective": trial["collective"]}
        for iteration in trial["iterations"]:
            if gathers and iteration["phase"] == "after":
                iteration["duration_ns"] = int(1.5 * iteration["duration_ns"])
        path.write_text(json.dumps(trial))
    return trial_frame([load_folder(folder)])


@pytest.fixture(scope="module")
def lines(frame: pd.DataFrame) -> list[Line]:
    return headline(frame)


def test_a_case_names_what_differs_and_nothing_twice(frame: pd.DataFrame, lines: list[Line]) -> None:
    assert set(frame["case"]) == {"all_reduce, nic_down", "all_gather, nic_down"}
    assert [name for name, _ in columns.about(lines)] == ["collective"]


def test_a_type_that_is_an_axis_is_said_once_and_of_each_operation(tmp_path: Path) -> None:
    folder = make_run(tmp_path, repeats=4, sizes={8 << 20: 6}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        trial["collective"] = ("all_reduce", "all_gather")[trial["repeat"] % 2]
        trial["dtype"] = ("float32", "float16")[trial["repeat"] // 2]
        trial |= {"axes": {"dtype": trial["dtype"], "collective": trial["collective"]}, "repeat": 0}
        path.write_text(json.dumps(trial))
    frame = trial_frame([load_folder(folder)])
    lines = headline(frame)
    assert [name for name, _ in columns.about(lines)] == ["dtype", "collective"]
    # What the axes do not say needs a column, which is no second one of an axis's heading.
    others = [replace(li, operation=f"{li.operation} (max)", beyond_axes="max") for li in lines]
    assert [name for name, _ in columns.about([*lines, *others])] == ["operation", "dtype", "collective"]
    reduces = frame["collective"] == "all_reduce"
    told = sentences(frame.assign(share=frame["share"].where(reduces)), [])
    assert any("bandwidth of all_reduce of float16 and all_reduce of float32 was" in text for text in told)
    titles = set(frame.loc[reduces, "title"])
    assert titles == {"all_reduce of float16, nic_down", "all_reduce of float32, nic_down"}
    # A run without the axis has the same case.
    assert "all_reduce, nic_down" in set(frame["case"])


def test_a_system_has_its_own_colour_whatever_stands_beside_it(lines: list[Line]) -> None:
    alone = columns.places([line for line in lines if line.system == "balance"])["balance"].color
    assert alone == columns.places(lines)["balance"].color == 2
    second = [*lines, *(replace(li, system="a", plain_system="a") for li in lines if li.system == "balance")]
    colors = {system: place.color for system, place in columns.places(second).items()}
    own = colors.pop("a")
    assert colors == {"failstop": 0, "hot_repair": 1, "balance": 2}
    assert own == palette.own("a").color


def test_every_row_of_the_first_figure_has_a_name_that_fits(lines: list[Line]) -> None:
    names = figure.names(figure.shown(lines))
    assert sorted(names) == sorted(f"{s}, {c}" for s in ("failstop", *GOING) for c in ("all_gather", "all_reduce"))
    assert "balance, all_gather, nic_down: 0." in figure.result(lines)


def test_the_first_table_tells_every_size(lines: list[Line]) -> None:
    shown = {row.system: row for row in overview(lines)}
    for name in GOING:
        of = {(li.size_bytes, li.operation): li["slowdown"].median for li in lines if li.system == name}
        large, small = (f"{of[size, 'all_reduce']:.3g} to {of[size, 'all_gather']:.3g}" for size in (8 << 20, 64 << 10))
        worst = f"worst, {large.rpartition(' ')[2]}: collective all_gather"
        model, *_ = {number(li.model) for li in lines if li.system == name}
        assert shown[name]["slowdown"].text == large
        assert shown[name]["slowdown"].detail == f"{worst}\nmodel {model}\n{small} at 64KiB"
        assert shown[name]["lost"].detail.endswith(" at 64KiB")


def test_a_system_that_stops_at_one_fault_and_survives_another_tells_both(frame: pd.DataFrame) -> None:
    """What it stopped at must not hide behind its speed at the fault that it survived."""
    milder = frame[frame["system"] == "balance"].assign(system="failstop", plain_system="failstop", mode=0)
    milder = milder.assign(scenario="slow", case=milder["case"] + ", slow", model=None)
    both = pd.concat([frame, milder])
    (row,) = [row for row in overview(headline(both)) if row.system == "failstop"]
    assert row["after"].text != "stopped"
    # Its cost of the milder fault alone must not look like that of a system that bore both.
    for name in ("after", "slowdown", "mean", "p99", "lost"):
        assert row[name].text != "\N{EN DASH}" and row[name].caveat == "stopped: nic_down", name
    (alone,) = [row for row in overview(headline(frame)) if row.system == "failstop"]
    assert {alone[name].caveat for name in ("slowdown", "mean", "p99", "lost")} == {""}
    (said,) = [text for text in sentences(both, []) if text.startswith("failstop (")]
    assert "went on in 1 of 2 scenarios" in said and "; it stopped in nic_down. 12 of its 24" in said
    # One fault, which stopped one of the collectives.
    stopped = (both["status"] == "failed") & (both["operation"] == "all_gather")
    one_of_them = both[~stopped & ((both["scenario"] != "slow") | (both["operation"] == "all_gather"))]
    one_of_them = one_of_them.assign(scenario="nic_down")
    (row,) = [row for row in overview(headline(one_of_them)) if row.system == "failstop"]
    assert row["after"].caveat.endswith("stopped: nic_down, collective all_reduce")


def test_what_the_rate_does_not_limit_has_no_share_of_it(frame: pd.DataFrame) -> None:
    """A share of the NICs' limit beside several collectives says of which it is."""
    of_reduces = frame.assign(share=frame["share"].where(frame["operation"] == "all_reduce"))
    (row,) = [row for row in overview(headline(of_reduces)) if row.system == "balance"]
    assert row["healthy"].detail.endswith(" of the NICs' limit of all_reduce")
    assert any("the bus bandwidth of all_reduce was" in text for text in sentences(of_reduces, []))
    assert any("the bus bandwidth was" in text for text in sentences(frame, []))
    unlimited = frame.assign(limit_gbs=None, limit_after_gbs=None)
    assert "dashed" not in bandwidth.caption(unlimited) and "dashed" in bandwidth.caption(frame)
    assert "of all NICs before the fault, of the remaining NICs after it." in bandwidth.caption(frame)
    of_means = "(after a fault that comes and goes, of the mean of all until its repair)"
    captions = (bandwidth.caption(frame.assign(comes_and_goes=some)) for some in (False, True))
    assert [of_means in text for text in captions] == [False, True]
    flap = bandwidth.caption(frame.assign(limit_after_gbs=float("nan")))
    assert "the rate of all NICs before the fault." in flap, "no line is drawn after it"


def test_a_fault_that_comes_and_goes_and_a_cost_below_zero_are_explained(lines: list[Line]) -> None:
    of_few = "A p99 of 3 iterations is nearly their maximum."
    assert remarks(lines) == [of_few]
    flapping = [replace(line, comes_and_goes=line.faulted) for line in lines]
    assert [text.partition(" is judged")[0] for text in remarks(flapping)] == ["A fault that comes and goes", of_few]
    assert "T/T0 is their mean over the mean" in remarks(flapping)[0]
    assert "The healthy speed is that of the median iteration" in remarks(flapping)[0]
    cheaper = stats.Estimate(-0.5, -0.6, -0.4, 3)
    saved = [replace(line, estimates={**line.estimates, "lost_share": cheaper}) for line in lines]
    assert [text.partition(" means")[0] for text in remarks(saved)] == ["Time lost below 0", of_few]


def test_a_systems_sentence_has_each_size_once(frame: pd.DataFrame) -> None:
    for name in GOING:
        (said,) = [text for text in sentences(frame, []) if text.startswith(f"{name} (")]
        assert re.search(r"T/T0 \S+ to \S+ at 64KiB, \S+ to \S+ at 8MiB", said), said
        assert re.search(r"lost \S+ to \S+ ms at 64KiB, \S+ to \S+ ms at 8MiB .*\(at most [0-9]+ ms\)", said), said


def test_a_comparison_names_the_collective(frame: pd.DataFrame) -> None:
    told = [text for text in sentences(frame, []) if text.startswith("After the fault")]
    assert [re.findall(r"\((all_\w+), nic_down\)", text) for text in told] == [["all_gather"], ["all_reduce"]]


def test_models_that_agree_share_a_line(frame: pd.DataFrame) -> None:
    two_nics = frame.assign(model=2.0, floor=1.98)
    texts = [line.text for line in slowdown.model_lines(two_nics)]
    assert texts[-1].startswith("model of ") and len(texts) == 2
    ax = slowdown.draw(two_nics).axes[0]
    heights = [text.xy[1] for text in ax.texts]
    low, high = ax.get_ylim()
    assert min(b - a for a, b in pairwise(heights)) >= 0.99 * slowdown.LABEL_HEIGHT * (high - low)


def test_words_and_first_table_tell_one_range_over_all_collectives_and_faults(frame: pd.DataFrame) -> None:
    slow = frame.assign(
        scenario="slow",
        case=frame["case"] + ", slow",
        slowdown=frame["slowdown"] * 1.1,
        before_gbs=frame["before_gbs"] * 0.9,
        share=frame["share"] * 0.9,
    )
    both = pd.concat([frame, slow])
    lines, texts = headline(both), sentences(both, [])
    for row in (row for row in overview(lines) if row.system in GOING):
        (said,) = [text for text in texts if text.startswith(f"{row.system} (")]
        ends = re.findall(r"([0-9.]+) \((\w+, collective all_\w+), 8MiB\)", said)
        assert " to ".join(value for value, _ in ends) == row["slowdown"].text, said
        assert [where for _, where in ends] == ["nic_down, collective all_reduce", "slow, collective all_gather"]
        cells = [li["before_gbs"].median for li in lines if li.system == row.system and li.size_bytes == 8 << 20]
        assert row["healthy"].text == f"{min(cells):.3g} to {max(cells):.3g}"
    shares = [100 * line["share"].median for line in lines if line.size_bytes == 8 << 20]
    assert any(f"was {min(shares):.0f} to {max(shares):.0f} % of what" in text for text in texts)
