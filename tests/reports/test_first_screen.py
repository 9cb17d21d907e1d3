"""The first screen of a report of many cells: table and figure fit, nothing is cut or left out silently."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pandas as pd
import pytest
from chromium_page import ChromiumPage, chromium
from synthetic_run import make_run

from reports.cells import Cell, cells_of
from reports.figures import overview as figure
from reports.figures import style
from reports.headline import Line, headline
from reports.load import load_folder, load_folders
from reports.measures import trial_frame
from reports.overview import Row, first_tables, overview, scope_note, small_print
from reports.page import html
from reports.report import content
from reports.screens import screen_of, screen_of_trials
from reports.summary import sentences
from reports.wording import number, plural

SYSTEMS = ("failstop", "hot_repair", "balance")
SCENARIOS, COLLECTIVES = ("flap", "nic_down", "rate_limit"), ("all_reduce", "reduce_scatter")
SIZE = 8 << 20


def mixed_run(runs: Path) -> Path:
    """Three systems, three faults and two collectives at two sizes; failstop goes on at the rate limit."""
    cells = list(product(SCENARIOS, COLLECTIVES))
    folder = make_run(runs, repeats=2 * len(cells), sizes={64 << 10: 6, SIZE: 6}, counters=False)
    for path in folder.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        scenario, collective = cells[trial["repeat"] // 2]
        trial |= {"scenario": scenario, "collective": collective, "repeat": trial["repeat"] % 2}
        trial["axes"] = {"collective": collective}
        if trial["system"] == "failstop" and scenario == "rate_limit":
            usual = next(i for i in trial["iterations"] if i["phase"] == "before")
            slow = usual | {"phase": "after", "duration_ns": 2 * usual["duration_ns"]}
            hit = [slow | {"iteration": 90, "phase": "hit"}, *(slow | {"iteration": n} for n in (91, 92))]
            trial |= {"status": "ok", "error": None, "iterations": [*trial["iterations"], *hit]}
        path.write_text(json.dumps(trial))
    return folder


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return trial_frame([load_folder(mixed_run(tmp_path_factory.mktemp("runs")))])


METRICS = ["before_gbs", "after_gbs", "after_ms", "slowdown", "lost_ms", "share", "error_after_ms", "checked", "wrong"]


def without(frame: pd.DataFrame, rows: "pd.Series[bool]", faulted: bool = True) -> pd.DataFrame:
    """`frame` with the trials in `rows` inconclusive, and if not `faulted` before their fault."""
    made = frame.copy()
    made.loc[rows, ["status", "expected", "disturbed", "reason"]] = ["inconclusive", False, "", ""]
    made.loc[rows, METRICS] = float("nan")
    made["checked"] = made["checked"].fillna(0)
    made.loc[rows, "faulted"] = faulted
    return made


def of(frame: pd.DataFrame, system: str, scenario: str, collective: str = "") -> "pd.Series[bool]":
    """The trials of a cell at the largest size."""
    found = (frame["system"] == system) & (frame["scenario"] == scenario) & (frame["size_bytes"] == SIZE)
    return found & (frame["collective"] == collective) if collective else found


@pytest.fixture(scope="module", params=[True, False], ids=["after the fault", "before the fault"])
def holed(request: pytest.FixtureRequest, frame: pd.DataFrame) -> pd.DataFrame:
    """Two cells have no conclusive trial."""
    rows = of(frame, "failstop", "rate_limit", "all_reduce") | of(frame, "hot_repair", "rate_limit", "all_reduce")
    return without(frame, rows, request.param)


def test_the_first_figure_says_which_cells_were_not_measured(holed: pd.DataFrame) -> None:
    lines = headline(holed)
    for form in (nullcontext, style.narrowed):
        with form():
            left = figure.draw(lines).axes[0]
        labels = [label.get_text() for label in left.get_yticklabels()]
        said = {labels[round(text.xy[1])].replace("\n", " "): text.get_text() for text in left.texts}
        missing = sorted(name for name, text in said.items() if text == "not measured")
        assert missing == ["failstop, rate_limit, all_reduce", "hot_repair, rate_limit, all_reduce"]
        assert sum(text == "stopped" for text in said.values()) == 4
    assert "Not measured: every trial is inconclusive." in figure.caption(lines)
    told = figure.result(lines)
    assert "failstop, rate_limit, all_reduce: not measured;" in told and "GB/s healthy" in told
    assert "\N{EN DASH}" not in told


def test_the_first_table_says_which_cells_its_rows_are_without(holed: pd.DataFrame, frame: pd.DataFrame) -> None:
    """Once a row. Each of its columns said it again, which pushed the figure of nine systems off the first sheet."""
    rows = {row.system: row for row in overview(headline(holed))}
    for system in ("failstop", "hot_repair"):
        row = rows[system]
        assert row.unmeasured == "not measured: rate_limit, collective all_reduce"
        assert "not measured" not in "".join(c.caveat for c in row.cells.values())
    for row in (rows["balance"], *overview(headline(frame))):
        assert not row.unmeasured


def test_a_system_of_which_nothing_was_measured_says_so(frame: pd.DataFrame) -> None:
    holed = without(frame, frame["system"] == "balance")
    row = next(row for row in overview(headline(holed)) if row.system == "balance")
    assert row.unmeasured == "not measured: all cells" and row["lost"].text == row["healthy"].text == "\N{EN DASH}"
    assert "balance: not measured, because every trial is inconclusive: all cells." in sentences(holed, [])


def test_a_number_that_is_not_known_anywhere_says_so_of_each_size_and_without_what(frame: pd.DataFrame) -> None:
    own = frame["system"] == "balance"
    made = without(frame, of(frame, "balance", "flap", "all_reduce"))
    slowed = own & (made["status"] != "inconclusive")
    made.loc[slowed, ["disturbed", "disturbed_slowdown"]] = ["slowed", True]
    made.loc[own, ["slowdown", "lost_ms"]] = float("nan")
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    for cell in (row["slowdown"], row["lost"]):
        assert cell.text == "not known" and cell.detail == "not known in 12 of 12 trials at 64KiB"
        assert cell.caveat.splitlines() == ["not known in 10 of 10 trials at 8MiB"]


def test_a_system_that_stopped_says_how_often_without_an_error(frame: pd.DataFrame) -> None:
    hung = (frame["system"] == "failstop") & (frame["scenario"] == "nic_down") & (frame["status"] == "failed")
    lines = headline(frame.assign(error_after_ms=frame["error_after_ms"].mask(hung)))
    own = [line for line in lines if line.system == "failstop" and line.scenario != "rate_limit"]
    row = next(row for row in overview(own) if row.system == "failstop")
    at_size = hung & (frame["size_bytes"] == SIZE)
    known = number(frame.loc[~hung, "error_after_ms"].max())
    assert row["after"].text == "stopped"
    assert row["after"].caveat == f"at most {known} ms after the fault; without an error: {at_size.sum()} of 8 trials"
    assert row["after"].detail == f"without an error: {hung.sum() - at_size.sum()} of 8 trials at other sizes"


def test_a_smaller_size_that_was_not_measured_is_named_with_it(frame: pd.DataFrame) -> None:
    small = (frame["size_bytes"] < SIZE) & (frame["system"] == "balance") & (frame["case"] == "all_reduce, flap")
    assert small.any()
    row = next(row for row in overview(headline(without(frame, small))) if row.system == "balance")
    assert row.unmeasured == "not measured: flap, collective all_reduce at 64KiB"


def test_the_note_does_not_claim_trials_of_cells_that_were_not_measured(
    holed: pd.DataFrame, frame: pd.DataFrame
) -> None:
    said = scope_note(headline(holed))
    assert "medians over 2 trials of each system, fault and collective that was measured; every size" in said
    assert said.endswith(
        "Not measured, because every trial is inconclusive: rate_limit, collective all_reduce (failstop, hot_repair)."
    )
    assert "measured" not in scope_note(headline(frame))


def test_the_summary_names_what_was_not_measured(holed: pd.DataFrame, frame: pd.DataFrame) -> None:
    told = sentences(holed, [])
    assert (
        "4 trials stayed inconclusive and are in no figure (2 of 2 of failstop, rate_limit, collective all_reduce, "
        "8MiB; 2 of 2 of hot_repair, rate_limit, collective all_reduce, 8MiB)."
    ) in told
    (own,) = [text for text in told if text.startswith("hot_repair (")]
    assert own.endswith(
        " Not measured, because every trial is inconclusive: rate_limit, collective all_reduce at 8MiB."
    )
    assert "ot measured" not in " ".join(sentences(frame, []))


def test_a_fault_that_was_never_measured_is_none_that_a_system_met_or_stopped_in(frame: pd.DataFrame) -> None:
    every = (frame["system"] == "hot_repair") & (frame["scenario"] == "rate_limit")
    (own,) = [text for text in sentences(without(frame, every), []) if text.startswith("hot_repair (")]
    assert "went on in 2 of 2 scenarios" in own and "stopped" not in own and "no iterations after" not in own
    assert "rate_limit, collective all_reduce at 8MiB; rate_limit, collective reduce_scatter at 8MiB; " in own
    assert own.endswith("; 1 more.")


def two_runs(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    runs = [
        frame.assign(run=f"run{n}", run_number=n, system=frame["plain_system"] + f" (run {n})")
        for n, frame in enumerate((first, second), start=1)
    ]
    return pd.concat(runs, ignore_index=True)


def of_two_runs(frame: pd.DataFrame) -> list[Line]:
    return headline(two_runs(frame, frame))


def test_the_summary_tells_what_stayed_inconclusive_by_run(frame: pd.DataFrame) -> None:
    flap = without(frame, of(frame, "balance", "flap"))
    limit = without(frame, of(frame, "hot_repair", "rate_limit", "all_reduce"))
    assert (
        "6 trials stayed inconclusive and are in no figure: "
        "4 of run 1 (2 of 2 of balance, flap, collective all_reduce, 8MiB; 2 of 2 of balance, flap, "
        "collective reduce_scatter, 8MiB); "
        "2 of run 2 (2 of 2 of hot_repair, rate_limit, collective all_reduce, 8MiB)."
    ) in sentences(two_runs(flap, limit), [])
    odd = two_runs(frame, frame.assign(expected=frame.index != 0, reason="lost"))
    assert f"1 trial did not end as expected (first: run 2, {frame.iloc[0]['trial_id']}: lost)." in sentences(odd, [])


def test_labels_are_whole_in_a_report_of_several_runs(frame: pd.DataFrame) -> None:
    lines = of_two_runs(frame)
    name = "hot_repair (run 1), rate_limit, reduce_scatter"
    assert name in figure.names(figure.shown(lines)) and f"{name}: 0." in figure.result(lines)
    for form in (nullcontext, style.narrowed):
        with form():
            drawn = figure.draw(lines)
        labels = drawn.axes[0].get_yticklabels()
        assert name in [label.get_text().replace("\n", " ") for label in labels]
        drawn.draw_without_rendering()
        boxes = [label.get_window_extent() for label in labels]
        assert min(box.x0 for box in boxes) >= 0
        tops = sorted((box.y0, box.y1) for box in boxes)
        assert all(one[1] <= other[0] + 1 for one, other in pairwise(tops)), "none overlaps another"


def test_a_label_that_is_cut_says_so(frame: pd.DataFrame) -> None:
    lines = headline(frame.assign(system=frame["system"] + "x" * 400))
    assert all(len(name) == 300 and name.endswith("\N{HORIZONTAL ELLIPSIS}") for name in figure.names([[lines[0]]]))


def test_of_many_cells_those_that_stopped_share_a_row_and_do_not_vanish(frame: pd.DataFrame) -> None:
    lines = of_two_runs(frame)
    cells, rows = cells_of(lines), figure.shown(lines)
    assert len(cells) == 36 and len(rows) == 22, "another fault at a point would have 4 rows"
    shared = [row for row in rows if len(row) > 1]
    assert [(row[0].system, len(row)) for row in shared] == [("failstop (run 1)", 4), ("failstop (run 2)", 4)]
    assert figure.caption(lines).endswith(
        " Cells of one system that stopped, or were not measured, share a row. The figure has 4 of 6 faults and points "
        "where a system went on, each with all its systems that went on: taken fault by fault, those where a system "
        "lost most; 8 more cells are in the table of all numbers."
    )
    assert re.search(
        r"failstop \(run 1\), 4 cells \(flap, nic_down\): \S+ to \S+ GB/s healthy, stopped;", figure.result(lines)
    )
    left, _ = figure.draw(lines).axes
    assert [text.get_text() for text in left.texts].count("stopped") == 2


def of_three_systems(frame: pd.DataFrame) -> pd.DataFrame:
    """36 cells of three systems, which all went on; the best of them loses a tenth, also where others lose most."""
    going = frame[frame["system"] != "failstop"]
    best = going[going["system"] == "balance"].assign(system="best", plain_system="best")
    best["lost_ms"] /= 10
    three = pd.concat([going, best], ignore_index=True)
    share = three["scenario"].map({"flap": 1.0, "nic_down": 10.0, "rate_limit": 100.0})
    more = [*COLLECTIVES, "broadcast", "alltoall"]
    parts = []
    for at, name in enumerate(more):
        part = three[three["collective"] == more[at % 2]].copy()
        part["lost_ms"] *= share * (at + 1)
        part["points"] = [{"collective": name}] * len(part)
        part["setup"] = part["operation"] = part["collective"] = name
        part["case"] = name + ", " + part["scenario"]
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def test_of_many_cells_systems_are_kept_or_left_out_together(frame: pd.DataFrame) -> None:
    """The system that lost least was left out beside two that lost more, and a mild fault beside hard ones."""
    lines = headline(of_three_systems(frame))
    cells, rows = cells_of(lines), figure.shown(lines)
    assert len(cells) == 36 and len(rows) == figure.MOST_ROWS
    kept: dict[str, set[str]] = {}
    for (line,) in rows:
        kept.setdefault(line.case, set()).add(line.system)
    assert len(kept) == 8 and all(systems == {"hot_repair", "balance", "best"} for systems in kept.values())
    for fault in SCENARIOS:
        own = {case: max(line["lost_ms"].median for line in cells if line.case == case)
               for case in dict.fromkeys(line.case for line in cells if line.scenario == fault)}  # fmt: skip
        shown = [case for case in own if case in kept]
        assert len(shown) >= 2
        assert min(own[case] for case in shown) >= max(own[case] for case in own if case not in kept)
    left_out = (
        " The figure has 8 of 12 faults and points, each with all its systems: taken fault by fault, those where a "
        "system lost most; 12 more cells are in the table of all numbers."
    )
    assert figure.caption(lines).endswith(left_out) and figure.result(lines).endswith(left_out)
    assert figure.result(lines).count("best, flap, ") == sum("flap" in case for case in kept)


def test_a_point_of_more_systems_than_rows_is_whole(frame: pd.DataFrame) -> None:
    going = frame[(frame["system"] == "balance") & (frame["scenario"] != "rate_limit")]
    going = going[going["collective"] == "all_reduce"]
    many = pd.concat([going.assign(system=f"s{n}") for n in range(30)], ignore_index=True)
    many["lost_ms"] *= many["scenario"].map({"flap": 1.0, "nic_down": 2.0})
    lines = headline(many)
    assert {(row[0].scenario, len(row)) for row in figure.shown(lines)} == {("nic_down", 1)}
    assert len(figure.shown(lines)) == 30
    assert figure.caption(lines).endswith(
        " The figure has 1 of 2 faults, each with all its systems: those where a system lost most; 30 more cells are "
        "in the table of all numbers."
    )
    lacks = headline(many.assign(lost_ms=many["lost_ms"].mask(many["system"] == "s0")))
    assert "those where a system is known to have lost most" in figure.caption(lacks)


def test_of_several_faults_the_cost_of_each_is_told(frame: pd.DataFrame) -> None:
    three = of_three_systems(frame)
    (told,) = [text for text in sentences(three, []) if text.startswith("Time lost by fault")]
    assert told.startswith(
        "Time lost by fault at 8MiB (medians of all points that the systems share, the least in sum first): flap: best "
    )
    cells = [line for line in cells_of(headline(three)) if line.scenario == "flap" and line.system == "best"]
    ends = sorted(line["lost_ms"].median for line in cells)
    assert f"flap: best {number(ends[0])} to {number(ends[-1])} ms, " in told
    assert re.search(r"; nic_down: best .*; rate_limit: best ", told)
    cell = of(three, "balance", "nic_down", "broadcast")
    lacks = three.assign(lost_ms=three["lost_ms"].mask(cell))
    (told,) = [text for text in sentences(lacks, []) if "lost by fault" in text]
    points = len({line.case for line in cells_of(headline(three)) if line.scenario == "nic_down"})
    others = [line for line in cells_of(headline(three)) if line.scenario == "nic_down" and line.system == "best"]
    ends = sorted(line["lost_ms"].median for line in others if "broadcast" not in line.case)
    assert f"; nic_down: best {number(ends[0])} to {number(ends[-1])} ms, " in told, "the other points are known"
    assert f" ms (of {points - 1} of {points} points; not known for balance at the others); rate_limit: " in told
    none_known = three.assign(lost_ms=three["lost_ms"].mask(of(three, "balance", "nic_down")))
    (told,) = [text for text in sentences(none_known, []) if "lost by fault" in text]
    assert "; nic_down: not known for balance; rate_limit: " in told
    only = three[(three["system"] != "balance") | (three["collective"] != "alltoall")]
    (less,) = [text for text in sentences(only, []) if text.startswith("Time lost by fault")]
    assert f"flap: best {number(ends[0])} to {number(ends[-1])} ms, " not in less, "only points that all have"
    for none in (three[three["scenario"] == "flap"], three[three["system"] == "best"], two_runs(three, three)):
        assert not any(text.startswith("Time lost by fault") for text in sentences(none, []))


def test_trials_that_ended_before_the_cost_was_over_are_told_beside_their_time_lost_and_not_compared(
    frame: pd.DataFrame,
) -> None:
    three = of_three_systems(frame)
    flaps, early = three["scenario"] == "flap", three["repeat"] == 0
    cut = three.assign(cost_goes_on=of(three, "balance", "flap", "broadcast") & early, to_be_repaired=flaps)
    (told,) = [text for text in sentences(cut, []) if "lost by fault" in text]
    # Of all trials in the fault that is repaired, also in cells that saw all of the cost.
    count, all_trials = int(cut["cost_goes_on"].sum()), int((flaps & (three["size_bytes"] == SIZE)).sum())
    assert (
        f": flap: not compared, because {count} of {all_trials} trials ended before the cost was over and saw only"
        in told
    )
    # The figure ranked them by what was seen, without a word, where the table says "ended before the cost was over".
    lines = headline(cut)
    marked = [part for part in figure.result(lines).split("; ") if part.endswith(" lost, in part")]
    assert len(marked) == 1 and marked[0].startswith("balance, flap, broadcast: ")
    assert "In part: trials ended before the cost was over" in figure.caption(lines)
    assert "in part" not in (figure.result(headline(three)) + figure.caption(headline(three))).lower()
    assert [t.get_text() for t in figure.draw(lines).axes[1].texts if t.get_text().endswith(", in part")]
    which = f"{count} of {int(of(three, 'balance', 'flap').sum())} trials ended before the cost was over"
    own = [text for text in sentences(cut, []) if "over the whole trial" in text and which.partition(" of ")[0] in text]
    assert [text.partition(" ")[0] for text in own if "ended before the cost was over)" in text] == ["balance"]
    (table,) = first_tables(headline(cut))
    caveats = {row.system: row["lost"].caveat for row in table.rows}
    assert caveats["balance"].startswith(which) and "cost" not in caveats["best"]
    remark = f"Time lost by {plural(count, 'trial')} that ended before the rep"
    assert [text for text in table.remarks if text.startswith(remark)]
    # A cell whose median is not known is not in the number, so its trials are no caveat of it.
    lacks = cut.assign(lost_ms=cut["lost_ms"].mask(cut["cost_goes_on"]))
    unknown = of(three, "balance", "flap", "broadcast")
    lacks = lacks.assign(disturbed=unknown.map({True: "slow", False: ""}), reads_low=unknown)
    (table,) = first_tables(headline(lacks))
    (caveat,) = [row["lost"].caveat for row in table.rows if row.system == "balance"]
    assert "broadcast: not known in " in caveat and "ended before" not in caveat
    for none in (three, cut.assign(lost_ms=float("nan"))):
        assert not [text for text in first_tables(headline(none))[0].remarks if "before the repair" in text]


def test_a_run_without_a_conclusive_trial_says_why_and_keeps_the_unit(frame: pd.DataFrame) -> None:
    why = "no rank said anything for 0.02 s: raise sweep.limits.iteration"
    rows = frame["system"] != ""
    none = without(frame, rows).assign(reason=why, before_ms=float("nan"))
    (told,) = [text for text in sentences(none, []) if "stayed inconclusive" in text]
    assert told.endswith(f". Reason: {why} ({len(none)} times).")
    assert screen_of(headline(none)).unit == "GB/s"


def test_the_words_and_the_table_are_of_one_screen(frame: pd.DataFrame) -> None:
    """Words took the first screen of the workload, and the table the first with a number."""
    in_ms = frame.assign(before_gbs=float("nan"), after_gbs=float("nan"))
    assert [screen_of(headline(some)).unit for some in (frame, in_ms)] == ["GB/s", "ms"]
    for some in (frame, in_ms):
        assert screen_of_trials(some) is screen_of(headline(some))


def test_of_many_cells_without_a_fault_the_first_are_shown(frame: pd.DataFrame) -> None:
    healthy = frame.assign(faulted=False, status="ok", lost_ms=float("nan"))
    assert figure.caption(of_two_runs(healthy)).endswith(
        " The figure has the first 4 of 6 faults and points, each with all its systems; 12 more cells are in the table "
        "of all numbers."
    )


def test_of_many_cells_those_that_were_not_measured_share_a_row(frame: pd.DataFrame) -> None:
    lines = of_two_runs(without(frame, of(frame, "balance", "flap") | of(frame, "balance", "nic_down")))
    told = figure.result(lines)
    assert "balance (run 2), 4 cells (flap, nic_down): not measured" in told
    assert "share a row." in figure.caption(lines)


def test_eighteen_cells_make_no_high_figure(frame: pd.DataFrame) -> None:
    lines = headline(frame)
    assert len(figure.shown(lines)) == 18
    assert figure.draw(lines).get_figheight() < 3
    few = [line for line in lines if line.scenario == "nic_down" and line.points["collective"] == "all_reduce"]
    assert figure.draw(few).get_figheight() == pytest.approx(3 * 0.3 + 1.15)


@pytest.fixture(scope="module", params=[1, 2], ids=["one run", "two runs"])
def page(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ChromiumPage, int]]:
    """The report of one or two runs: 18 cells of three systems, or 36 of six."""
    made = tmp_path_factory.mktemp("runs")
    runs = load_folders([mixed_run(made / f"run{number}") for number in range(request.param)])
    frame = trial_frame(runs)
    report = made / "report.html"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("reports.report.FIGURES", ())  # only the first screen's
        patched.setattr("reports.report.MAX_TIMELINES", 0)
        report.write_text(html(content(runs, frame, headline(frame), made / "figures")))
    with ChromiumPage(chromium() or "", tmp_path_factory.mktemp("profile")) as opened:
        opened.open(report)
        opened.evaluate("document.querySelector('#first img').decode().then(() => true)")
        yield opened, request.param


def bottom(page: ChromiumPage, of: str) -> float:
    return float(page.evaluate(f"document.querySelector('{of}').getBoundingClientRect().bottom + scrollY"))


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")
def test_the_table_and_the_figure_of_many_cells_are_on_the_first_screen(page: tuple[ChromiumPage, int]) -> None:
    opened, runs = page
    opened.send("Emulation.setEmulatedMedia", media="screen")
    opened.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    assert bottom(opened, "table.overview") < bottom(opened, "#first img") < (720 if runs == 1 else 900)
    # A4 less its margins of 12 mm, in CSS pixels.
    opened.send("Emulation.setEmulatedMedia", media="print")
    opened.send("Emulation.setDeviceMetricsOverride", width=703, height=1032, deviceScaleFactor=1, mobile=False)
    assert bottom(opened, "#first table") < bottom(opened, "#first figure") < 1032
    assert opened.evaluate("document.documentElement.scrollWidth") <= 703, "all numbers, with faults and collectives"
    heads = "[...document.querySelectorAll('#first th')].filter(e => e.offsetWidth).map(e => e.firstChild.textContent)"
    assert {"mean", "p99"} <= set(opened.evaluate(heads)), "which paper did not have"
    assert opened.evaluate("document.querySelector('#first table').getBoundingClientRect().right") <= 703
    numbers = "[...document.querySelectorAll('#first td strong')]"
    assert opened.evaluate(f"{numbers}.every(e => e.getClientRects().length === 1)"), "no number is broken"
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    assert opened.evaluate(f"{numbers}.every(e => ({size})(e) >= 10)"), "7.5 pt"
    note = "document.querySelector('#first .note')"
    assert opened.evaluate(f"({size})({note}) < ({size})(document.body)"), "small print was larger than the text"


SHOWN = "[...document.querySelectorAll('{}')].filter(e => e.checkVisibility()).map(e => e.textContent).join()"


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [1280, 420])
def test_details_are_shown_on_demand_caveats_and_paper_have_all(page: tuple[ChromiumPage, int], width: int) -> None:
    opened, _ = page
    opened.send("Emulation.setEmulatedMedia", media="screen")
    opened.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
    small, box = SHOWN.format("table.overview td .ci"), "document.querySelector('#details')"
    assert "stopped: flap, nic_down" in opened.evaluate(small) and "model" not in opened.evaluate(small)
    opened.evaluate(f"{box}.click()")
    assert "stopped: flap, nic_down" in opened.evaluate(small) and "model 1.5" in opened.evaluate(small)
    opened.evaluate(f"{box}.click()")
    opened.send("Emulation.setEmulatedMedia", media="print")
    assert "model 1.5" in opened.evaluate(small) and not opened.evaluate(SHOWN.format("#details"))


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="no chromium on this machine")
def test_a_long_note_beside_a_number_takes_no_width_from_the_other_columns(page: tuple[ChromiumPage, int]) -> None:
    opened, _ = page
    opened.send("Emulation.setEmulatedMedia", media="screen")
    opened.send("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    note = "'<strong>stopped</strong><span class=\"ci\">' + 'at most 4.55 ms after the fault at 64KiB; '.repeat(6)"
    widths = opened.evaluate(
        "(() => { const table = document.querySelector('table.overview'), whole = table.innerHTML;"
        f"for (const row of table.tBodies[0].rows) row.cells[2].innerHTML = {note};"
        "const widths = [...table.querySelectorAll('th')].map(e => e.offsetWidth);"
        "table.innerHTML = whole; return widths })()"
    )
    assert max(widths) < 400, "of the 1136 of the page"


def test_small_print_is_as_high_as_its_lines_when_they_are_folded_and_what_it_is_without() -> None:
    """With details shown, the axis of the first figure was below the fold: a line of 70 letters takes three."""
    long = Cell(
        "1.99", "1.94 to 2.04\n1.21 at 64KiB (flap: not known in 1 of 2 trials, 1.39 in the other)", "flap: not known"
    )
    rows = [
        Row("a", {"healthy": Cell("1"), "slowdown": long}, ""),
        Row("b", {"wrong": Cell("0", "in 9 iterations")}, ""),
    ]
    assert small_print(rows) == 1 + 3 + 1 + 1


def test_few_details_are_shown_at_first(tmp_path: Path) -> None:
    few = load_folders([make_run(tmp_path, repeats=2, sizes={SIZE: 6}, counters=False)])
    frame = trial_frame(few)
    lines = headline(frame)
    assert '<input type="checkbox" id="details" checked>' in html(content(few, frame, lines))
    (line,) = [line for line in lines if line.system == "balance" and line.faulted]
    (row,) = [row for row in overview(lines) if row.system == "balance"]
    assert [row[name].text for name in ("mean", "p99")] == [
        number(line[f"{name}_ms"].median) for name in ("mean", "p99")
    ]


def test_a_run_without_the_largest_size_has_its_rows_and_says_its_size(frame: pd.DataFrame) -> None:
    lines = headline(two_runs(frame, frame[frame["size_bytes"] < SIZE]))
    rows = overview(lines)
    assert [(row.system, row.size) for row in rows] == [
        *((f"{system} (run 1)", "") for system in SYSTEMS), *((f"{system} (run 2)", "at 64KiB") for system in SYSTEMS)
    ]  # fmt: skip
    assert {line.system for line in cells_of(lines)} == {row.system for row in rows}
    assert scope_note(lines).startswith("At 8MiB unless another size is named")
    few = [line for line in lines if line.scenario == "nic_down" and line.points["collective"] == "all_reduce"]
    assert "balance (run 2), 64KiB" in figure.names(figure.shown(few))
    assert not any("MiB" in name for name in figure.names(figure.shown(headline(frame))))
    without = [replace(line, size_bytes=0) if line.system == "balance (run 2)" else line for line in few]
    assert "balance (run 2)" in figure.names(figure.shown(without)), "no dash where there is no size, as of training"


def test_the_latest_stop_of_all_sizes_stands_with_its_size(frame: pd.DataFrame) -> None:
    late = (frame["system"] == "failstop") & (frame["size_bytes"] < SIZE) & (frame["status"] == "failed")
    made = frame[frame["scenario"] == "nic_down"].assign(error_after_ms=frame["error_after_ms"].mask(late, 506.0))
    (row,) = [row for row in overview(headline(made)) if row.system == "failstop"]
    assert (row["after"].text, row["after"].detail) == ("stopped", "at most 506 ms after the fault at 64KiB")


def test_when_a_system_stopped_is_told_of_the_size_shown_known_and_not_known(frame: pd.DataFrame) -> None:
    """It counted trials of all sizes, and the time that was known was behind `show details`."""
    failed = (frame["system"] == "failstop") & (frame["status"] == "failed")
    large, small = (failed & (frame["size_bytes"] == SIZE), failed & (frame["size_bytes"] < SIZE))
    unsure = large & (frame["collective"] == "all_reduce")
    made = frame.assign(
        error_after_ms=frame["error_after_ms"].mask(small, 506.0).mask(unsure),
        unsure=[["error_after_ms"] if each else [] for each in unsure],
    )
    (row,) = [row for row in overview(headline(made[made["scenario"] == "nic_down"])) if row.system == "failstop"]
    caveat = "at most 506 ms after the fault at 64KiB where that is known; when is not known in 2 of 4 trials at 8MiB"
    assert (row["after"].text, row["after"].caveat, row["after"].detail) == ("stopped", caveat, "")


def test_an_error_whose_time_is_known_counts_beside_others_of_its_cell_that_are_not(frame: pd.DataFrame) -> None:
    """The only known time of a cell was left out of the latest, also by targets, and its trials had no error."""
    failed = (frame["system"] == "failstop") & (frame["status"] == "failed") & (frame["scenario"] == "nic_down")
    own = frame[failed & (frame["size_bytes"] == SIZE)]
    cell = own[own["collective"] == "all_reduce"]
    unsure = cell["repeat"] > 0
    made = cell.assign(
        error_after_ms=pd.Series(9000.0, cell.index).mask(unsure),
        unsure=[["error_after_ms"] if each else [] for each in unsure],
    )
    (row,) = overview(headline(made))
    lacking = f"when is not known in {unsure.sum()} of {len(made)} trials"
    told = f"at most 9000 ms after the fault where that is known; {lacking}"
    assert (row["after"].text, row["after"].caveat) == ("stopped", told) and unsure.sum() >= 1
    (own,) = [text for text in sentences(made, []) if text.startswith("failstop (")]
    assert f"an error, at the latest 9000 ms after the fault where that is known ({lacking})." in own


def test_a_single_cell_names_its_fault_and_is_said_to_be_one_trial_of_one_size(frame: pd.DataFrame) -> None:
    """The page never said which fault it was, named a "worst trial" of one, and other sizes where there were none."""
    one = frame[of(frame, "balance", "flap", "all_reduce") & (frame["repeat"] == 0) & (frame["size_bytes"] == SIZE)]
    lines = headline(one)
    assert "at 8MiB (fault: flap): medians" in figure.caption(lines)
    assert "(fault" not in figure.caption(headline(frame)), "rows name several"
    (row,) = overview(lines)
    assert [row[name].detail for name in ("after", "mean", "lost")] == ["one trial"] * 3
    assert scope_note(lines).startswith("At 8MiB, one trial of each system, ") and "every size" not in scope_note(lines)


def test_an_alternative_text_says_healthy_once(tmp_path: Path) -> None:
    """It said "balance, healthy: 0.17 GB/s healthy"."""
    folder = make_run(tmp_path, repeats=1, sizes={SIZE: 4}, counters=False, fault=False)
    told = figure.result(headline(trial_frame([load_folder(folder)])))
    assert told.startswith("failstop: 0.") and told.count("healthy") == len(SYSTEMS)


def test_the_worst_trial_is_one_of_all_that_are_known(frame: pd.DataFrame) -> None:
    """A cell whose median is not known may have the worst: 25.6 ms were told where 34.5 are known."""
    own = frame[(frame["system"] == "balance") & (frame["size_bytes"] == frame["size_bytes"].max())]
    own = own[own["case"].isin(own["case"].unique()[:2])]
    cell = own["case"] == own["case"].iloc[0]
    known = own.assign(lost_ms=own["lost_ms"].mask(cell), reads_low=cell, disturbed=cell.map({True: "slow", False: ""}))
    first = known.index[cell][0]
    known.loc[first, "lost_ms"] = 9000.0
    known.loc[first, ["reads_low", "disturbed"]] = [False, ""]
    lines = headline(known)
    assert any(not line["lost_ms"].n and line.worst["lost_ms"] == 9000 for line in lines)
    (row,) = overview(lines)
    assert row["lost"].detail == "worst trial 9000 ms"
    assert "at most 9000 ms" in " ".join(sentences(known, []))


def test_a_range_names_the_cells_that_it_is_without_and_their_worst_trial(frame: pd.DataFrame) -> None:
    """A cell whose median is not known may be the worst of all, and vanished from the range without a word."""
    rows = of(frame, "balance", "flap", "all_reduce")
    some = frame[rows].index[:1]
    made = frame.copy()
    made.loc[some, ["disturbed_slowdown", "slowdown"]] = [True, float("nan")]
    made.loc[frame[rows].index[1:], "slowdown"] = 5.84
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    without_it = "flap, collective all_reduce: not known in 1 of 2 trials, 5.84 in the other"
    assert "5.84" not in row["slowdown"].text and row["slowdown"].caveat == without_it
    (own,) = [text for text in sentences(made, []) if text.startswith("balance (")]
    assert "; T/T0 not known in 1 of" in own
    made.loc[some, ["disturbed", "reads_low", "lost_ms"]] = ["slow", True, float("nan")]
    (own,) = [text for text in sentences(made, []) if text.startswith("balance (")]
    assert "; T/T0 and time lost not known in 1 of" in own, "once, not once for each"
    alone = made[(made["system"] == "balance") & (made["collective"] == "all_reduce")]
    alone = alone[(alone["scenario"] != "rate_limit") & (alone["size_bytes"] == SIZE)]
    (row,) = overview(headline(alone))
    assert row["slowdown"].caveat.splitlines() == [
        "nic_down, collective all_reduce only", without_it,
    ]  # fmt: skip
    (own,) = [text for text in sentences(alone, []) if text.startswith("balance (")]
    assert "the T/T0 of 1 more is not known (flap: 5.84 in its worst known trial)" in own


def test_a_range_of_one_fault_names_the_place_without_it(frame: pd.DataFrame) -> None:
    made = frame[(frame["scenario"] == "flap") & (frame["size_bytes"] == SIZE)].copy()
    some = made[of(made, "balance", "flap", "all_reduce")].index
    made.loc[some[:1], ["disturbed_slowdown", "slowdown"]] = [True, float("nan")]
    made.loc[some[1:], "slowdown"] = 5.84
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    assert row["slowdown"].caveat.splitlines() == [
        "collective reduce_scatter only",
        "collective all_reduce: not known in 1 of 2 trials, 5.84 in the other",
    ]


def test_a_smaller_size_names_the_cells_that_its_range_is_without(frame: pd.DataFrame) -> None:
    small = (frame["system"] == "balance") & (frame["scenario"] == "flap") & (frame["size_bytes"] < SIZE)
    made = frame.copy()
    rows = made[small & (made["collective"] == "all_reduce")].index
    made.loc[rows, ["disturbed_slowdown", "slowdown"]] = [True, float("nan")]
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    told = "at 64KiB (flap, collective all_reduce: not known in 2 of 2 trials)"
    assert told in row["slowdown"].detail


def test_the_speed_after_a_repair_stands_in_the_table_the_figure_and_the_words(frame: pd.DataFrame) -> None:
    """A system that was back looked like those that were not: one stalled iteration was told as its speed."""
    own = frame[(frame["scenario"] == "flap") & (frame["size_bytes"] == SIZE)]
    without = first_tables(headline(own))[0]
    assert "repaired" not in [column.name for column in without.columns] and "Repaired" not in without.terms
    balance = own["system"] == "balance"
    back = own.assign(
        repaired_gbs=own["before_gbs"].where(balance), repaired_ms=own["before_ms"].where(balance),
        after_gbs=own["after_gbs"].mask(balance), after_ms=own["after_ms"].mask(balance),
        slowdown=own["slowdown"].mask(balance), until_repair=balance,
    )  # fmt: skip
    lines = headline(back)
    table = first_tables(lines)[0]
    assert [column.name for column in table.columns][:4] == ["healthy", "after", "repaired", "slowdown"]
    assert "Repaired" in table.terms
    row = next(row for row in table.rows if row.system == "balance")
    assert row["repaired"].text == row["healthy"].text and row["after"].text == "\N{EN DASH}"
    assert row["slowdown"].caveat == "none until the repair: flap"
    assert "tick is the speed after the repair" in figure.caption(lines) and "tick" not in figure.caption(headline(own))
    speed = number(next(li for li in lines if li.system == "balance")["repaired_gbs"].median)
    assert f"{speed} after the repair, none until the repair" in figure.result(lines)
    assert len(figure.draw(lines).legends[0].get_texts()) == 3
    (told,) = [text for text in sentences(back, []) if text.startswith("balance (")]
    assert "after the repair it ran at 100 % of its healthy speed" in told
    assert "the iteration that was hit lasted until the repair, and a longer fault shows" in told
    assert "raise workload" not in told, "more iterations do not tell more"


def held_up(frame: pd.DataFrame, rows: "pd.Series[bool]") -> pd.DataFrame:
    """`frame` with trials in `rows` whose hit iteration lasts until the repair."""
    made = frame.assign(until_repair=rows, repaired_gbs=frame["before_gbs"].where(rows))
    made[["after_gbs", "after_ms", "slowdown"]] = made[["after_gbs", "after_ms", "slowdown"]].mask(rows)
    return made


def test_what_lasted_until_the_repair_is_told_beside_what_something_else_slowed(frame: pd.DataFrame) -> None:
    own = frame[(frame["scenario"] == "flap") & (frame["size_bytes"] == SIZE)]
    made = held_up(own, own["system"] == "balance")
    first = made.index[made["system"] == "balance"][0]
    made.loc[first, "disturbed_slowdown"], made.loc[first, "disturbed"] = True, "slowed"
    (told,) = [text for text in sentences(made, []) if text.startswith("balance (")]
    assert "something else slowed these in 1 of 4 trials; in 3 of 4 trials, " in told, told
    assert "the iteration that was hit lasted until the repair" in told


def test_a_system_that_stood_still_is_not_told_by_the_speed_of_another_size(frame: pd.DataFrame) -> None:
    """It went on at 0 % of its healthy speed, by one trial of a small size, and the table had none until the repair."""
    own = frame[frame["scenario"] == "flap"]
    balance = own["system"] == "balance"
    small = own.index[balance & (own["size_bytes"] < SIZE)]
    made = held_up(own, balance & (own.index != small[0]))
    made.loc[small[0], "slowdown"] = 225.0

    def said(of: pd.DataFrame) -> str:
        return next(text for text in sentences(of, []) if text.startswith("balance ("))

    count = int(balance.sum())
    none = "finished no iteration until the repair"
    assert f") {none} at 8MiB (T/T0 225 at 64KiB, known in 1 of {count} trials) and lost" in said(made)
    assert "went on" not in said(made) and " 0 %" not in said(made)
    assert f") {none} and lost" in said(held_up(own, balance)) and "T/T0 is not known" in said(held_up(own, balance))
    part = said(held_up(own, balance & (own["size_bytes"] == SIZE) & (own["collective"] == "all_reduce")))
    assert "went on at" in part and f"; it {none} in 1 cell (flap, collective all_reduce, 8MiB)" in part
    several = said(held_up(frame, (frame["system"] == "balance") & (frame["scenario"] == "flap")))
    assert f"; it {none} in 2 cells (flap, collective all_reduce, 8MiB; flap, collective reduce_scatter" in several
    slow = own.assign(slowdown=own["slowdown"].where(~balance, 225.0))
    assert "went on at 0.4 % of its healthy speed at 8MiB (T/T0 225 at" in said(slow)
    top = balance & (own["size_bytes"] == SIZE)
    lacking = own.assign(slowdown=own["slowdown"].mask(top), after_ms=own["after_ms"].mask(top))
    assert "% of its healthy speed at 64KiB (T/T0" in said(lacking), "a smaller size than the table's is named"


def test_words_beside_a_mark_do_not_reach_into_the_labels(frame: pd.DataFrame) -> None:
    """On a phone they did, and had room on the other side."""
    own = frame[(frame["scenario"] == "flap") & (frame["size_bytes"] == SIZE)]
    made = held_up(own, own["system"] == "balance")
    healthy = 0.51 * made["before_gbs"].max()
    rows = made["system"] == "balance"
    made[["before_gbs", "repaired_gbs"]] = made[["before_gbs", "repaired_gbs"]].mask(rows, healthy)
    for form in (nullcontext, style.narrowed):
        with form():
            drawn = figure.draw(headline(made))
        drawn.draw_without_rendering()
        axes = drawn.axes[0]
        said = [text for text in axes.texts if text.get_text() == "none until the repair"]
        assert len(said) == 2
        for text in said:
            box = text.get_window_extent()
            assert box.x0 >= axes.bbox.x0 and box.x1 <= drawn.bbox.x1


def test_a_speed_after_the_repair_says_where_the_nic_is_not_back(frame: pd.DataFrame) -> None:
    own = frame[(frame["scenario"] == "flap") & (frame["size_bytes"] == SIZE)]
    half = own.assign(repaired_gbs=own["before_gbs"] / 2, repaired_ms=own["before_ms"] * 2)
    lines = [replace(line, not_back=line.values["repaired_ms"]) for line in headline(half)]
    row = next(row for row in overview(lines) if row.system == "balance")
    assert re.fullmatch(r"NIC not back in (\d+) of \1", row["repaired"].caveat)


def test_several_cells_that_are_not_known_are_counted_and_named_in_the_small_print(frame: pd.DataFrame) -> None:
    """Fourteen lines of them pushed the figure off the first screen."""
    made = frame.copy()
    lacking = of(frame, "balance", "flap") | of(frame, "balance", "rate_limit")
    made.loc[lacking, "disturbed_slowdown"] = True
    made.loc[lacking, "slowdown"] = float("nan")
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    assert row["slowdown"].caveat == "not known in 4 of 6 cells"
    assert row["slowdown"].detail.count("not known in 2 of 2 trials") >= 4
    first = made.index[lacking & (made["size_bytes"] == SIZE)][0]
    made.loc[first, "slowdown"] = 99.0
    made.loc[first, "disturbed_slowdown"] = False
    row = next(row for row in overview(headline(made)) if row.system == "balance")
    assert row["slowdown"].caveat == "not known in 4 of 6 cells, 99 in one trial"


def test_rows_name_their_size_where_systems_have_run_other_points(frame: pd.DataFrame) -> None:
    """Of an unfinished run the row of one system was of 64KiB, and that of another of 8MiB, and neither said so."""
    small = (frame["system"] == "hot_repair") & (frame["size_bytes"] < SIZE) & (frame["collective"] == "all_reduce")
    large = (frame["system"] == "balance") & (frame["size_bytes"] == SIZE) & (frame["collective"] != "all_reduce")
    lines = headline(frame[small | large])
    assert {row.system: row.size for row in overview(lines)} == {"hot_repair": "at 64KiB", "balance": ""}
    assert scope_note(lines).startswith("At 8MiB unless another size is named")
