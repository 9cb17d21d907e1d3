"""The page: everything known about a run in one HTML file that fetches nothing. Pure.

The template escapes every value, whatever its origin; figures are embedded as data URIs.
"""

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from reports import columns, palette, wording
from reports.effect import effect_text, error_text
from reports.flat import flat
from reports.headline import Line
from reports.held_back import held_back
from reports.metrics.cost import not_known
from reports.metrics.metric import Metric
from reports.metrics.view import View
from reports.not_back import not_back
from reports.overview import MOST_SMALL_PRINT, first_tables, scope_note, small_print
from reports.stats import Estimate
from reports.targets import Target
from reports.trial import Trial
from reports.wording import sized

TEMPLATES = Path(__file__).parent / "templates"
MAX_TRIAL_ROWS = 2000
MAX_DETAILS = 200
MAX_ITERATIONS = 60
MAX_TIMELINES = 24
MOST_COLUMNS = 13
"""A sheet of paper has room for so many columns beside system, size and trials: metrics, and what tells rows apart as
fault and axes do. More are printed as a block for each row."""
LONG_NUMBER = 5
"""From so many digits on thousands stand apart; shorter numbers read as in the first table and the summary."""
MOST_ODD = 3
"""At most so many sections of unexpected trials are open initially."""
LONG = ("cluster", "clocks", "continued")
"""Entries of the provenance that are collapsed."""


@dataclass(frozen=True)
class Picture:
    """A figure in the page; `uri` holds all of it."""

    title: str
    uri: str
    caption: str
    says: str = ""
    """Its result in words, for readers who cannot see it."""
    narrow: str = ""
    """The same figure for narrow screens, if it has another form there."""

    @property
    def alt(self) -> str:
        """The alternative text of the picture."""
        return f"{self.title}: {self.says or self.caption}"


@dataclass(frozen=True)
class Origin:
    """The origin of one run."""

    run: str
    description: str
    command: str
    started: str
    finished: str | None
    incomplete: str
    """Why the page may not show all of it (`reports.load.LoadedRun.incomplete`)."""
    provenance: Mapping[str, Any]
    experiment: Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One trial of the page: its last attempt, the run if there are several, and the earlier attempts."""

    trial: Trial
    run: str = ""
    timeline: Picture | None = None
    earlier: Sequence[Trial] = ()


@dataclass(frozen=True)
class Content:
    """Everything that the page shows."""

    title: str
    origins: Sequence[Origin]
    sentences: Sequence[str]
    targets: Sequence[Target]
    lines: Sequence[Line]
    pictures: Sequence[Picture]
    entries: Sequence[Entry]
    problems: Sequence[str]
    unread: Sequence[str] = ()
    """Those of `problems` that concern a table beside a trial."""
    project_targets: bool = False
    """Whether `targets` begin with the project's own targets."""
    first: Picture | None = None
    """The figure of the first screen."""


@dataclass(frozen=True)
class Live:
    """The progress of the sweep behind a served page; the page reloads itself when `version` changes."""

    version: str
    done: int
    planned: int | None
    finished: bool


def html(content: Content, live: Live | None = None) -> str:
    """The whole page. With `live`, the served form, which asks only its own server for the progress."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": sized,
        "measures": measures,
        "number": number,
        "told": told,
        "capital": lambda text: text[:1].upper() + text[1:],
        "plain": plain,
        "trials": lambda count: wording.plural(count, "trial"),
        "has": wording.has,
        "effect": effect_text,
        "error_text": error_text,
        "key": sort_key,
        "heading": columns.heading,
        "network": network_text,
        "iterations": iterations_text,
        "not_known": lambda trial: not_known(View(trial)),
        "status": lambda trial: wording.ended(trial.status, expected=trial.expected),
        "scenario": lambda trial: ", ".join([trial.scenario, *(f"{axis} {at}" for axis, at in trial.axes.items())]),
    }
    detailed, tables = shown_in_detail(content.entries), first_tables(content.lines)
    rows = [row for table in tables for row in table.rows]
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    style += palette.css()
    script += (TEMPLATES / "live.js").read_text(encoding="utf-8") if live else ""
    return environment.get_template("page.html.j2").render(
        c=content,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script) + ("; connect-src 'self'" if live else ""),
        live=live,
        listed=content.entries[:MAX_TRIAL_ROWS],
        left_out=max(0, len(content.entries) - MAX_TRIAL_ROWS),
        detailed=detailed,
        timelines=sum(entry.timeline is not None for entry in content.entries),
        most_timelines=MAX_TIMELINES,
        anchors={(e.run, e.trial.trial_id): f"trial-{place}" for place, e in enumerate(detailed, start=1)},
        opened=_opened(detailed),
        several_runs=len(content.origins) > 1,
        metrics=columns.shown(content.lines),
        about=columns.about(content.lines),
        many=len(columns.shown(content.lines)) + len(columns.about(content.lines)) > MOST_COLUMNS,
        tables=tables,
        details=any(told.detail for row in rows for told in row.cells.values()),
        much=small_print(rows) > MOST_SMALL_PRINT,
        scope_note=scope_note(content.lines),
        held_back=_held_back(content.entries),
        modelled=any(line.model is not None for line in content.lines),
        marks=marks(content.lines),
        with_earlier=any(entry.earlier for entry in content.entries),
        max_iterations=MAX_ITERATIONS,
        provenance=[list(flat({k: v for k, v in o.provenance.items() if k not in LONG})) for o in content.origins],
        long=[list(flat({k: v for k, v in o.provenance.items() if k in LONG})) for o in content.origins],
        experiments=[list(flat(o.experiment)) for o in content.origins],
    )


def _held_back(entries: Sequence[Entry]) -> list[str]:
    """The sentences on healed NICs that were held back or not back in time, of each run that has some."""
    runs = dict.fromkeys(e.run for e in entries)
    told = [(run, of(e.trial for e in entries if e.run == run)) for run in runs for of in (held_back, not_back)]
    return [f"{run}: {sentence}" if run else sentence for run, sentence in told if sentence]


def marks(lines: Sequence[Line]) -> dict[str, tuple[int, str]]:
    """By system, the number of its colour and its mark."""
    return {system: (place.color, palette.glyph(place.mark)) for system, place in columns.places(lines).items()}


def policy(style: str, script: str) -> str:
    """The page's content security policy: no network, and only the page's own style and script."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in (style, script)
    )
    return f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'"


