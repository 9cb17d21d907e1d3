"""The first table of a report: one row per system, with the columns of its workload (`reports.screens`). Pure.

Numbers are those of a system's largest size, where bandwidth and not latency decides; a row says its size where other
systems, as of another run, have a larger one. The cost of a fault is also stated for the smaller sizes, in small print.
What went wrong is counted over all trials. Cells whose trials all stayed inconclusive are named once a row, below its
system; its numbers are without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.cells import (
    Cell,
    cells_of,
    listed,
    listed_and,
    named_by_size,
    unmeasured,
    where,
)
from reports.headline import Line
from reports.metrics import METRICS
from reports.metrics.cost import GAIN, is_gain, unknown_costs
from reports.screens import Column, Screen, columns_of, screen_of, terms_of
from reports.wording import NOT_MEASURED, plural, sized

ENOUGH_FOR_P99 = 100
"""Of fewer iterations the 99th percentile lies between the two longest ones."""
MOST_SMALL_PRINT = 7
"""Up to this many lines of small print are shown at first, so that table and figure are on the first screen."""
LETTERS = 28
"""About as many letters a line of small print has on a usual screen."""


@dataclass(frozen=True)
class Row:
    """The row of one system."""

    system: str
    cells: Mapping[str, Cell]
    """Its numbers, by the names of the columns."""
    note: str
    """A note on trials that ended unexpectedly, if any did."""
    unmeasured: str = ""
    """Which of its cells were not measured, if any."""
    size: str = ""
    """The size that its numbers are of, where it did not run the largest size that others ran."""

    def __getitem__(self, column: str) -> Cell:
        """Its number in a column."""
        return self.cells[column]


@dataclass(frozen=True)
class Table:
    """The first table of one kind of workload."""

    workload: str
    screen: Screen
    columns: Sequence[Column]
    """Those of the screen that one of its rows needs."""
    rows: Sequence[Row]
    remarks: Sequence[str]

    @property
    def terms(self) -> dict[str, str]:
        """What the note below says of the columns' terms."""
        return terms_of(self.screen, self.columns)


def first_tables(lines: Sequence[Line]) -> list[Table]:
    """The first table of each kind of workload in a report: kinds have no columns in common."""
    kinds = dict.fromkeys(line.workload for line in sorted(lines, key=lambda line: line.run))
    of_kind = {kind: [line for line in lines if line.workload == kind] for kind in kinds}
    return [
        Table(kind, screen_of(own), columns_of(screen_of(own), own), overview(own), remarks(own))
        for kind, own in of_kind.items()
    ]


def overview(lines: Sequence[Line]) -> list[Row]:
    """Of lines of one kind of workload, one row per system of every run, by run, then in the order of the headline
    table."""
    shown, screen = cells_of(lines), screen_of(lines)
    named = named_by_size(lines)
    rows = []
    for system in dict.fromkeys(line.system for line in sorted(shown, key=lambda line: line.run)):
        cells = [line for line in shown if line.system == system]
        sizes = dict.fromkeys(sized(line.size_bytes) for line in cells)
        size = f"at {', '.join(sizes)}" if system in named else ""
        rows.append(_row(screen, cells, [line for line in lines if line.system == system], size))
    return rows


def _row(screen: Screen, cells: Sequence[Line], own: Sequence[Line], size: str) -> Row:
    missing = unmeasured(own)
    numbers = {column.name: column.of(cells, own) for column in screen.columns}
    odd = sum(int(count) for line in own if (count := line.told["unexpected"]) > 0)  # NaN: not known
    return Row(cells[0].system, numbers, _unexpected(odd), f"{NOT_MEASURED}: {missing}" if missing else "", size)


def small_print(rows: Sequence[Row]) -> int:
    """The height of the small print, in lines as they are folded."""
    return sum(max(map(_height, row.cells.values()), default=0) for row in rows)


