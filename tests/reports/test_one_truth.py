"""One run has one set of numbers: terminal, page, tables, exports, bounds and comparisons agree on made-up runs.

`disagreements` computes what each should say from the iterations themselves, by arithmetic of its own, and asks every
consumer. The negative controls break one consumer at a time and demand that it is found out.
"""

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean, median, median_low, stdev
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ExitCode
from harness.sweep import summary as terminal
from harness.sweep.caveats import cost_caveats
from harness.sweep.console import trial_line
from reports import bounds, compare, compared, machine, rows, tables
from reports.columns import shown
from reports.figures import points
from reports.headline import Line, headline
from reports.load import LoadedRun
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.overview import overview, remarks
from reports.page import html, told
from reports.report import _story, content
from reports.rules import Rules
from reports.trial import Fault, Iteration, Run, Trial

SIZES = (1 << 20, 8 << 20)
SCENARIOS = ("nic_down", "flap", "healthy")
HEALTHY = ("healthy_before", "healthy_after")
"""The scenarios of healthy trials, which are one cell."""
LIMIT_GBS = 3 * 500e6 / 8e9
Cell = tuple[str, int, str]
"""Scenario, size, system."""


@st.composite
def trials_of(draw: st.DrawFn, system: str, size: int, scenario: str, repeat: int) -> Trial:
    healthy = scenario in HEALTHY
    stops = system == "failstop" and not healthy
    status = draw(st.sampled_from(("failed",) * 4 + ("inconclusive",) if stops else ("ok",) * 4 + ("inconclusive",)))
    if draw(st.integers(0, 9)) == 0:
        status = "failed" if status == "ok" else "ok"
    # One iteration in seven is slowed by something else, which may make the mean of the healthy ones meaningless.
    before = draw(st.lists(st.sampled_from((8, 9, 10, 11, 11, 12, 60)), min_size=0, max_size=3))
    later = [] if status == "failed" or healthy else draw(st.lists(st.integers(12, 30), max_size=4))
    phases = ["before"] * len(before) + ["hit", *["after"] * 3][: len(later)]
    iterations, at_ns = [], 1000
    wrong = draw(st.sampled_from((0, 0, 0, 0, 3, None)))
    for number, (phase, ms) in enumerate(zip(phases, [*before, *later], strict=True)):
        values: dict[str, Any] = {"iteration": number, "phase": phase, "t_ns": at_ns, "duration_ns": ms * 1_000_000}
        iterations.append(Iteration(**values, wrong=wrong, algbw_gbs=1 / ms, busbw_gbs=2 / ms))
        at_ns += ms * 1_000_000
    kind = "flap" if scenario == "flap" else "nic_down"
    fault = Fault(kind=kind, host="host1", nic="eth1", t_before_ns=at_ns, t_after_ns=at_ns, heal_ns=at_ns + 1)
    return Trial(
        trial_id=f"{system}-{size}-{scenario}-r{repeat}", system=system, mode=0 if system == "failstop" else 2,
        collective="all_reduce", size_bytes=size, dtype="float32", op="sum", place="out", scenario=scenario,
        repeat=repeat, attempt=1, status=status, expected=status == ("failed" if stops else "ok"),
        fault=None if healthy else fault, iterations=tuple(iterations),
    )  # fmt: skip


@st.composite
def runs(draw: st.DrawFn) -> LoadedRun:
    sizes = SIZES[: draw(st.integers(1, 2))]
    scenarios = draw(st.sampled_from((SCENARIOS[:1], SCENARIOS[1:2], SCENARIOS[1:], SCENARIOS[::2])))
    repeats = draw(st.integers(1, 3))
    made = tuple(
        draw(trials_of(system, size, scenario, repeat))
        for repeat in range(repeats)
        for size in sizes
        for scenario in (each for name in scenarios for each in (HEALTHY if name == "healthy" else (name,)))
        for system in ("failstop", "balance")
    )
    experiment = {"name": "made up", "cluster": {"hosts": 3, "nics": 3, "rate": "500 Mbit/s"}}
    return LoadedRun(Path("nowhere"), Run(experiment=experiment, started="now", finished="later"), made)


def is_disturbed(before: list[float], since: list[float]) -> bool:
    """Whether the healthy iterations scatter too much, or are slower than those with the fault by more than 5 %."""
    if not before:
        return False
    return scatters(before) or fmean(since) < 0.95 * fmean(before)


