"""The table by size and system as Markdown, CSV and LaTeX, for notes, spreadsheets and papers. Pure."""

import csv
import io
from collections.abc import Sequence

from r2ccl_core.units import format_size
from reports.stats import Estimate
from reports.summary import Line
from reports.wording import NOTHING, number

HEADINGS = (
    "case", "size", "system", "trials", "healthy (GB/s)", "of NIC limit (%)", "hit (GB/s)", "after (GB/s)",
    "repaired (GB/s)",
    "T/T0", "model", "of the bound (%)", "hit cost (ms)", "worst (ms)", "wrong", "fault to error (ms)",
)  # fmt: skip


ABOUT = ("case", "size_bytes", "system", "mode", "statuses", "model", "wrong", "checked")
"""The CSV's first columns, named as in `Line`."""
MEASURED = (
    "before_gbs", "share", "hit_gbs", "after_gbs", "repaired_gbs",
    "slowdown", "bound_share", "hit_cost_ms", "error_ms",
)  # fmt: skip
"""Those after them, each with median, low, high and number."""


def texts(lines: Sequence[Line]) -> list[list[str]]:
    """One row of texts a line, as `HEADINGS`."""
    return [
        [
            line.case, format_size(line.size_bytes), line.system, line.statuses,
            _estimate(line.before_gbs), _estimate(line.share, 100), _estimate(line.hit_gbs), _estimate(line.after_gbs),
            _estimate(line.repaired_gbs),
            _estimate(line.slowdown), number(line.model), _estimate(line.bound_share, 100),
            _estimate(line.hit_cost_ms), number(line.worst_cost_ms),
            str(line.wrong) if line.checked else "unchecked", _estimate(line.error_ms),
        ]
        for line in lines
    ]  # fmt: skip


def markdown(lines: Sequence[Line]) -> str:
    """A Markdown table; bars, brackets and line breaks in names are made harmless."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *texts(lines)]
    return "".join(f"| {' | '.join(map(cell, row))} |\n" for row in rows)


def comma_separated(lines: Sequence[Line]) -> str:
    """A CSV file with plain numbers: median, low and high of every measure in columns of their own."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = [f"{name}_{part}" for name in MEASURED for part in ("median", "low", "high", "n")]
    writer.writerow([*ABOUT, *names])
    for line in lines:
        numbers = [value for name in MEASURED for value in getattr(line, name)]
        about = [getattr(line, name) for name in ABOUT]
        writer.writerow([*about, *("" if value != value else value for value in numbers)])
    return out.getvalue()


def latex(lines: Sequence[Line]) -> str:
    """A ``tabular`` with booktabs rules; every special character of a name is escaped."""
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in [HEADINGS, *texts(lines)]]
    rows.insert(1, r"\midrule")
    columns = "llll" + "r" * (len(HEADINGS) - 4)
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
