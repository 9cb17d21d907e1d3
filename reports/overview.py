"""The first table of a report: each system's healthy speed, speed after the fault, time lost and wrong elements. Pure.

A system has one row. Over several faults or points of the axes it states the range over the cells, and which was the
worst. Speeds are those of its largest size, where bandwidth and not latency decides; a row says its size where other
systems, as of another run, have a larger one. The cost of a fault is also stated for the smaller sizes, in small print.
Wrong elements are counted over all trials. Cells whose trials all stayed inconclusive are named, and every range says
that it is without them.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from reports.headline import Line, at_largest
from reports.metrics import METRICS
from reports.metrics.cost import GAIN, is_gain, unknown_costs
from reports.wording import (
    NOT_KNOWN,
    NOT_MEASURED,
    NOTHING,
    NOTHING_AFTER,
    at_size,
    checked_iterations,
    number,
    percent,
    plural,
    sized,
)

MOST_SIZES = 2
"""Up to this many smaller sizes are listed one by one; of more, their range."""
MOST_SMALL_PRINT = 6
"""Up to this many lines of small print are shown at first, so that table and figure are on the first screen."""
MOST_NAMED = 3
"""Up to this many cells that were not measured are named; more are counted."""


@dataclass(frozen=True)
class Cell:
    """One number for people, with small print below it."""

    text: str
    detail: str = ""
    """The small print, as lines: where the worst value is, intervals, models, smaller sizes."""
    caveat: str = ""
    """What the number is without, as lines; always shown."""


@dataclass(frozen=True)
class Row:
    """The row of one system."""

    system: str
    healthy: Cell
    after: Cell
    slowdown: Cell
    lost: Cell
    wrong: Cell
    has_wrong: bool
    """Whether an element was wrong."""
    note: str
    """A note on trials that ended unexpectedly, if any did."""
    unmeasured: str = ""
    """Which of its cells were not measured, if any."""
    size: str = ""
    """The size that its numbers are of, where it did not run the largest size that others ran."""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Its numbers."""
        return self.healthy, self.after, self.slowdown, self.lost, self.wrong


def cells_of(lines: Sequence[Line]) -> list[Line]:
    """The cells that the first table and figure show: each system's largest size, with a fault if any of its cells has
    one."""
    top = at_largest(lines)
    faulted = {line.system for line in top if line.with_fault}
    return [line for line in top if line.with_fault or line.system not in faulted]


def speed(lines: Sequence[Line]) -> str:
    """The metric that stands for speed: bus bandwidth (``gbs``) of collectives, ``tokens_s`` of training, or an
    iteration's time (``ms``). If no line has any, that of collectives, which alone have sizes, is ``gbs``."""
    measured = [kind for kind in ("gbs", "tokens_s", "ms") if any(line[f"before_{kind}"].n for line in lines)]
    return measured[0] if measured else "gbs" if any(line.size_bytes for line in lines) else "ms"


def unit(lines: Sequence[Line]) -> str:
    """The unit of the speeds."""
    return METRICS[f"before_{speed(lines)}"].unit


def overview(lines: Sequence[Line]) -> list[Row]:
    """One row per system of every run, by run, then in the order of the headline table."""
    shown, kind = cells_of(lines), speed(lines)
    smaller = {id(line) for line in smaller_than_others(lines)}
    rows = []
    for system in dict.fromkeys(line.system for line in sorted(shown, key=lambda line: line.run)):
        cells = [line for line in shown if line.system == system]
        row = _row(system, cells, [line for line in lines if line.system == system], kind)
        sizes = dict.fromkeys(sized(line.size_bytes) for line in cells)
        rows.append(replace(row, size=f"at {', '.join(sizes)}" if any(id(line) in smaller for line in cells) else ""))
    return rows


def smaller_than_others(lines: Sequence[Line]) -> list[Line]:
    """The cells of the first table of systems that did not run the largest size that others of their setup ran."""
    largest: dict[str, int] = {}
    for line in lines:
        largest[line.setup] = max(line.size_bytes, largest.get(line.setup, 0))
    return [line for line in cells_of(lines) if line.size_bytes < largest[line.setup]]