def scatters(before: list[float]) -> bool:
    """Whether their mean is not known well enough, in either direction."""
    return len(before) > 2 and error_of(before) > 0.1 * fmean(before)


def error_of(before: list[float]) -> float:
    """The standard error of their mean."""
    return stdev(before) / math.sqrt(len(before))


UNKNOWN = math.nan
"""A cost that is not known."""


def truth(trials: list[Trial]) -> dict[str, float]:
    """The numbers of one cell, from its iterations."""
    told = {n: [v for v in values if not math.isnan(v)] for n, values in truths(trials).items()}
    return {n: number for n, v in told.items() if v for number in together(n, v, trials)}


def together(name: str, known: list[float], trials: list[Trial]) -> list[float]:
    """The total, or the median if costs that are not known cannot make it another by more than a tenth."""
    if name in ("wrong", "unexpected"):
        return [float(sum(known))]
    middle = median(known)
    return [middle] if max(abs(end - middle) for end in between(name, trials)) <= 0.1 * abs(middle) * (1 + 1e-9) else []


def between(name: str, trials: list[Trial], lacking: int = 0) -> tuple[float, float]:
    """Where the median, or the total, lies, whatever the values are that are not known or are lacking."""
    values = [*truths(trials).get(name, []), *[UNKNOWN] * lacking]
    if name == "wrong":
        return sum(v for v in values if math.isfinite(v)), math.inf if lacking else sum(values)
    ends = ([value if math.isfinite(value) else end for value in values] for end in (-math.inf, math.inf))
    low, high = (median(end) if end else math.nan for end in ends)
    return low, high


def truths(trials: list[Trial]) -> dict[str, list[float]]:
    """The numbers of each trial."""
    found: dict[str, list[float]] = {}
    for trial in (t for t in trials if t.status != "inconclusive"):
        ms = {p: [i.duration_ns / 1e6 for i in trial.iterations if i.phase == p] for p in ("before", "hit", "after")}
        since = [*ms["hit"], *ms["after"]]
        found.setdefault("unexpected", []).append(not trial.expected)
        if any(i.wrong is not None for i in trial.iterations):
            found.setdefault("wrong", []).append(sum(i.wrong or 0 for i in trial.iterations))
        # What comes and goes is averaged, over all until its repair, and compared with the mean of what precedes it.
        # The healthy speed is of the median.
        typical = fmean if trial.scenario == "flap" else median_low
        ms["rest"] = since if trial.scenario == "flap" and ms["after"] else ms["after"]
        of_phases = (("before", "before_gbs", median_low), ("hit", "hit_gbs", fmean), ("rest", "after_gbs", typical))
        for phase, name, usual in of_phases:
            if ms[phase]:
                found.setdefault(name, []).append(2 / usual(ms[phase]))
        if ms["before"]:
            found.setdefault("share", []).append(found["before_gbs"][-1] / LIMIT_GBS)
        disturbed = bool(since) and is_disturbed(ms["before"], since)
        lost = sum(since) - len(since) * fmean(ms["before"]) if ms["before"] else 0
        if ms["before"] and ms["rest"]:
            ratio = typical(ms["rest"]) / typical(ms["before"])
            # Medians bear a slow iteration, but no loss of a NIC makes a collective faster, whatever the means say.
            faster = trial.scenario != "flap" and ratio < 0.95
            if not faster and (trial.scenario != "flap" or not disturbed):
                found.setdefault("slowdown", []).append(ratio)
            elif trial.status != "failed":
                found.setdefault("slowdown", []).append(UNKNOWN)
        if ms["before"] and since and trial.status != "failed":
            # A mean that is not known well says enough where much more was lost.
            unclear = scatters(ms["before"]) and len(since) * error_of(ms["before"]) > 0.1 * lost
            slower = fmean(since) < 0.95 * fmean(ms["before"])
            if ms["rest"] and faster:
                slower |= len(since) * (fmean(ms["before"]) - typical(ms["rest"])) > 0.1 * lost
            found.setdefault("lost_ms", []).append(UNKNOWN if unclear or slower else lost)
        if since:
            found.setdefault("mean_ms", []).append(fmean(since))
            found.setdefault("p99_ms", []).append(float(np.percentile(since, 99)))
    return found


