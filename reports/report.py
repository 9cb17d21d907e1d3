"""Writes the report of one or several run folders: report.html, figures/, tables and rows. Does I/O; joins all the
parts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from reports import columns, machines
from reports.bound_places import not_judged
from reports.bounds import held, without_all
from reports.core_log import core_events
from reports.drift import drift_lines
from reports.effect import effect_error_ms, effect_text
from reports.embed import save
from reports.errors import ReportError
from reports.export import write_exports
from reports.figures import (
    aftermath,
    bandwidth,
    bound_gap,
    hit_cost,
    host_bytes,
    k_sweep,
    overview,
    points,
    recovery,
    slowdown,
    style,
    timeline,
)
from reports.headline import Line, at_largest, headline
from reports.load import (
    LoadedRun,
    all_problems,
    counters,
    damaged_tables,
    lacking,
    load_folders,
    log_events,
    nccl_trouble,
    real,
    watched,
    write_rows,
)
from reports.measures import trial_frame, view_of
from reports.metrics import METRICS, cost
from reports.metrics.duration import RATIO_OF_MEANS
from reports.metrics.metric import Metric
from reports.page import MAX_TIMELINES, Content, Entry, Origin, Picture, html
from reports.recovery import throughput
from reports.screens import screen_of
from reports.series import EVENTS, WATCH
from reports.setting import Setting, experiment_name, setting_of
from reports.source import change_of
from reports.state import state_frame
from reports.stolen import stolen_time
from reports.summary import scope, sentences
from reports.targets import Target, targets
from reports.trial import Trial
from reports.unwatched import unwatched_hosts
from reports.wording import NOT_KNOWN, at_size, ended, number, plural

MOST_NAMED = 4
"""At most so many trials are named in a line about several."""
MAX_STATES = 8
"""At most so many timelines have the hosts' state below them; its panels take as long to draw as the rest."""
Pictures = dict[tuple[str, str], Picture]
"""Pictures by run and trial."""

FIGURES = (
    ("bandwidth", "Bus bandwidth", bandwidth, "before_gbs"),
    ("slowdown", "Slowdown after the fault", slowdown, "slowdown"),
    ("k_sweep", "Pipeline chunks of R2CC-AllReduce", k_sweep, "pipeline"),
    ("hit_cost", "Cost of the iteration that is hit", hit_cost, "hit_cost_ms"),
    ("aftermath", "What happened when", aftermath, "detect_ms"),
    ("recovery", "How long traffic was down", recovery, "recover_ms"),
    ("host_bytes", "Bytes per host", host_bytes, "received_bytes"),
)
"""Name, title, module, and the measure without which the figure would be empty."""
SAID = {"bandwidth": ("before_gbs", "after_gbs"), "hit_cost": ("hit_cost_ms", "stall_ms")}
"""Of figures that show several measures, those that their alternative text says."""
RESULTS = {"aftermath": aftermath.result, "recovery": recovery.result, "host_bytes": host_bytes.result}
"""Figures that say their own result, because they show more than one number of a system's largest size."""
LEAST = {"recovery": 3}
"""The number of trials from which a figure says more than the table; for most figures one is enough."""
LEAST_CLUSTERS = 4
"""From this many clusters on (by hosts and by the slowest host's remaining bandwidth), simulations are shown as a
map."""


def write_report(
    folders: Path | Sequence[Path], out: Path | None = None, tell: Callable[[str], None] = lambda line: None
) -> Path:
    """Writes rows, figures, tables and report.html of one run or several into `out`; returns the path of the page.

    Without `out`, the report goes into the run's own folder; several runs need `out`. `tell` is called with a line for
    every trial, and every table beside one, that cannot be read. Raises `ReportError`.
    """
    runs = load_folders([folders] if isinstance(folders, Path) else folders)
    place = _place(runs, out)
    for line in [*all_problems(runs), *lacking(runs)]:
        tell(line)
    frame = trial_frame(runs)
    write_rows(runs, frame, place)
    page = place / "report.html"
    lines = headline(frame)
    shown = content(runs, frame, lines, place / "figures")
    for line in shown.unread:
        tell(line)
    text = html(shown)
    write_exports(runs, lines, shown.targets, bounds_of_each(runs, frame), place)
    part = page.with_name(".report.html.part")
    part.write_text(text, encoding="utf-8", errors="replace")
    part.replace(page)
    return page