def _row(system: str, cells: Sequence[Line], own: Sequence[Line], kind: str) -> Row:
    missing = unmeasured(own)
    return Row(
        system,
        _without_unmeasured(_healthy(cells, f"before_{kind}"), cells),
        _without_unmeasured(_after(cells, own, f"after_{kind}"), cells),
        _without_unmeasured(
            _with_unknown(_with_smaller(_slowdown(cells), own, "slowdown"), cells, own, "slowdown"), cells
        ),
        _without_unmeasured(_with_unknown(_with_smaller(_lost(cells), own, "lost_ms"), cells, own, "lost_ms"), cells),
        _wrong(own),
        has_wrong=any(line.wrong for line in own),
        note=_unexpected(sum(int(count) for line in own if (count := line.told["unexpected"]) > 0)),  # NaN: not known
        unmeasured=f"{NOT_MEASURED}: {missing}" if missing else "",
    )


def small_print(rows: Sequence[Row]) -> int:
    """The height of the small print, in lines."""
    return sum(max(len(cell.detail.splitlines()) for cell in row.cells) for row in rows)


def unmeasured(own: Sequence[Line], all_sizes: bool = False) -> str:
    """Which cells of one system (`own`) were not measured, the largest size first; empty: none. The largest size is
    named only with `all_sizes`."""
    cells = [line for line in own if line.with_fault] or list(own)
    missing = [line for line in cells if not line.conclusive]
    if missing and len(missing) == len(cells):
        return "all cells" if len(cells) > 1 else where(cells[0])
    top = set() if all_sizes else {id(line) for line in at_largest(own)}
    told = [where(line) + ("" if id(line) in top else at_size(line.size_bytes)) for line in missing]
    return listed([name for _, name in sorted(zip(missing, told, strict=True), key=lambda pair: -pair[0].size_bytes)])


def listed(names: Iterable[str]) -> str:
    """The first of `names`, and how many more there are."""
    named = list(names)
    more = [f"{len(named) - MOST_NAMED} more"] if len(named) > MOST_NAMED else []
    return "; ".join([*named[:MOST_NAMED], *more])


def listed_and(names: Sequence[str]) -> str:
    """``system, fault and collective``."""
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _without_unmeasured(cell: Cell, cells: Sequence[Line]) -> Cell:
    """Returns `cell` with the number of `cells` that it is not about, because they were not measured."""
    missing = sum(not line.conclusive for line in cells)
    if not missing or missing == len(cells):  # then the row says so
        return cell
    return _with_caveat(cell, f"{missing} of {plural(len(cells), 'cell')} {NOT_MEASURED}")


def _with_caveat(cell: Cell, told: str) -> Cell:
    return replace(cell, caveat="\n".join(filter(None, (cell.caveat, told))))


def _unexpected(count: int) -> str:
    return f"{plural(count, 'trial')} not as expected" if count else ""


def _spread(cells: Sequence[Line], metric: str) -> Cell:
    """One cell's median and interval, or the range of several cells' medians and where the worst lies."""
    known = [line for line in cells if line[metric].n]
    if not known:
        return Cell(NOTHING)
    if len(known) == 1:
        median, low, high, n = known[0][metric]
        return Cell(number(median), f"{number(low)} to {number(high)}" if n > 1 else "one trial")
    ordered = sorted(known, key=lambda line: line[metric].median)
    ends = list(dict.fromkeys(number(line[metric].median) for line in (ordered[0], ordered[-1])))
    worst = ordered[-1] if METRICS[metric].better == "lower" else ordered[0]
    return Cell(" to ".join(ends), f"worst: {where(worst)}" if len(ends) > 1 else "")


def _with_smaller(cell: Cell, own: Sequence[Line], metric: str) -> Cell:
    """Returns `cell` with the results of the smaller sizes in its small print, if there are any."""
    top = {id(line) for line in at_largest(own)}
    smaller: dict[int, list[Line]] = {}
    for line in sorted(own, key=lambda line: line.size_bytes):
        if line.faulted and id(line) not in top:
            smaller.setdefault(line.size_bytes, []).append(line)
    sizes = [
        size for size, some in smaller.items() if any(line[metric].n for line in some) or not_known_in(some, metric)
    ]
    groups = [[size] for size in sizes] if len(sizes) <= MOST_SIZES else [sizes]
    told = []
    for group in groups:
        lines = [line for size in group for line in smaller[size]]
        values = [line[metric].median for line in lines if line[metric].n]
        ends = " to ".join(dict.fromkeys(map(number, (min(values), max(values))))) if values else ""
        value = f"{ends} {METRICS[metric].unit}".strip() if values else ""
        unknown = not_known_in(lines, metric)
        of = " to ".join(dict.fromkeys(map(sized, (group[0], group[-1]))))
        told.append(f"{value or unknown} at {of}{f' ({unknown})' if value and unknown else ''}")
    return replace(cell, detail="\n".join(filter(None, (cell.detail, *told))))