NAMES = (
    "before_gbs",
    "hit_gbs",
    "after_gbs",
    "share",
    "slowdown",
    "lost_ms",
    "mean_ms",
    "p99_ms",
    "wrong",
    "unexpected",
)


def scenario_of(name: str) -> str:
    """Its name in tables."""
    return "healthy" if name in HEALTHY else name


def cells(run: LoadedRun) -> dict[Cell, list[Trial]]:
    grouped: dict[Cell, list[Trial]] = {}
    for trial in run.trials:
        grouped.setdefault((scenario_of(trial.scenario), trial.size_bytes, trial.system), []).append(trial)
    return grouped


def disagreements(run: LoadedRun) -> list[str]:
    """Every number that some consumer tells otherwise than the iterations say; none in a sound program."""
    wanted = {cell: truth(trials) for cell, trials in cells(run).items()}
    frame = trial_frame([run])
    lines = headline(frame)
    told = {
        "terminal": of_terminal(run), "page": of_page(run, frame, lines), "table.csv": of_csv(lines),
        "summary.json": of_json(run, lines), "metrics.prom": of_prometheus(run, lines), "rows": of_rows(run, frame),
        "compare": of_compare(frame), "figures": of_figures(frame),
    }  # fmt: skip
    found = []
    for who, (names, values) in told.items():
        for cell, numbers in wanted.items():
            for name in names:
                right, said = numbers.get(name), values.get(cell, {}).get(name)
                if (right is None) != (said is None) or (right is not None and said != pytest.approx(right, rel=1e-6)):
                    found.append(f"{who}: {name} of {cell}: {said}, not {right}")
    found += bounds_wrong(run, frame, wanted)
    return found


Told = tuple[tuple[str, ...], dict[Cell, dict[str, float]]]


def scenario_in(case: str) -> str:
    """The scenario that ends the name of a case."""
    return next(scenario for scenario in SCENARIOS if case.endswith(scenario))


def of_terminal(run: LoadedRun) -> Told:
    several = len({scenario_of(trial.scenario) for trial in run.trials}) > 1
    only = scenario_of(run.trials[0].scenario)
    lines = terminal.table(run.trials)
    names = tuple(metric.name for metric in terminal.SHORT if metric.name in NAMES)
    return names, {(ln.points if several else only, ln.size_bytes, ln.system): dict(ln.values) for ln in lines}