def _place(runs: Sequence[LoadedRun], out: Path | None) -> Path:
    if out is None:
        if len(runs) > 1:
            raise ReportError(f"{len(runs)} runs in one report need a folder of their own for it: add -o DIR")
        return _writable(runs[0].folder)
    out = real(out)
    if len(runs) > 1 and out in [run.folder for run in runs]:
        raise ReportError(
            f"{out}: is one of the runs, whose own report would be overwritten; give another folder with -o DIR"
        )
    if out.exists() and not out.is_dir():
        raise ReportError(f"{out}: not a folder; give one with -o DIR")
    out.mkdir(parents=True, exist_ok=True)
    return _writable(out)


def _writable(out: Path) -> Path:
    """`out`, where nothing of another kind has the name of the page or of its figures' folder."""
    page, figures = out / "report.html", out / "figures"
    if page.is_dir():
        raise ReportError(f"{page}: is a folder where the page would be; remove it, or give -o DIR")
    if figures.exists() and not figures.is_dir():
        raise ReportError(f"{figures}: is no folder, where the figures would be; remove it, or give -o DIR")
    return out


def has_project_targets(runs: Sequence[LoadedRun]) -> bool:
    """Whether all `runs` are of the project's own experiments."""
    return all(run.run.experiment.get("project_targets") is True for run in runs)


def promises(runs: Sequence[LoadedRun], frame: pd.DataFrame, lines: Sequence[Line]) -> list[Target]:
    """The bounds of the experiments, each compared with its own trials; before them the project's own targets, if all
    experiments are the project's."""
    found = []
    if has_project_targets(runs):
        found += [without_all(one, "; ".join(_incomplete(runs))) for one in targets(lines)]
    for run, bounds in zip(runs, bounds_of_each(runs, frame), strict=True):
        found += [replace(one, what=f"{run.called}: {one.what}") for one in bounds] if run.called else bounds
    return found


def bounds_of_each(runs: Sequence[LoadedRun], frame: pd.DataFrame) -> list[list[Target]]:
    """The bounds of each run's experiment, compared with its own trials."""
    found = []
    for run in runs:
        own = frame[frame["run"] == run.name]
        # Bounds name systems as their own experiment does, without the run.
        own = own.assign(system=own["plain_system"])
        found.append([bound.target() for bound in held(own, run.run.experiment, run.incomplete, run.run.only)])
    return found


def content(
    runs: Sequence[LoadedRun], frame: pd.DataFrame, lines: Sequence[Line], figures: Path | None = None
) -> Content:
    """Everything that the page shows. Figures are drawn and saved into `figures`; None: no figures."""
    with style.palette(columns.places(lines)):
        return _content(runs, frame, lines, figures)


def _content(runs: Sequence[LoadedRun], frame: pd.DataFrame, lines: Sequence[Line], figures: Path | None) -> Content:
    timelines, sparse, uncounted = _timelines(runs, figures) if figures else ({}, [], [])
    damaged = [line for run in runs for line in damaged_tables(run)] if figures else []
    unread = list(dict.fromkeys([*damaged, *uncounted]))
    return Content(
        title=" and ".join(dict.fromkeys(experiment_name(run.run) for run in runs)),
        origins=[_origin(run) for run in runs],
        sentences=[
            *sentences(frame, [_scope(run, frame) for run in runs], _earlier(runs), _incomplete(runs)),
            *(
                f"The runs differ in {d.told({run.name: run.called for run in runs})}."
                for d in machines.differences(runs)
            ),
            *(f"{run.called or run.name}: {changed}." for run in runs if (changed := change_of(run.run))),
            *_not_judged(runs),
            *(told for run in runs for told in drift_lines(run)),
            *filter(
                None, [about(t for run in runs for t in run.final_trials) for about in (stolen_time, unwatched_hosts)]
            ),
            *(f"A trial cannot be read and is in no figure: {line}" for line in all_problems(runs)),
        ],
        targets=promises(runs, frame, lines),
        lines=lines,
        pictures=list(_pictures(frame, figures)) if figures else [],
        entries=_entries(runs, timelines),
        problems=[*all_problems(runs), *sparse, *unread],
        unread=unread,
        project_targets=has_project_targets(runs),
        first=_first(frame, lines, figures) if figures else None,
    )