def where(line: Line) -> str:
    """The fault and the point on the axes: what tells a cell from the others of its system and size."""
    return ", ".join([line.scenario, *(f"{axis} {value}" for axis, value in line.points.items())])


def named(some: Sequence[Line], cells: Sequence[Line]) -> str:
    """Which of `cells` `some` are: a fault where they are all of its cells, otherwise with their points on the axes."""
    others = {line.scenario for line in cells if line not in some}
    return ", ".join(dict.fromkeys(where(line) if line.scenario in others else line.scenario for line in some))


def _healthy(cells: Sequence[Line], metric: str) -> Cell:
    """The range over the cells, as the figure draws them and the table of all numbers lists them."""
    medians = [line[metric].median for line in cells if line[metric].n]
    if not medians:
        return Cell(NOTHING)
    text = " to ".join(dict.fromkeys(map(number, (min(medians), max(medians)))))
    shares = [line["share"].median for line in with_share(cells)]
    limit = " to ".join(dict.fromkeys(map(percent, (min(shares), max(shares))))) if shares else ""
    return Cell(text, f"{limit} of the NICs' limit{_of(limited(cells))}" if limit else "")


def with_share(cells: Sequence[Line]) -> list[Line]:
    """The measured cells whose healthy share of the NICs' limit is known."""
    return [line for line in cells if line.source == "measured" and line["share"].n]


def limited(cells: Sequence[Line]) -> str:
    """The operations that the NICs' rate limits, if `cells` have others as well; otherwise empty."""
    known = dict.fromkeys(line.operation for line in with_share(cells))
    return ", ".join(known) if {line.operation for line in cells} - set(known) else ""


def _of(what: str) -> str:
    return f" of {what}" if what else ""


def _after(cells: Sequence[Line], own: Sequence[Line], metric: str) -> Cell:
    if _all_stopped(cells):
        return _stopped(cells, own)
    cell, stopped = _spread(cells, metric), [line for line in cells if _all_stopped([line])]
    return _with_caveat(cell, f"stopped: {named(stopped, cells)}" if stopped else "")


def _stopped(cells: Sequence[Line], own: Sequence[Line]) -> Cell:
    """How late the latest known error came, at any size, and in how many trials of the size shown that is not known;
    then the first stands beside the second, since it is of the others."""
    shown = {id(line) for line in cells}
    smaller = [line for line in own if id(line) not in shown]
    sizes = {line.size_bytes for line in cells}
    latest, elsewhere = _latest_error(own, sizes)
    here = at_size(*sizes) if elsewhere and len(sizes) == 1 else ""
    untold = [f"{text}{here}" for text in _without_time(cells)]
    others = [f"{text} at other sizes" for text in _without_time(smaller)]
    detail = "\n".join(filter(None, ("" if untold else latest, *others)))
    return Cell("stopped", detail, "; ".join(filter(None, (latest, *untold))) if untold else "")


def _latest_error(own: Sequence[Line], sizes: Collection[int]) -> tuple[str, bool]:
    """When the latest known error came, and whether at a size other than `sizes`."""
    known = [line for line in own if line["error_after_ms"].n]
    if not known:
        return "", False
    late = max(known, key=lambda line: line.worst["error_after_ms"])
    elsewhere = late.size_bytes not in sizes
    at = at_size(late.size_bytes) if elsewhere else ""
    return f"at most {number(late.worst['error_after_ms'])} ms after the fault{at}", elsewhere


def _without_time(lines: Sequence[Line]) -> list[str]:
    """In how many trials that stopped there is no error, and in how many of the others its time is not known."""
    ended, unsure = sum(line.stopped for line in lines), sum(line.unknown(METRICS["error_after_ms"]) for line in lines)
    erred = sum(line["error_after_ms"].n for line in lines) + unsure
    told = [f"without an error: {ended - erred} of {plural(ended, 'trial')}"] if ended > erred else []
    return [*told, f"when is not known in {unsure} of {plural(erred, 'trial')}"] if unsure else told


def _all_stopped(cells: Sequence[Line]) -> bool:
    """Whether every trial stopped."""
    faulted = [line for line in cells if line.faulted and line.conclusive]
    return bool(faulted) and all(line.stopped == line.conclusive for line in faulted)


def _slowdown(cells: Sequence[Line]) -> Cell:
    cell = _spread(cells, "slowdown")
    if cell.text == NOTHING and any(line.disturbed_slowdown for line in cells):
        return Cell(NOT_KNOWN)
    known = [line for line in cells if line["slowdown"].n]
    modelled = [line for line in known if line.model is not None]
    models = ", ".join(dict.fromkeys(number(line.model) for line in modelled if line.model is not None))
    if not models:
        return cell
    if len(known) == 1:
        return Cell(cell.text, f"model {models}")
    # A model is of the loss of a NIC, and says nothing of the other faults in the range.
    of = "" if len(modelled) == len(known) else named(modelled, known)
    return Cell(cell.text, "\n".join(filter(None, (cell.detail, f"model {models}{_of(of)}"))))