class Keys(HTMLParser):
    """The sort keys of the rows of the page's table of all numbers."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[dict[str, str]] = []
        self.on = self.body = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "section":
            self.on = values.get("id") == "table"
        if tag in ("thead", "tbody"):
            self.body = tag == "tbody"
        if self.on and self.body and tag == "tr":
            self.rows.append({})
        if self.on and tag == "td" and values.get("data-metric"):
            self.rows[-1][str(values["data-metric"])] = str(values["data-sort"])


def of_page(run: LoadedRun, frame: pd.DataFrame, lines: list[Line]) -> Told:
    keys = Keys(html(content([run], frame, lines))).rows
    values = {
        (ln.scenario, ln.size_bytes, ln.system): {name: float(key) for name, key in row.items() if key}
        for ln, row in zip(lines, keys, strict=True)
    }
    return tuple(metric.name for metric in shown(lines) if metric.name in NAMES), values


def of_csv(lines: list[Line]) -> Told:
    found: dict[Cell, dict[str, float]] = {}
    for row in csv.DictReader(tables.comma_separated(lines).splitlines()):
        scenario = scenario_in(row["case"])
        columns = {n: n if n in ("wrong", "unexpected") else f"{n}_median" for n in NAMES}
        values = {n: float(row[column]) for n, column in columns.items() if row[column]}
        found[scenario, int(row["size_bytes"]), row["system"]] = values
    return NAMES, found


def of_json(run: LoadedRun, lines: list[Line]) -> Told:
    found: dict[Cell, dict[str, float]] = {}
    for row in json.loads(machine.json_summary([run], lines, []))["table"]:
        values = {n: row[n]["median"] if isinstance(row[n], dict) else row[n] for n in NAMES}
        known = {n: v for n, v in values.items() if v is not None}
        found[row["scenario"], row["size_bytes"], row["system"]] = known
    return NAMES, found


def of_prometheus(run: LoadedRun, lines: list[Line]) -> Told:
    gauges = {machine.gauge(machine.METRICS[name]): name for name in NAMES}
    found: dict[Cell, dict[str, float]] = {}
    for line in machine.prometheus([run], lines).splitlines():
        match = re.fullmatch(r'(\w+)\{.*case="(.*)",system="(\w+)",size_bytes="(\d+)"\} (\S+)', line)
        if match and match[1] in gauges:
            cell = (scenario_in(match[2]), int(match[4]), match[3])
            found.setdefault(cell, {})[gauges[match[1]]] = float(match[5])
    return NAMES, found


def of_rows(run: LoadedRun, frame: pd.DataFrame) -> Told:
    values = {row["trial_id"]: {n: row[n] for n in NAMES} for row in frame.to_dict("records")}
    own = rows.rows_table("made-up", run.run, run.trials, values).to_pandas().drop_duplicates("trial_id")
    found: dict[Cell, dict[str, float]] = {}
    for (scenario, size, system), part in own.groupby([own["scenario"].map(scenario_of), "size_bytes", "system"]):
        known = {n: part[rows.metric_column(n)].dropna() for n in NAMES}
        cell = str(scenario), int(str(size)), str(system)
        # A row is a trial, which has no cost that is not known.
        found[cell] = {
            n: number for n, v in known.items() if len(v) for number in together(n, list(v), cells(run)[cell])
        }
    return NAMES, found


def of_compare(frame: pd.DataFrame) -> Told:
    """A run against itself: both sides say the same, and nothing is worse."""
    rules = Rules.model_validate({"rule": [{"metric": name, "tolerance": 0} for name in NAMES]})
    found: dict[Cell, dict[str, float]] = {}
    for finding in compare.compare(frame, frame, rules):
        if finding.conclusion == compare.NEITHER:
            continue
        cell = (scenario_in(finding.case), finding.size_bytes, finding.system)
        same = finding.told[0] == finding.told[1] and not finding.regressed
        found.setdefault(cell, {})[finding.metric] = finding.told[1] if same else math.nan
        assert compared.cells(finding)[3] == compared.cells(finding)[4]
    return NAMES, found


def of_figures(frame: pd.DataFrame) -> Told:
    """The medians that figures draw."""
    names = ("before_gbs", "hit_gbs", "after_gbs", "slowdown")
    found: dict[Cell, dict[str, float]] = {}
    for scenario, case in frame.groupby("scenario"):
        for name in names:
            for (size, system), part in points.counted(case, name).groupby(["size_bytes", "system"]):
                found.setdefault((str(scenario), int(str(size)), str(system)), {})[name] = float(part[name].median())
    return names, found


def bounds_wrong(run: LoadedRun, frame: pd.DataFrame, wanted: dict[Cell, dict[str, float]]) -> Iterator[str]:
    """A bound at the worst cell's number holds if every cell that should have one has one; a tighter one is missed."""
    for name in ("before_gbs", "slowdown", "lost_ms", "wrong"):
        known = [numbers[name] for numbers in wanted.values() if name in numbers]
        hole = any(name not in wanted[cell] and must_have(name, cell, run) for cell in wanted)
        if not known:
            continue
        spans = [
            between(name, own, sum(name not in truths([t]) and should_have(name, cell, t, run) for t in own))
            for cell, own in cells(run).items()
        ]
        for limit in (max(known) + 1e-9, max(known) - 1e-3):
            missed, sure = any(low > limit for low, _ in spans), all(not high > limit for _, high in spans)
            right = False if missed else None if hole or not sure else True
            (held,) = bounds.held(frame, {"bound": [{"metric": name, "max": limit}]})
            if held.met is not right:
                yield f"bounds: {name} at most {limit}: {held.met}, not {right} ({held.detail})"


def must_have(name: str, cell: Cell, run: LoadedRun) -> bool:
    """Whether any trial of a cell should have a value."""
    return any(should_have(name, cell, trial, run) for trial in cells(run)[cell])


def should_have(name: str, cell: Cell, trial: Trial, run: LoadedRun) -> bool:
    """By the experiment: failstop is to stop at the loss, balance to go on; all have a healthy speed, and are checked.

    What a system is to do at a loss is seen from its trials: where none says, it is taken to go on.
    """
    scenario, _, system = cell
    if name in ("before_gbs", "wrong"):
        return True
    if scenario == "healthy":
        return False
    if trial.status != "inconclusive":
        return (trial.status == "failed") != trial.expected
    own = cells(run)[cell]
    alike = [t for t in run.trials if t.system == system and t.fault]
    of_fault = [t for t in alike if t.scenario == scenario]
    return not _stop(next((some for some in (own, of_fault) if any(t.status != "inconclusive" for t in some)), alike))