def _origin(run: LoadedRun) -> Origin:
    provenance = run.run.provenance
    return Origin(
        run=run.heading,
        description=str(run.run.experiment.get("description") or ""),
        command=str(provenance.get("command") or "not known"),
        started=run.run.started,
        finished=run.run.finished,
        incomplete=run.incomplete,
        provenance={k: v for k, v in provenance.items() if k != "command"} | {"folder": run.folder.name},
        experiment=run.run.experiment,
    )


def _incomplete(runs: Sequence[LoadedRun]) -> list[str]:
    """Why what is told may not be all, by run."""
    return [f"{run.called}: {why}" if run.called else why for run in runs if (why := run.incomplete)]


def _not_judged(runs: Sequence[LoadedRun]) -> list[str]:
    """The bounds that each run says nothing about."""
    told = {run.called: not_judged(run.run, run.final_trials, run.incomplete) for run in runs}
    return [f"{called}: {text}" if called else text for called, text in told.items() if text]


def _scope(run: LoadedRun, frame: pd.DataFrame) -> str:
    told = scope(frame[frame["run"] == run.name], _common_setting(run))
    return f"{run.called}: {told}" if run.called else told


def _common_setting(run: LoadedRun) -> Setting:
    """The cluster of all trials; unknown if an axis changes it."""
    found = {setting_of(run.run, trial.settings) for trial in run.final_trials}
    return found.pop() if len(found) == 1 else Setting()


def _earlier(runs: Sequence[LoadedRun]) -> list[Trial]:
    """Every attempt that was inconclusive and run again."""
    return [trial for run in runs for attempts in run.earlier_attempts().values() for trial in attempts]


def _entries(runs: Sequence[LoadedRun], timelines: Pictures) -> list[Entry]:
    entries = []
    for run in runs:
        earlier = run.earlier_attempts()
        for trial in run.final_trials:
            key = run.name, trial.trial_id
            entries.append(Entry(trial, run.called, timelines.get(key), earlier.get(trial.cell_id, ())))
    return entries


def _pictures(frame: pd.DataFrame, figures: Path) -> Iterator[Picture]:
    """Every figure of every case that has data for it; simulations over many clusters have one figure of all of
    them."""
    gaps = bound_gap.cells_of(frame)
    if _are_a_map(gaps):
        frame = frame.drop(gaps.index)
    cases = [part for _, part in frame.groupby("case", sort=False)]
    for place, part in enumerate(cases):
        suffix = f"-{place + 1}" if len(cases) > 1 else ""
        for name, title, module, needed in FIGURES:
            if part[needed].notna().sum() >= LEAST.get(name, 1):
                told = module.caption(part)
                says = RESULTS[name](part) if name in RESULTS else _says(part, SAID.get(name, (needed,)))
                picture = Picture(f"{title}: {part['title'].iloc[0]}" if len(cases) > 1 else title, "", told, says)
                yield _both(picture, partial(module.draw, part), figures, f"{name}{suffix}")