def _lost(cells: Sequence[Line]) -> Cell:
    cell, known = _spread(cells, "lost_ms"), [line for line in cells if line["lost_ms"].n]
    if not known:
        return Cell(NOT_KNOWN) if any(line.disturbed for line in cells) else cell
    # A trial may be known in a cell whose median is not.
    worst = f"worst trial {number(max(ms for line in cells if (ms := line.worst['lost_ms']) == ms))} ms"
    return Cell(f"{cell.text} ms", cell.detail if len(known) > 1 and cell.detail else worst)


def _with_unknown(cell: Cell, cells: Sequence[Line], own: Sequence[Line], metric: str) -> Cell:
    """Returns `cell` with the number of its trials, after a fault, whose value is not known, and the cells that have
    none because nothing ran after it."""
    none = [line for line in cells if nothing_after(line)]
    told = [f"{NOTHING_AFTER} the fault: {named(none, cells)}"] if none and metric == "slowdown" else []
    sizes = {line.size_bytes for line in own}
    unknown = not_known_in(cells, metric)
    unknown += at_size(max(line.size_bytes for line in cells)) if unknown and len(sizes) > 1 else ""
    return _with_caveat(cell, "\n".join(filter(None, (unknown, *told))))


def nothing_after(line: Line) -> bool:
    """Whether it went on, but no iteration lies after the fault (and before its repair)."""
    return line.faulted and line.conclusive > line.stopped and not line.runs_after


def not_known_in(lines: Sequence[Line], metric: str) -> str:
    """In how many of the trials that went on it is not known; empty: in none."""
    went_on = [line for line in lines if line.faulted]
    unknown = sum(line.unknown(METRICS[metric]) for line in went_on)
    trials = sum(line.conclusive - line.stopped for line in went_on)
    return f"not known in {unknown} of {plural(trials, 'trial')}" if unknown else ""


def _wrong(own: Sequence[Line]) -> Cell:
    trained = [line for line in own if line["steps_differ"].n]
    if trained:
        differing = int(sum(line.told["steps_differ"] for line in trained))
        return Cell(str(differing), caveat="steps with another loss than without failures")
    checked = sum(line.checked for line in own)
    if not checked:
        return Cell("unchecked" if any(line.conclusive for line in own) else NOTHING)
    return Cell(str(sum(line.wrong for line in own)), f"in {checked_iterations(checked)}")


def scope_note(lines: Sequence[Line]) -> str:
    """Which size the speeds are for, and how many repeats a number is based on."""
    cells = cells_of(lines)
    if not cells:
        return ""
    smaller = {id(line) for line in smaller_than_others(lines)}
    sizes = ", ".join(dict.fromkeys(sized(li.size_bytes) for li in cells if li.size_bytes and id(li) not in smaller))
    counts = sorted({line.conclusive for line in cells if line.conclusive})
    if not counts:
        return "No trial is conclusive."
    repeats = plural(counts[-1], "trial") if len(counts) == 1 else f"{counts[0]} to {plural(counts[-1], 'trial')}"
    what = f"medians over {repeats}" if counts[-1] != 1 else "one trial"
    missing = [line for line in cells if not line.conclusive]
    axes = dict.fromkeys(axis for line in cells for axis in line.points)
    apart = listed_and(["system", "fault", *axes])
    each = f"of each {apart}{' that was measured' if missing else ''}"
    partly = any(line.unknown(METRICS[metric]) for line in cells for metric in ("slowdown", "lost_ms"))
    each += ", or over those whose value is known" if partly and counts[-1] != 1 else ""
    told = f"{what.capitalize()} {each}."
    if sizes:
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
    told = []
    if any(line.comes_and_goes for line in cells_of(lines)):
        told.append(
            "A fault that comes and goes is judged by all iterations from its first loss to the end of the trial, also "
            "those while the NIC worked; so are speed and T/T0 after it."
        )
    disturbed, slowdowns = sum(line.disturbed for line in lines), sum(line.disturbed_slowdown for line in lines)
    if disturbed or slowdowns:
        told.append(unknown_costs(disturbed, slowdowns))
    if any(line["lost_ms"].n and is_gain(line["lost_share"].median) for line in lines):
        told.append(GAIN)
    return told