def _stop(trials: list[Trial]) -> bool:
    alike = [t for t in trials if t.status != "inconclusive"]
    return bool(alike) and all(t.status == "failed" and t.expected for t in alike)


@settings(max_examples=20)
@given(runs())
def test_everything_that_tells_a_number_tells_the_same(run: LoadedRun) -> None:
    assert disagreements(run) == []


@settings(max_examples=40)
@given(runs())
def test_the_exit_status_follows_the_same_trials(run: LoadedRun) -> None:
    unexpected = sum(numbers["unexpected"] for cell in cells(run).values() if (numbers := truth(cell)))
    wanted = ExitCode.WRONG if unexpected else ExitCode.OK
    if not unexpected and any(t.status == "inconclusive" for t in run.trials):
        wanted = ExitCode.INCONCLUSIVE
    assert terminal.exit_code(run.trials) is wanted


def a_run() -> LoadedRun:
    """One in which each of the breakages below shows: an inconclusive trial that was slower, a cell without any."""

    def trial(system: str, size: int, repeat: int, status: str, later_ms: int) -> Trial:
        phases = [("before", 10), ("before", 10), ("hit", later_ms), ("after", later_ms)]
        values: list[dict[str, Any]] = [
            {"iteration": n, "phase": p, "t_ns": n, "duration_ns": ms * 1_000_000, "wrong": 0, "busbw_gbs": 2 / ms}
            for n, (p, ms) in enumerate(phases)
        ]
        fault = Fault(kind="nic_down", host="host1", nic="eth1", t_before_ns=5, t_after_ns=5)
        return Trial(
            trial_id=f"{system}-{size}-r{repeat}", system=system, mode=2, collective="all_reduce", size_bytes=size,
            dtype="float32", op="sum", place="out", scenario="nic_down", repeat=repeat, attempt=1, fault=fault,
            status=status, expected=status == "ok", iterations=tuple(Iteration(**v, algbw_gbs=0) for v in values),
        )  # fmt: skip

    made = (
        trial("balance", SIZES[0], 0, "ok", 15), trial("balance", SIZES[0], 1, "inconclusive", 90),
        trial("balance", SIZES[1], 0, "inconclusive", 90),
    )  # fmt: skip
    experiment = {"name": "made up", "cluster": {"hosts": 3, "nics": 3, "rate": "500 Mbit/s"}}
    return LoadedRun(Path("nowhere"), Run(experiment=experiment, started="now", finished="later"), made)


@pytest.mark.parametrize(("known", "told"), [(1, {}), (2, {"lost_ms": 10.0})])
def test_a_median_that_a_trial_of_scattered_healthy_iterations_could_move_is_not_known(
    known: int, told: dict[str, float]
) -> None:
    run = a_run()
    trial = run.trials[0]
    made = [("before", 8), ("before", 8), ("before", 60), ("hit", 15), ("after", 15)]
    iterations = tuple(
        trial.iterations[0].model_copy(
            update={"iteration": n, "phase": p, "t_ns": n, "duration_ns": ms * 1_000_000, "busbw_gbs": 2 / ms}
        )
        for n, (p, ms) in enumerate(made)
    )
    trials = [trial.model_copy(update={"trial_id": f"known-{n}", "repeat": n}) for n in range(known)]
    scattered = trial.model_copy(update={"trial_id": "scattered", "repeat": known, "iterations": iterations})
    new = replace(run, trials=(*trials, scattered))
    assert disagreements(new) == []
    (numbers,) = (truth(each) for each in cells(new).values())
    assert {name: value for name, value in numbers.items() if name == "lost_ms"} == told
    (row,) = overview(headline(trial_frame([new])))
    assert row["lost"].text == ("10 ms" if told else "not known")


def test_a_bound_with_an_unmeasured_cell_is_not_held() -> None:
    run = a_run()
    (held,) = bounds.held(trial_frame([run]), {"bound": [{"metric": "slowdown", "max": 2}]})
    assert held.met is None
    assert "not measured: 1 other cell, first balance at 8MiB" in held.line
    (open_too,) = bounds.held(trial_frame([run]), {"bound": [{"metric": "slowdown", "max": 1.2}]})
    assert open_too.met is None, "one of two trials of the other cell is inconclusive"
    sure = replace(run, trials=tuple(t for t in run.trials if t.size_bytes != SIZES[0] or t.status != "inconclusive"))
    (missed,) = bounds.held(trial_frame([sure]), {"bound": [{"metric": "slowdown", "max": 1.2}]})
    assert missed.met is False