def _first(frame: pd.DataFrame, lines: Sequence[Line], figures: Path) -> Picture | None:
    """The figure of the first screen: for simulations over many clusters their map, otherwise the time that systems
    lost."""
    gaps = bound_gap.cells_of(frame)
    if _are_a_map(gaps):
        return _saved(
            Picture("Above the lower bound", "", bound_gap.caption(gaps)), bound_gap.draw(gaps), figures, "bound_gap"
        )
    if not overview.tells(lines):
        return None
    picture = Picture(screen_of(lines).title, "", overview.caption(lines), overview.result(lines))
    return _both(picture, partial(overview.draw, lines), figures, "overview")


def _both(picture: Picture, draw: Callable[[], Figure], figures: Path, name: str) -> Picture:
    """The picture with its figure for a page and for a phone."""
    wide = _saved(picture, draw(), figures, name)
    with style.narrowed():
        return replace(wide, narrow=save(draw(), figures, f"{name}-narrow", picture.caption, picture.alt, ("svg",)))


def _saved(picture: Picture, figure: Figure, figures: Path, name: str) -> Picture:
    """The picture with its figure, whose files say what the page says."""
    return replace(picture, uri=save(figure, figures, name, picture.caption, picture.alt))


def _are_a_map(gaps: pd.DataFrame) -> bool:
    return gaps[["hosts", "remaining"]].drop_duplicates().shape[0] >= LEAST_CLUSTERS


def _says(part: pd.DataFrame, metrics: Sequence[str]) -> str:
    """The result of a figure in words: each system's number at the largest size that has one, the worst one if it is at
    another size, and which cells have none and why; of several measures also which it is."""
    lines, told = headline(part), []
    for metric in (METRICS[name] for name in metrics if name in METRICS):
        known = [line for line in lines if line[metric.name].n]
        values = [_said(line, metric, known) for line in at_largest(known)]
        why = hit_cost.LACKING.get(metric.name, "no value")
        if part["faulted"].any() and metric.of.endswith("went on") and (lacking := points.gaps(part, metric.name, why)):
            values.append(f"none for {lacking}")
        if values:
            what = f"{metric.in_short}: " if len(metrics) > 1 else ""
            told.append(what + "; ".join(values))
    return ". ".join(told)


def _said(line: Line, metric: Metric, known: Sequence[Line]) -> str:
    """A system's number at its largest size, and the worst of the others if that is worse."""
    of_sizes = [one for one in known if (one.setup, one.system) == (line.setup, line.system)]
    worst, word = (max, "highest") if metric.better == "lower" else (min, "lowest")
    other = worst(of_sizes, key=lambda one: one[metric.name].median)
    text = f"{line.system}{at_size(line.size_bytes)}: {number(line[metric.name].median)} {metric.unit}".strip()
    if metric.better is None or other[metric.name].median == line[metric.name].median:
        return text
    return f"{text} ({word}: {number(other[metric.name].median)}{at_size(other.size_bytes)})"


def _timelines(runs: Sequence[LoadedRun], figures: Path) -> tuple[Pictures, list[str], list[str]]:
    """Timelines by run and trial: one for the representative of every case, size and system; a line for those that
    have too few samples, and one for each table that cannot be read."""
    drawn: Pictures = {}
    sparse: list[str] = []
    unread: list[str] = []
    for run, trial in _by_turns(runs)[:MAX_TIMELINES]:
        samples = counters(run, trial)
        if isinstance(samples, str):
            unread.append(samples)
            continue
        rates = throughput(samples)
        if rates.empty:
            sparse.append(trial.trial_id)
            continue
        logged = log_events(run, trial)
        if isinstance(logged, str) and (run.trial_folder(trial) / EVENTS.file).exists():
            unread.append(logged)
        marks = [*core_events(trial), *nccl_trouble(logged)]
        state = _state(run, trial, unread) if len(drawn) < MAX_STATES else None
        figure = timeline.draw(trial, rates, marks, setting_of(run.run, trial.settings), state)
        # Numbered, because an id contains text from hosts or files, which must not determine file names.
        told = timeline.caption(trial, rates, state)
        picture = Picture(f"Timeline of {trial.trial_id}", "", told, _story(run, trial))
        drawn[run.name, trial.trial_id] = _saved(picture, figure, figures, f"timeline-{len(drawn) + 1:02d}")
    return drawn, _too_few(sparse), unread


