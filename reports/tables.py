"""The table by size and system as Markdown, CSV and LaTeX, for notes, spreadsheets and papers. Pure."""

import csv
import io
from collections.abc import Iterator, Sequence

from reports import columns
from reports.headline import Line
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.stats import Estimate
from reports.wording import NOTHING, number, sized

ABOUT = ("case", "size_bytes", "system", "mode", "statuses", "model", "checked", "not_back", "back_in_part")
"""The first columns of the CSV, named as in `Line`; every metric follows."""


def texts(lines: Sequence[Line]) -> list[list[str]]:
    """The headings, then the texts of each line; what no line measured has no column."""
    metrics = columns.shown(lines)
    modelled = any(line.model is not None for line in lines)
    head = ["case", "size", "system", "trials", *(["T/T0 by the model"] if modelled else [])]
    rows = [[*head, *map(columns.heading, metrics)]]
    for line in lines:
        model = [number(line.model)] if modelled else []
        about = [line.case, sized(line.size_bytes), line.system, line.statuses, *model]
        rows.append([*about, *(cell_of(line, metric) for metric in metrics)])
    return rows


def cell_of(line: Line, metric: Metric) -> str:
    """A line's value of a metric, as text."""
    if metric.aggregate == "total":
        return number(line.told[metric.name], 15) if line[metric.name].n else line.no_total(metric)
    value, unknown = line[metric.name], line.unknown(metric)
    if unknown and not value.n:
        return line.median_not_known(metric)
    known = "; ".join(filter(None, (line.known_in(metric), line.without_nic(metric))))
    return _estimate(value, 100 if metric.percent else 1) + (f" ({known})" if known else "")


def markdown(lines: Sequence[Line], notes: Sequence[str] = ()) -> str:
    """A Markdown table, and below it a paragraph for each of `notes`; bars, brackets and line breaks in names are
    escaped."""
    head, *rows = texts(lines)
    rows = [head, ["---"] * len(head), *rows]
    table = "".join(f"| {' | '.join(map(cell, row))} |\n" for row in rows)
    return table + "".join(f"\n{cell(note)}\n" for note in notes)


def comma_separated(lines: Sequence[Line]) -> str:
    """A CSV file with plain numbers: median, low and high of every measure in separate columns, with the number of
    trials that have a value, which may be too few for a median."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    rows = [[*((name, getattr(line, name)) for name in ABOUT), *_numbers(line)] for line in lines]
    writer.writerow([*ABOUT, *(name for name, _ in rows[0][len(ABOUT) :])] if rows else ABOUT)
    writer.writerows(["" if value != value else value for _, value in row] for row in rows)
    return out.getvalue()


def _numbers(line: Line) -> Iterator[tuple[str, float]]:
    """Of each metric its median, interval, number of repeats and worst trial, or its total."""
    for name, metric in METRICS.items():
        if metric.aggregate == "total":
            yield name, line.told[name]
            continue
        told = line[name]._replace(n=line.values[name])  # the worst is of these, even if no median is
        yield from ((f"{name}_{part}", value) for part, value in told._asdict().items())
        yield f"{name}_worst", line.worst[name]


def latex(lines: Sequence[Line]) -> str:
    """A ``tabular`` with booktabs rules; every special character of a name is escaped."""
    head, *others = texts(lines)
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in [head, *others]]
    rows.insert(1, r"\midrule")
    columns = "llll" + "r" * (len(head) - 4)
    body = "\n".join(rows)
    return f"\\begin{{tabular}}{{{columns}}}\n\\toprule\n{body}\n\\bottomrule\n\\end{{tabular}}\n"


def _estimate(value: Estimate, factor: float = 1.0) -> str:
    if not value.n:
        return NOTHING
    text = number(value.median * factor)
    return f"{text} [{number(value.low * factor)}, {number(value.high * factor)}]" if value.n > 1 else text


def cell(text: str) -> str:
    """`text` as the cell of a Markdown table."""
    return "".join(f"\\{c}" if c in "|<>[]`*\\" else c for c in " ".join(text.split()))


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$",
    "\N{EN DASH}": "--",
}


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in " ".join(text.split()))