def shown_in_detail(entries: Sequence[Entry]) -> list[Entry]:
    """The fault trials that have a section: those with a timeline, then unexpected ones, then the others."""
    told = [e for e in entries if e.trial.fault is not None or not e.trial.expected]
    drawn = sorted((e for e in told if e.timeline), key=lambda e: (e.run, -e.trial.size_bytes))
    return (drawn + sorted((e for e in told if not e.timeline), key=lambda e: e.trial.expected))[:MAX_DETAILS]


def _opened(entries: Sequence[Entry]) -> set[tuple[str, str]]:
    """The trials whose section is open initially: one per system, of the largest size, and the first ones that ended
    unexpectedly, which a reader looks for."""
    odd = [e for e in entries if not e.trial.expected and e.trial.status != "inconclusive"][:MOST_ODD]
    drawn = [e for e in entries if e.timeline]
    largest = max((e.trial.size_bytes for e in drawn), default=0)
    first = {e.trial.system: e for e in reversed(drawn) if e.trial.size_bytes == largest}
    return {(e.run, e.trial.trial_id) for e in (*first.values(), *odd)}


def number(value: float | None, digits: int = 3) -> str:
    """The number as every other output has it; thousands of long ones stand apart."""
    whole, point, rest = wording.number(value, digits).partition(".")
    if sum(map(str.isdigit, whole)) >= LONG_NUMBER:
        whole = re.sub(r"(?<=\d)(?=(\d{3})+$)", "\N{NARROW NO-BREAK SPACE}", whole)
    return f"{whole}{point}{rest}"


def estimate(value: Estimate, digits: int = 3, factor: float = 1.0) -> Markup:
    """A median with its interval in small print."""
    if not value.n:
        return Markup("\N{EN DASH}")
    text = number(value.median * factor, digits)
    if not math.isfinite(value.low):
        return Markup("{}").format(text)
    low, high = number(value.low * factor, digits), number(value.high * factor, digits)
    return Markup('{} <span class="ci">{} to {}</span>').format(text, low, high)


def told(line: Line, metric: Metric) -> Markup:
    """A metric of a line: its total, or its median with interval and worst trial."""
    value, unknown = line[metric.name], line.unknown(metric)
    if unknown and not value.n:
        return Markup("{}").format(line.median_not_known(metric))
    if metric.aggregate == "total" and metric.name != "wrong":
        return Markup("{}").format(number(line.told[metric.name], 15) if value.n else line.no_total(metric))
    if metric.aggregate == "total":
        count = Markup(' <span class="ci">{} checked</span>').format(line.checked)
        if not value.n:
            return Markup("{}").format(line.no_total(metric))
        return Markup("{}{}").format(number(line.told[metric.name], 15), count)
    factor = 100 if metric.percent else 1
    worst = line.worst[metric.name]
    # Of few repeats the interval is their range, so it already says the worst.
    shown = metric.unit == "ms" and value.n > 1 and worst not in (value.low, value.high)
    more = Markup('<span class="ci">worst {}</span>').format(number(worst * factor)) if shown else ""
    notes = filter(None, (line.known_in(metric), line.without_nic(metric)))
    return estimate(value, 3, factor) + more + Markup("").join(map(Markup('<span class="ci">{}</span>').format, notes))


def iterations_text(trial: Trial) -> str:
    """How many iterations a trial has, and how many warm-ups before them: ``14 iterations, after 1 warm-up``."""
    warmups = len(trial.iterations) - len(trial.timed)
    after = f", after {wording.plural(warmups, 'warm-up')}" if warmups else ""
    return f"{len(trial.timed)} {trial.counts}{after}"


def measures(told: Mapping[str, float]) -> str:
    """Further measurements of an iteration, in words and on one line: ``forward 17.334 ms, loss 5.5``. A checksum is
    no quantity: as in rows.csv, so that it is found there."""
    texts = {name: f"{value:.0f}" if name == "answer" else number(value, 5) for name, value in told.items()}
    return ", ".join(_measured(name, text) for name, text in texts.items())


def _measured(name: str, value: str) -> str:
    stem = name.removesuffix("_ms")
    return f"{stem.replace('_', ' ')} {value}{' ms' * (stem != name)}"


def sort_key(line: Line, metric: Metric) -> str:
    """The value by which a column sorts; missing values come last."""
    value = line.told[metric.name]
    return repr(float(value)) if math.isfinite(value) else ""


def network_text(found: object) -> str:
    """The evidence of the network that a trial used: ``proven: eth0, eth1``."""
    if not isinstance(found, Mapping):
        return plain(found)
    used = found.get("used")
    names = ", ".join(map(str, used)) if isinstance(used, list) and used else "not known"
    return f"{found.get('finding')}: {names}" + (f" ({found['reason']})" if found.get("reason") else "")


def plain(value: object) -> str:
    """A stored value as text for people."""
    if value is None:
        return "not known"
    return "; ".join(f"{key} {told}".strip() for key, told in flat(value)) if not isinstance(value, str) else value