def test_what_stayed_inconclusive_in_the_new_run_is_no_regression() -> None:
    frame = trial_frame([a_run()])
    base = frame[frame["size_bytes"] == SIZES[0]]
    new = base.assign(status="inconclusive", expected=False, slowdown=math.nan, unexpected=math.nan)
    rules = Rules.model_validate({"rule": [{"metric": m, "tolerance": 0} for m in ("slowdown", "unexpected")]})
    findings = compare.compare(base, new, rules)
    assert {finding.conclusion for finding in findings} == {"inconclusive in NEW"}
    assert compare.regressions(findings) == []
    assert compare.is_open(findings)
    _, counted, conclusion = compared.told(findings, [])
    assert counted == "2 more measures could not be compared: 2 inconclusive in NEW." and "exit status 3" in conclusion


def test_a_time_lost_that_is_not_known_in_the_new_run_is_no_regression() -> None:
    run = a_run()
    whole = run.trials[0].iterations
    slowed = tuple(i.model_copy(update={"duration_ns": 90_000_000}) if i.phase == "before" else i for i in whole)
    new = replace(run, trials=(run.trials[0].model_copy(update={"iterations": slowed}),))
    base, frame = trial_frame([replace(run, trials=run.trials[:1])]), trial_frame([new])
    rules = Rules.model_validate({"rule": [{"metric": m, "tolerance": 0} for m in ("lost_ms", "lost_share")]})
    findings = compare.compare(base, frame, rules)
    assert {finding.conclusion for finding in findings} == {"not known in NEW"}
    assert compare.regressions(findings) == [] and compare.is_open(findings)
    assert "2 not known in NEW" in compared.told(findings, [])[1]
    (held,) = bounds.held(frame, {"bound": [{"metric": "lost_ms", "max": 1e9}]})
    assert held.met is None, "no bound holds for a number that nobody knows"
    (row,) = overview(headline(frame))
    assert (row["lost"].text, row["lost"].caveat) == ("not known", "not known in 1 of 1 trial")
    assert row["slowdown"].text == "not known", "no loss of a NIC makes a collective six times as fast"
    assert "What 1 trial lost is not known, nor is the T/T0 of 1: " in remarks(headline(frame))[0]
    told_of = "ime lost and T/T0 not known: the iterations before the fault were slower"
    assert f"t{told_of}" in trial_line(new.trials[0], 1.0)
    assert f"T{told_of}" in html(content([new], frame, headline(frame)))
    (line,) = headline(frame)
    assert tables.cell_of(line, METRICS["lost_ms"]) == told(line, METRICS["lost_ms"]) == "not known"
    assert list(cost_caveats(new.trials)) == remarks([line])[:-1], "the terminal and the page say it in the same words"
    (between,) = headline(pd.concat([base, frame.assign(trial_id="other")]))
    told_as = tables.cell_of(between, METRICS["lost_ms"])
    assert told_as == told(between, METRICS["lost_ms"]) == "not known in 1 of 2 trials", "the median is between the two"
    (partly,) = headline(pd.concat([base, base.assign(trial_id="another"), frame.assign(trial_id="other")]))
    assert tables.cell_of(partly, METRICS["lost_ms"]).endswith(" (known in 2 of 3)")
    assert "known in 2 of 3" in told(partly, METRICS["lost_ms"])
    assert not terminal.told(new.trials, [METRICS["slowdown"], METRICS["lost_ms"]])


def test_the_alternative_text_of_a_timeline_says_what_is_not_known_and_what_a_ratio_is_of() -> None:
    run = a_run()
    trial = run.trials[0]
    assert "; T/T0: an iteration after the fault over one before it: 1.5; " in _story(run, trial)
    slowed = tuple(
        i.model_copy(update={"duration_ns": 90_000_000}) if i.phase == "before" else i for i in trial.iterations
    )
    story = _story(run, trial.model_copy(update={"iterations": slowed}))
    assert "; time lost and T/T0 not known: the iterations before the fault were slower" in story
    assert trial.fault is not None
    flap = trial.model_copy(update={"fault": trial.fault.model_copy(update={"kind": "flap"})})
    means = (
        "the mean of all iterations from the first that is hit until the repair over the mean of those before the fault"
    )
    assert f"; T/T0: {means}: 1.5; " in _story(run, flap)


