"""The result of a reproduction for people and programs: Markdown, CSV, JSON and the figure. Does I/O."""

import csv
import io
import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pandas as pd

from reports import machine
from reports.embed import save
from reports.reproduce.entry import Entry, Fact, Line
from reports.stats import Estimate
from reports.tables import cell
from reports.wording import NOTHING, number

HEADINGS = (
    "quantity", "unit", "published", "model", "difference", "published / model", "measured", "model here",
    "measured / model here", "measured / published",
)  # fmt: skip


def row(line: Line) -> list[str]:
    """The texts of one line, in the order of `HEADINGS`."""
    return [
        line.fact.what, line.fact.unit, published(line.fact), _digits(line.model), _digits(line.difference),
        line.place_of(line.model) or number(line.published_over_model),
        _estimate(line.measured), _digits(line.model_here if line.measured else None),
        number(line.measured_over_model), _over_published(line),
    ]  # fmt: skip


def reasons(lines: Sequence[Line]) -> list[str]:
    """Why published numbers differ from the model, if known."""
    return [f"{line.fact.what}: {line.fact.reason}" for line in lines if line.fact.reason]


def published(fact: Fact) -> str:
    """The published number, or its range."""
    return _digits(fact.value) if fact.high is None else f"{_digits(fact.value)} to {_digits(fact.high)}"


def _digits(value: float | None) -> str:
    """Four significant digits, because ratios differ in the third decimal."""
    return number(value, 4)


def _over_published(line: Line) -> str:
    measured = line.measured.median if line.measured and line.fact.free else None
    return line.place_of(measured) or number(line.measured_over_published)


def _estimate(value: Estimate | None) -> str:
    if value is None:
        return NOTHING
    span = f" [{_digits(value.low)}, {_digits(value.high)}]" if value.n > 1 else ""
    return f"{_digits(value.median)}{span}"


def markdown(entry: Entry, lines: Sequence[Line], notes: Sequence[str]) -> str:
    """The table with its title, set-up, differences in scale, and sources."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *map(row, lines)]
    table = "".join(f"| {' | '.join(map(cell, one))} |\n" for one in rows)
    told = "".join(f"- {cell(note)}\n" for note in [*notes, *reasons(lines)])
    sources = "; ".join(dict.fromkeys(line.fact.source for line in lines))
    return (
        f"# {entry.name}\n\n{entry.title}.\n\nPublished set-up: {entry.setup}.\n\n{table}\n{told}- sources: {sources}\n"
    )


def comma_separated(lines: Sequence[Line]) -> str:
    """Plain numbers, one row per quantity."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("measured_median", "measured_low", "measured_high", "measured_n")
    writer.writerow(
        ["key", "quantity", "unit", "published", "published_high", "model", *names, "model_here", "source", "reason"]
    )
    for line in lines:
        fact = line.fact
        found = line.measured or ("", "", "", "")
        numbers = [line.model, *found, line.model_here]
        shown = ["" if value is None or value != value else value for value in numbers]
        high = "" if fact.high is None else fact.high
        writer.writerow([fact.key, fact.what, fact.unit, fact.value, high, *shown, fact.source, fact.reason])
    return out.getvalue()


def as_json(entry: Entry, lines: Sequence[Line], notes: Sequence[str], run: str | None) -> str:
    """Everything as one JSON object."""
    values = {
        "schema": 1,
        "name": entry.name,
        "title": entry.title,
        "setup": entry.setup,
        "notes": list(notes),
        "run": run,
        "lines": [_record(line) for line in lines],
    }
    return json.dumps(values, indent=1, ensure_ascii=False) + "\n"


def _record(line: Line) -> dict[str, object]:
    ratios = ("difference", "published_over_model", "measured_over_model", "measured_over_published", "place")
    return {
        **vars(line.fact),
        "model": machine.plain(line.model),
        "measured": machine.plain(line.measured),
        "model_here": machine.plain(line.model_here),
        **{name: machine.plain(getattr(line, name)) for name in ratios},
    }


def ratios(lines: Sequence[Line]) -> pd.DataFrame:
    """For the figure: published and measured values, each over the model at its own scale."""
    rows = []
    for line in lines:
        shown, by = line.measured, line.model_here
        low, high = (
            end / by if shown and by else float("nan") for end in ((shown.low, shown.high) if shown else (0, 0))
        )
        if line.published_over_model is not None or line.measured_over_model is not None:
            values = (line.published_over_model, line.measured_over_model, low, high, shown.n if shown else 0)
            rows.append((line.fact.what, *values))
    return pd.DataFrame(rows, columns=["what", "published", "measured", "low", "high", "n"]).astype(
        {"published": float, "measured": float}
    )


def figure_frame(entry: Entry, lines: Sequence[Line], trials: pd.DataFrame | None) -> pd.DataFrame:
    """The data of the entry's figure."""
    if entry.figure is None:
        return ratios(lines)
    frame = entry.figure()
    if entry.draw == "k_sweep" and trials is not None:
        columns = ["pipeline", "slowdown", "ranks", "nics"]
        return pd.concat([frame, trials[columns].assign(source="measured")], ignore_index=True)
    return frame


def write(
    entry: Entry,
    lines: Sequence[Line],
    notes: Sequence[str],
    folder: Path,
    trials: pd.DataFrame | None,
    run: str | None,
) -> list[Path]:
    """Writes table.md, table.csv, result.json and the figure (if it has data); returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "table.md": markdown(entry, lines, notes),
        "table.csv": comma_separated(lines),
        "result.json": as_json(entry, lines, notes, run),
    }
    for name, text in texts.items():
        part = folder / f".{name}.part"
        part.write_text(text, encoding="utf-8", errors="replace")
        part.replace(folder / name)
    return [*(folder / name for name in texts), *_figure(entry, figure_frame(entry, lines, trials), folder)]


def _figure(entry: Entry, frame: pd.DataFrame, folder: Path) -> list[Path]:
    if frame.empty:
        return []
    module = import_module(f"reports.figures.{entry.draw}")
    told = module.caption(frame)
    types = ("svg", "png", "pdf")
    save(module.draw(frame), folder, "figure", told, f"{entry.title}: {told}", types)
    (folder / "caption.txt").write_text(told + "\n", encoding="utf-8")
    return [*(folder / f"figure.{kind}" for kind in types), folder / "caption.txt"]
