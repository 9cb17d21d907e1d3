"""The results of serving: the cells of the first table, and plain sentences by system and failure. Pure.

Requests queue, so those after a failure are compared with the same requests of the healthy trials, never with those
before it (`reports.metrics.serving`).
"""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from reports import stats
from reports.cells import Cell, all_stopped, named, spread, stopped, value_text, with_caveat, with_stopped
from reports.headline import Line
from reports.metrics import METRICS
from reports.wording import NOTHING, number, percent, plural

PHASES = {"during": "under way when it came", "after": "that began after it"}
TIMES = {"ttft": "to the first token", "tpot": "for each token after it"}
NO_HEALTHY = 'there is no healthy trial to compare requests with (sweep.healthy = "ends" adds some)'
NOISE = 0.1
"""From this difference of requests before the failure on, which nothing has failed for, the reader is told of it."""


def usual(cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """The time to the first token in healthy trials; without any, of requests that ended before the failure."""
    healthy = [line for line in own if not line.with_fault and line["before_ttft_p50_ms"].n]
    known = healthy or [line for line in cells if line["before_ttft_p50_ms"].n]
    told = [_range(known, f"before_{name}_p50_ms") for name in TIMES]
    detail = f"then {told[1]} ms per token" if told[1] else ""
    return Cell(told[0] or NOTHING, detail, "" if healthy or not known else "before the failure")


def over(name: str, phase: str, cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """By how much longer the requests of a phase took than the same ones of healthy trials; without any, their time."""
    if all_stopped(cells):
        return stopped(cells, own) if (name, phase) == ("ttft", "during") else Cell(NOTHING)
    cell = spread(cells, f"{phase}_{name}_over")
    absolute = _range(cells, f"{phase}_{name}_p50_ms")
    if absolute and cell.text == NOTHING:
        cell = Cell(f"{absolute} ms")
    elif absolute:
        cell = Cell(cell.text, "\n".join(filter(None, (cell.detail, f"they took {absolute} ms"))))
    known = [line for line in cells if line[f"{phase}_{name}_over"].n]
    lacking = [line for line in cells if known and line not in known and line.conclusive > line.stopped]
    cell = with_caveat(cell, f"not of {named(lacking, cells)}" if lacking else "")
    return with_stopped(cell, cells) if (name, phase) == ("ttft", "during") else cell


def took(name: str, phase: str, cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """The time of the requests of a phase, where there is no healthy trial at all."""
    cell = over(name, phase, cells, own)
    return replace(cell, text=cell.text.removesuffix(" ms"))


def counted(metric: str, is_bad: bool, cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """How many requests of the trials with a failure: in all, or of a median trial."""
    known = [line for line in cells if line[metric].n]
    if not known:
        return Cell(NOTHING)
    if METRICS[metric].aggregate != "total":
        return spread(cells, metric)
    total = sum(int(line.told[metric]) for line in known)
    return Cell(str(total), bad=is_bad and total > 0)


def answers(cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """How many answers were others; what was found wrong without a healthy trial to compare with is told besides."""
    cell, wrong = counted("answers_differ", True, cells, own), sum(line.wrong for line in own)
    return with_caveat(replace(cell, bad=cell.bad or wrong > 0), f"{wrong} WRONG elements" if wrong else "")


def noise(lines: Sequence[Line]) -> list[str]:
    """By how much requests before any failure differ from the same ones of healthy trials, which is the machine's
    doing, between the trials where it is least and most: opposite ones have a median near 0. Or that there is nothing
    to compare with."""
    faulted = [line for line in lines if line.faulted and line.conclusive > line.stopped]
    if faulted and not any(line[f"{phase}_ttft_over"].n for line in faulted for phase in ("before", *PHASES)):
        return [f"{NO_HEALTHY[:1].upper()}{NO_HEALTHY[1:]}."]
    names = {name: f"before_{name}_over" for name in TIMES}
    found = {name: [end for li in lines if li[of].n for end in li.ends[of]] for name, of in names.items()}
    told = [
        f"{_ends(values, f'before_{name}_over')} % {TIMES[name]}"
        for name, values in found.items()
        if values and max(map(abs, values)) >= NOISE
    ]
    what = "Requests before any failure differ from the same ones in healthy trials as well"
    return [f"{what}, by {' and '.join(told)}: so much is this machine's noise."] if told else []


def _range(lines: Sequence[Line], metric: str) -> str:
    values = [line[metric].median for line in lines if line[metric].n]
    return _ends(values, metric) if values else ""


def _ends(values: Sequence[float], metric: str) -> str:
    return " to ".join(dict.fromkeys(value_text(METRICS[metric], end) for end in (min(values), max(values))))


def served_sentences(frame: pd.DataFrame) -> list[str]:
    """A sentence on every system under every failure; none if nothing was served."""
    served = frame[(frame["workload"] == "serving") & (frame["status"] != "inconclusive") & frame["faulted"]]
    several = served["setup"].nunique() > 1
    told = []
    for (setup, system, scenario), part in served.groupby(["setup", "system", "scenario"], sort=False):
        points = ", ".join(f"{axis} {value}" for axis, value in part.iloc[0]["points"].items()) or str(setup)
        told.append(f"{system} under {scenario}{f' ({points})' if several else ''}: {_outcome(part)}.")
    return told


def _outcome(part: pd.DataFrame) -> str:
    times = [text for phase in PHASES if (text := _phase(part, phase))]
    ended = int((part["status"] == "failed").sum())
    some = [f"{ended} of {plural(len(part), 'trial')} ended with an error"] if ended else []
    return "; ".join([*some, *times, *_counts(part)])


def _phase(part: pd.DataFrame, phase: str) -> str:
    """What requests of a phase took, against the same ones of healthy trials; empty: there was none."""
    if part[f"{phase}_ttft_p50_ms"].isna().all():
        return ""
    told = []
    for name, until in TIMES.items():
        ms = f"{number(stats.median(part[f'{phase}_{name}_p50_ms']))} ms"
        share = stats.median(part[f"{phase}_{name}_over"])
        against = f" ({percent(abs(share))} {'more' if share >= 0 else 'less'})" if share == share else ""
        told.append(f"{ms} {until}{against}")
    return f"requests {PHASES[phase]} took {' and '.join(told)}"


def _counts(part: pd.DataFrame) -> list[str]:
    """Requests hurt, repeated, unanswered and answered differently; without healthy trials, that these are unknown."""
    trials = plural(len(part), "trial")
    hurt, again = part["requests_hurt"].dropna(), int(part["requests_again"].sum())
    usual = stats.median(hurt)
    told = (
        [f"{number(usual)} {'was' if usual == 1 else 'were'} slower than the slowest healthy one (median of {trials})"]
        if len(hurt)
        else []
    )
    told += [f"of {again}, some work was repeated (in {trials})"] if again else []
    if part["answers_differ"].isna().all():
        return [*told, NO_HEALTHY]
    lost, other = (int(part[name].sum()) for name in ("requests_unanswered", "answers_differ"))
    lacking = [f"{lost} had no answer"] if lost else []
    every = "every other" if lost else "every"
    differing = f"{other} had an answer that is NOT the healthy one" if other else f"{every} answer was the healthy one"
    return [*told, *lacking, differing]