def _height(cell: Cell) -> int:
    return sum(-(-len(line) // LETTERS) for line in (*cell.detail.splitlines(), *cell.caveat.splitlines()))


def _unexpected(count: int) -> str:
    return f"{plural(count, 'trial')} not as expected" if count else ""


def scope_note(lines: Sequence[Line]) -> str:
    """Which size the speeds are for, and how many repeats a number is based on."""
    cells = cells_of(lines)
    if not cells:
        return ""
    named = named_by_size(lines)
    sizes = ", ".join(dict.fromkeys(sized(li.size_bytes) for li in cells if li.size_bytes and li.system not in named))
    counts = sorted({line.conclusive for line in cells if line.conclusive})
    if not counts:
        return "No trial is conclusive."
    repeats = plural(counts[-1], "trial") if len(counts) == 1 else f"{counts[0]} to {plural(counts[-1], 'trial')}"
    what = f"medians over {repeats}" if counts[-1] != 1 else "one trial"
    missing = [line for line in cells if not line.conclusive]
    axes = dict.fromkeys(axis for line in cells for axis in line.points)
    faults = ["fault"] if any(line.with_fault for line in cells) else []
    apart = listed_and(["system", *faults, *axes])
    each = f"of each {apart}{' that was measured' if missing else ''}"
    partly = any(line.unknown(METRICS[metric]) for line in cells for metric in ("slowdown", "lost_ms"))
    each += ", or over those whose value is known" if partly and counts[-1] != 1 else ""
    told = f"{what.capitalize()} {each}."
    if sizes:
        told = f"At {sizes}, {what} {each}."
        if len({line.size_bytes for line in lines}) > 1:
            told = f"At {sizes} unless another size is named, {what} {each}; every size is in the table of all numbers."
    return f"{told} {_not_measured(missing)}".strip()


def _not_measured(missing: Sequence[Line]) -> str:
    if not missing:
        return ""
    systems: dict[str, list[str]] = {}
    for line in missing:
        systems.setdefault(where(line), []).append(line.system)
    told = listed(f"{cell} ({', '.join(dict.fromkeys(some))})" for cell, some in systems.items())
    return f"{NOT_MEASURED.capitalize()}, because every trial is inconclusive: {told}."


def remarks(lines: Sequence[Line]) -> list[str]:
    """What a reader of the table's numbers has to know about these ones."""
    screen = screen_of(lines)
    told = screen.remarks(lines)
    if screen.compared and any(line.comes_and_goes for line in cells_of(lines)):
        told.append(
            "A fault that comes and goes is judged, as are failures that are not all repaired at one moment, by all "
            "iterations from the first loss until everything is healed, also those while the NIC worked: the speed "
            "after it is that of their mean, and T/T0 is their mean over the mean of the healthy iterations. The "
            "healthy speed is that of the median iteration, as everywhere."
        )
    disturbed, slowdowns = sum(line.disturbed for line in lines), sum(line.disturbed_slowdown for line in lines)
    if disturbed or slowdowns:
        told.append(unknown_costs(disturbed, slowdowns))
    if cut := sum(line.cost_goes_on for line in lines if line["lost_ms"].n):
        told.append(
            f"Time lost by {plural(cut, 'trial')} that ended before the repair, or before the repaired NIC carried "
            f"again, is of the part that was seen, and does not compare with others. Trials with more {screen.counts} "
            "after the fault show all of it."
        )
    if any(line["lost_ms"].n and is_gain(line["lost_share"].median) for line in lines):
        told.append(GAIN)
    few = sorted({line.since for line in cells_of(lines) if line["p99_ms"].n and line.since < ENOUGH_FOR_P99})
    if few and any(column.name == "p99" for column in screen.columns):
        count = str(few[0]) if len(few) == 1 else f"{few[0]} to {few[-1]}"
        told.append(f"A p99 of {count} {screen.counts} is nearly their maximum.")
    return told
