"""The page: everything known about a run put into one HTML file that fetches nothing. Pure.

Every value is escaped by the template, whoever wrote it; figures come in as data URIs.
"""

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from r2ccl_core.units import format_size
from reports.state import effect_text
from reports.stats import Estimate
from reports.summary import Line
from reports.targets import Target
from reports.trial import Trial

TEMPLATES = Path(__file__).parent / "templates"
MAX_TRIAL_ROWS = 2000
MAX_DETAILS = 200
MAX_ITERATIONS = 60


@dataclass(frozen=True)
class Picture:
    """A figure in the page; `uri` holds it whole."""

    title: str
    uri: str
    caption: str


@dataclass(frozen=True)
class Content:
    """All that the page shows."""

    title: str
    description: str
    command: str
    started: str
    finished: str | None
    sentences: Sequence[str]
    targets: Sequence[Target]
    lines: Sequence[Line]
    pictures: Sequence[Picture]
    trials: Sequence[Trial]
    timelines: Mapping[str, Picture]
    """By trial_id."""
    problems: Sequence[str]
    provenance: Mapping[str, Any]
    experiment: Mapping[str, Any]
    several_cases: bool = False
    states: Mapping[str, Picture] = field(default_factory=dict)
    """What the hosts were doing, by trial_id."""


def html(content: Content) -> str:
    """The whole page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": format_size,
        "number": number,
        "estimate": estimate,
        "plain": plain,
        "effect": effect_text,
        "sort": sort_key,
    }
    detailed = shown_in_detail(content.trials, content.timelines)
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return environment.get_template("page.html.j2").render(
        c=content,
        style=Markup(style),
        script=Markup(script),
        policy=policy(style, script),
        listed=content.trials[:MAX_TRIAL_ROWS],
        left_out=max(0, len(content.trials) - MAX_TRIAL_ROWS),
        detailed=detailed,
        anchors={t.trial_id: f"trial-{place}" for place, t in enumerate(detailed, start=1)},
        opened=_largest_with_timeline(detailed, content.timelines),
        max_iterations=MAX_ITERATIONS,
        provenance=[(key, plain(value)) for key, value in content.provenance.items()],
        experiment=json.dumps(content.experiment, indent=2, ensure_ascii=False),
    )


def policy(style: str, script: str) -> str:
    """The page's content security policy: no network, and of styles and scripts only the page's own two."""
    style_hash, script_hash = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii") for text in (style, script)
    )
    return f"default-src 'none'; img-src data:; style-src 'sha256-{style_hash}'; script-src 'sha256-{script_hash}'"


def shown_in_detail(trials: Sequence[Trial], timelines: Mapping[str, Picture]) -> list[Trial]:
    """The fault trials with a section: those with a timeline, then unexpected ones, then the others."""
    order = {trial_id: place for place, trial_id in enumerate(timelines)}
    faulted = [t for t in trials if t.fault is not None or not t.expected]
    return sorted(faulted, key=lambda t: (order.get(t.trial_id, len(order)), t.expected))[:MAX_DETAILS]


def _largest_with_timeline(trials: Sequence[Trial], timelines: Mapping[str, Picture]) -> set[str]:
    """The trials whose section is open from the start: one a system, of the largest size."""
    drawn = [t for t in trials if t.trial_id in timelines]
    largest = max((t.size_bytes for t in drawn), default=0)
    first = {t.system: t.trial_id for t in reversed(drawn) if t.size_bytes == largest}
    return set(first.values())


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits without an exponent; a dash where there is nothing."""
    if value is None or not math.isfinite(value):
        return "\N{EN DASH}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{min(decimals, 6)}f}".replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", "\N{MINUS SIGN}")


def estimate(value: Estimate, digits: int = 3, factor: float = 1.0) -> Markup:
    """A median with its interval in small print."""
    if not value.n:
        return Markup("\N{EN DASH}")
    text = number(value.median * factor, digits)
    if not math.isfinite(value.low):
        return Markup("{}").format(text)
    low, high = number(value.low * factor, digits), number(value.high * factor, digits)
    return Markup('{} <span class="ci">{} to {}</span>').format(text, low, high)


def sort_key(value: Estimate | float | None) -> str:
    """What a column sorts by; what is missing comes last."""
    there = value.median if isinstance(value, Estimate) else value
    return "" if there is None or not math.isfinite(there) else repr(float(there))


def plain(value: object) -> str:
    """A JSON value for people: text as it is, the rest as compact JSON."""
    if value is None:
        return "not known"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
