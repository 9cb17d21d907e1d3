"""Writes the report of a run folder: report.html, figures/ and the rows. The edge where everything meets."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from reports.embed import save
from reports.export import write_exports
from reports.figures import aftermath, bandwidth, hit_cost, slowdown, timeline
from reports.load import LoadedRun, counters, load_folder, write_rows_of
from reports.measures import core_events, trial_frame
from reports.page import Content, Picture, html
from reports.recovery import throughput
from reports.setting import experiment_name, setting_of
from reports.state_pictures import state_pictures
from reports.summary import Line, headline, sentences
from reports.targets import targets
from reports.trial import Trial

MAX_TIMELINES = 24
MAX_TIMELINE_SVGS = 3

FIGURES = (
    ("bandwidth", "Bus bandwidth", bandwidth, "before_gbs"),
    ("slowdown", "Slowdown after the fault", slowdown, "slowdown"),
    ("hit_cost", "Cost of the iteration that is hit", hit_cost, "hit_cost_ms"),
    ("aftermath", "What happened when", aftermath, "detect_ms"),
)
"""Name, title, module, and the measure without which it would be empty."""


def write_report(run_dir: Path) -> Path:
    """Writes rows, figures and report.html of a run folder; returns the page. Raises `ReportError`."""
    loaded = load_folder(Path(run_dir))
    write_rows_of(loaded)
    frame = trial_frame([loaded])
    page = loaded.folder / "report.html"
    lines = headline(frame)
    text = html(content(loaded, frame, lines))
    write_exports(loaded, lines)
    part = page.with_name(".report.html.part")
    part.write_text(text, encoding="utf-8", errors="replace")
    part.replace(page)
    return page


def content(loaded: LoadedRun, frame: pd.DataFrame, lines: Sequence[Line]) -> Content:
    """All that the page shows; the figures are drawn, and saved beside it, on the way."""
    run = loaded.run
    repeated = len(loaded.trials) - len(loaded.final_trials)
    timelines, problems = _timelines(loaded)
    states, unread = state_pictures(loaded, timelines)
    return Content(
        title=experiment_name(run),
        description=str(run.experiment.get("description") or ""),
        command=str(run.provenance.get("command") or "not known"),
        started=run.started,
        finished=run.finished,
        sentences=[
            *sentences(frame, setting_of(run), str(frame["collective"].iloc[0]), repeated),
            *(f"A trial cannot be read and is in no figure: {problem}" for problem in loaded.problems),
        ],
        targets=targets(lines),
        lines=lines,
        pictures=list(_pictures(loaded, frame)),
        trials=loaded.final_trials,
        timelines=timelines,
        problems=[*loaded.problems, *problems, *unread],
        provenance={k: v for k, v in run.provenance.items() if k != "command"} | {"folder": loaded.name},
        experiment=run.experiment,
        several_cases=frame["case"].nunique() > 1,
        states=states,
    )


def _pictures(loaded: LoadedRun, frame: pd.DataFrame) -> Iterator[Picture]:
    """Every figure of every case that has something to show."""
    cases = list(frame.groupby("case", sort=False))
    for number, (case, part) in enumerate(cases):
        suffix = f"-{number + 1}" if len(cases) > 1 else ""
        for name, title, module, needed in FIGURES:
            if part[needed].notna().any():
                told = module.caption(part)
                uri = save(module.draw(part), loaded.folder / "figures", f"{name}{suffix}", told)
                yield Picture(f"{title}: {case}" if len(cases) > 1 else title, uri, told)


def _timelines(loaded: LoadedRun) -> tuple[dict[str, Picture], list[str]]:
    """One for the representative of every scenario, size and system; a line for each that cannot be drawn."""
    drawn: dict[str, Picture] = {}
    problems: list[str] = []
    for trial in representatives(loaded.final_trials)[:MAX_TIMELINES]:
        samples = counters(loaded, trial)
        if isinstance(samples, str):
            problems.append(samples)
            continue
        rates = throughput(samples)
        if rates.empty:
            problems.append(f"{trial.trial_id}: too few counter samples for a timeline")
            continue
        figure = timeline.draw(trial, rates, core_events(trial), setting_of(loaded.run))
        # Numbered: an id is a host's or a file's text, which has no say in the names of files.
        told = timeline.caption(trial, rates)
        # An SVG costs as much time as the drawing: the first ones, of the largest sizes, have one for papers.
        types = ("svg", "png") if len(drawn) < MAX_TIMELINE_SVGS else ("png",)
        uri = save(figure, loaded.folder / "figures", f"timeline-{len(drawn) + 1:02d}", told, types)
        drawn[trial.trial_id] = Picture(f"Timeline of {trial.trial_id}", uri, told)
    return drawn, problems


def representatives(trials: tuple[Trial, ...]) -> list[Trial]:
    """Of every (scenario, size, system) the trial whose hit iteration is the median; the largest sizes first."""
    groups: dict[tuple[str, int, str], list[Trial]] = {}
    for trial in trials:
        if trial.fault is not None and trial.status != "inconclusive":
            groups.setdefault((trial.scenario, -trial.size_bytes, trial.system), []).append(trial)
    return [sorted(groups[key], key=_hit_ns)[(len(groups[key]) - 1) // 2] for key in sorted(groups)]


def _hit_ns(trial: Trial) -> int:
    return sum(i.duration_ns for i in trial.iterations if i.phase == "hit")