def test_a_time_lost_below_zero_is_explained_in_the_terminal_as_on_the_page() -> None:
    """Training, whose iterations may get faster, is not told as not known."""
    run = a_run()
    faster = tuple(
        i.model_copy(update={"duration_ns": i.duration_ns if i.phase == "before" else 1_000_000})
        for i in run.trials[0].iterations
    )
    trial = run.trials[0].model_copy(update={"workload": "training", "iterations": faster})
    (line,) = headline(trial_frame([replace(run, trials=(trial,))]))
    told_there, _of_the_p99 = remarks([line])
    assert told_there.startswith("Time lost below 0 means")
    assert list(cost_caveats([trial])) == [told_there]
    assert list(cost_caveats(run.trials)) == []


def test_a_slow_iteration_before_the_fault_leaves_the_medians_that_say_that_it_cost_something() -> None:
    run = a_run()
    first, second, *rest = run.trials[0].iterations
    slowed = (first, second.model_copy(update={"duration_ns": 10_000_000}), second, *rest)
    slowed = (first.model_copy(update={"duration_ns": 900_000_000}), *slowed[1:])
    new = replace(run, trials=(run.trials[0].model_copy(update={"iterations": slowed}),))
    (line,) = headline(trial_frame([new]))
    assert (line.disturbed, line.disturbed_slowdown, line["slowdown"].median) == (1, 0, 1.5)
    assert overview([line])[0]["slowdown"].text == "1.5"
    assert "What 1 trial lost is not known: " in remarks([line])[0]


@pytest.mark.parametrize("hit_ms, lost", [(90, "not known"), (1200, "1128 ms")])
def test_a_stall_in_the_mean_hides_no_healthy_iterations_that_were_slower_than_those_after_the_fault(
    hit_ms: int, lost: str
) -> None:
    """What it lost is known where it is much more than those before were too slow by."""
    run = a_run()
    made = [("before", 34), ("before", 34), ("hit", hit_ms), ("after", 15), ("after", 15)]
    known = lost != "not known"
    first = run.trials[0].iterations[0]
    iterations = tuple(
        first.model_copy(
            update={"iteration": n, "phase": p, "t_ns": n, "duration_ns": ms * 1_000_000, "busbw_gbs": 2 / ms}
        )
        for n, (p, ms) in enumerate(made)
    )
    new = replace(run, trials=(run.trials[0].model_copy(update={"iterations": iterations}),))
    assert disagreements(new) == []
    (line,) = headline(trial_frame([new]))
    assert (line.disturbed, line.disturbed_slowdown, line["slowdown"].n, line["lost_ms"].n) == (not known, 1, 0, known)
    (row,) = overview([line])
    assert (row["slowdown"].text, row["lost"].text) == ("not known", lost)
    told = f"{'' if known else 'time lost and '}T/T0 not known: the iterations before the fault were slower than those"
    assert told in trial_line(new.trials[0], 1.0)


def counts_everything(metric: Metric, view: Any) -> float | None:
    return metric.of_trial(view)


BREAKAGES = {
    "terminal": (terminal, "told", lambda records, metrics: {m.name: 1.0 for m in metrics}),
    "bounds": (bounds, "_should_have", lambda *_: False),
    "figures": (points.stats, "counted", lambda values, unknown: points.stats.known(values) * 2),
    "compare": (compare, "estimate", lambda *_: compare.Estimate(0.0, 0.0, 0.0, 1)),
    "metrics.prom": (machine, "gauge", lambda metric: "r2ccl_other"),
    "terminal: before": (Metric, "value", counts_everything),
}


def test_the_run_of_the_negative_controls_is_sound() -> None:
    assert disagreements(a_run()) == []


@pytest.mark.parametrize("who", BREAKAGES)
def test_a_consumer_that_tells_something_else_is_found_out(who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, broken = BREAKAGES[who]
    run = a_run()
    with monkeypatch.context() as patch:
        patch.setattr(where, name, broken)
        found = disagreements(run)
    assert any(line.startswith(who) for line in found), found