def _by_turns(runs: Sequence[LoadedRun]) -> list[tuple[LoadedRun, Trial]]:
    """The representatives of all runs, one of each run at a time, so that a limit leaves every run its share."""
    # A simulation has no counters to draw.
    measured = [[trial for trial in run.final_trials if not trial.simulated] for run in runs]
    of_runs = [[(run, t) for t in representatives(trials)] for run, trials in zip(runs, measured, strict=True)]
    return [pair for turn in zip_longest(*of_runs) for pair in turn if pair is not None]


def _too_few(trials: Sequence[str]) -> list[str]:
    """The line about trials without enough samples, of which there may be hundreds."""
    if not trials:
        return []
    more = f" and {len(trials) - MOST_NAMED} more" if len(trials) > MOST_NAMED else ""
    return [f"{', '.join(trials[:MOST_NAMED])}{more}: too few counter samples for a timeline"]


def _state(run: LoadedRun, trial: Trial, unread: list[str]) -> pd.DataFrame | None:
    """The hosts' state. A table that exists but cannot be read is added to `unread`. Runs that predate the watch have
    no such table, which is not reported."""
    if not (run.trial_folder(trial) / WATCH.file).exists():
        return None
    seen = watched(run, trial)
    if isinstance(seen, str):
        unread.append(seen)
        return None
    frame = state_frame(seen, trial)
    return None if frame.empty else frame


def _story(run: LoadedRun, trial: Trial) -> str:
    """A timeline in words: the fault, and its cost."""
    view, told = view_of(run, trial), []
    if trial.fault:
        named = [f"{each.kind} on {each.host} {each.nic}" for each in trial.faults]
        more = [plural(len(named) - MOST_NAMED, "more fault")] if len(named) > MOST_NAMED else []
        told.append(", ".join([*named[:MOST_NAMED], *more]))
    for name in ("detect_ms", "slowdown", "lost_ms", "error_after_ms"):
        value = METRICS[name].value(view)
        if value is not None:
            of_means = name == "slowdown" and view.comes_and_goes
            what = f"T/T0: {RATIO_OF_MEANS}" if of_means else METRICS[name].in_short
            text = f"{what}: {number(value)} {METRICS[name].unit}".strip()
            doubtful = METRICS[name].from_effect and effect_error_ms(trial) > 0
            told.append(f"{text}, {effect_text(trial)}" if doubtful else text)
        elif (unsure := METRICS[name].unsure(view)) is not None:
            known = f"at most {number(unsure)} {METRICS[name].unit}" if METRICS[name].at_most else NOT_KNOWN
            told.append(f"{METRICS[name].in_short}: {known}, {effect_text(trial)}")
    return "; ".join([*told, *filter(None, [cost.not_known(view)]), ended(trial.status, expected=trial.expected)])


def representatives(trials: Sequence[Trial]) -> list[Trial]:
    """Of every (scenario, axes, size, system), the trial whose hit iteration is the median.

    The largest sizes come first. Within a size, every scenario and system comes before a second point of the axes.
    """
    groups: dict[tuple[int, str, str], dict[tuple[tuple[str, str], ...], list[Trial]]] = {}
    for trial in trials:
        if trial.fault is not None and trial.status != "inconclusive":
            points = groups.setdefault((-trial.size_bytes, trial.scenario, trial.system), {})
            points.setdefault(tuple(sorted(trial.axes.items())), []).append(trial)
    ordered = [
        (size, place, scenario, system, sorted(points[axes], key=_hit_ns))
        for (size, scenario, system), points in groups.items()
        for place, axes in enumerate(sorted(points))
    ]
    return [repeats[(len(repeats) - 1) // 2] for *_, repeats in sorted(ordered, key=itemgetter(slice(4)))]


def _hit_ns(trial: Trial) -> int:
    return sum(i.duration_ns for i in trial.iterations if i.phase == "hit")
