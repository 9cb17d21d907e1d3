"""Tables as values, and their text as Markdown, CSV and LaTeX; the page renders the same values as HTML. Pure."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from r2ccl_core.units import format_size
from reports.cells import Cell
from reports.comparison import MEASURES, Comparison
from reports.targets import Target
from reports.wording import NOTHING, number


@dataclass(frozen=True)
class Entry:
    """What stands in a table's cell, and the number by which its column is sorted, if it is one."""

    text: str
    key: float | None = None
    mark: str = ""
    """``good`` or ``bad`` where the page may colour it."""
    link: str = ""
    """The id of the element on the page that tells more."""


@dataclass(frozen=True)
class Table:
    """A caption, headings, and rows of as many entries as there are headings."""

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def cells_table(found: Sequence[Cell]) -> Table:
    """The table by size and system."""
    several = len({c.case for c in found}) > 1
    headings = (
        *(("case",) if several else ()), "size", "system", "trials", "before (GB/s)", "hit (GB/s)", "after (GB/s)",
        "T/T0", "model", "hit cost (ms)", "stall (ms)", "traffic back (ms)", "error after (ms)", "wrong",
    )  # fmt: skip
    rows = tuple((*((Entry(c.case),) if several else ()), *_cell_row(c)) for c in found)
    caption = "Medians over repeats, in brackets the 95 % interval (with fewer than 5 repeats, their range)."
    return Table(caption, headings, rows)


def targets_table(found: Sequence[Target]) -> Table:
    """The headline table."""
    rows = tuple(
        (
            Entry("reached" if t.met else "missed", float(t.met), "good" if t.met else "bad"),
            Entry(t.what), Entry(t.wanted), Entry(t.measured), Entry(t.detail),
        )
        for t in found
    )  # fmt: skip
    return Table(
        "What a run should reach, and what this one reached.", ("", "target", "wanted", "measured", "detail"), rows
    )


def comparisons_table(found: Sequence[Comparison]) -> Table:
    """Paired differences between systems."""
    several = len({c.case for c in found}) > 1
    headings = (
        *(("case",) if several else ()),
        "size",
        "measure",
        "system",
        "against",
        "ratio",
        "interval",
        "pairs",
        "verdict",
    )
    rows = tuple((*((Entry(c.case),) if several else ()), *_comparison_row(c)) for c in found)
    caption = (
        "How many times the bandwidth of the other system, paired by repeat within one run (geometric mean, 95 % "
        "t interval). Differences below 1 % are not told as differences."
    )
    return Table(caption, headings, rows)


def to_markdown(table: Table) -> str:
    """A GitHub table; bars and line breaks in names are made harmless."""
    lines = [_markdown_line(table.headings), _markdown_line("---" for _ in table.headings)]
    lines += [_markdown_line(entry.text for entry in row) for row in table.rows]
    return f"{table.caption}\n\n" + "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Headings and texts, quoted where needed."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows([entry.text for entry in row] for row in table.rows)
    return out.getvalue()


def to_latex(table: Table) -> str:
    """A ``tabular`` with booktabs rules; every special character is escaped."""
    head = " & ".join(map(_latex, table.headings)) + r" \\"
    body = "\n".join(" & ".join(_latex(e.text) for e in row) + r" \\" for row in table.rows)
    columns = "l" * len(table.headings)
    return (
        f"% {_one_line(table.caption)}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{head}\n\\midrule\n{body}\n"
        "\\bottomrule\n\\end{tabular}\n"
    )


def _cell_row(c: Cell) -> tuple[Entry, ...]:
    statuses = ", ".join(f"{count} {status}" for status, count in c.statuses.items())
    return (
        Entry(format_size(c.size_bytes), c.size_bytes),
        Entry(c.system, c.mode),
        Entry(statuses + (f" ({c.unexpected} unexpected)" if c.unexpected else ""), mark="bad" if c.unexpected else ""),
        *(_estimate(c, name) for name in ("before_gbs", "hit_gbs", "after_gbs", "slowdown")),
        Entry(number(c.model), c.model),
        *(_estimate(c, name) for name in ("hit_cost_ms", "stall_ms", "recover_ms", "error_after_ms")),
        Entry(str(c.wrong) if c.checked else NOTHING, c.wrong, "bad" if c.wrong else ""),
    )


def _estimate(c: Cell, name: str) -> Entry:
    found = c.measures[name]
    if not found.n:
        return Entry(NOTHING)
    span = f" [{number(found.low)}, {number(found.high)}]" if found.low == found.low else ""
    return Entry(number(found.median) + span, found.median)


def _comparison_row(c: Comparison) -> tuple[Entry, ...]:
    d = c.difference
    return (
        Entry(format_size(c.size_bytes), c.size_bytes), Entry(MEASURES[c.measure]), Entry(c.system), Entry(c.other),
        Entry(number(d.ratio), d.ratio), Entry(f"{number(d.low)} to {number(d.high)}"), Entry(str(d.n), d.n),
        Entry(d.verdict),
    )  # fmt: skip


def _markdown_line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(_one_line(t).replace("|", "\\|").replace("<", "&lt;") for t in texts) + " |"


def _one_line(text: str) -> str:
    return " ".join(text.split())


_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "\N{MINUS SIGN}": "$-$", "\N{EN DASH}": "--",
}  # fmt: skip


def _latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in _one_line(text))
