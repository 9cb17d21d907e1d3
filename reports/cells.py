"""The cells of the first table: a number for people, with small print below it. Pure.

A cell is of one system: over several faults or points of the axes it states the range, which was the worst, and what
the range is without. `reports.screens` says which cells the table of a workload has.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from reports.headline import Line, at_largest
from reports.metrics import METRICS
from reports.metrics.metric import Metric
from reports.not_back import in_trials
from reports.wording import (
    NOT_KNOWN,
    NOTHING,
    NOTHING_AFTER,
    UNTIL_REPAIR,
    at_size,
    checked_iterations,
    difference,
    number,
    percent,
    plural,
    sized,
)

MOST_SIZES = 2
"""Up to this many smaller sizes are listed one by one; of more, their range."""
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
    bad: bool = False
    """Whether something was wrong."""


def cells_of(lines: Sequence[Line]) -> list[Line]:
    """The cells that the first table and figure show: each system's largest size, with a fault if any of its cells has
    one."""
    top = at_largest(lines)
    faulted = {line.system for line in top if line.with_fault}
    return [line for line in top if line.with_fault or line.system not in faulted]


def named_by_size(lines: Sequence[Line]) -> set[str]:
    """The systems whose rows name their size: their cells have not the same sizes as those of other systems, and not
    the largest alone. Of a run that is not finished, they may be of different points of the axes."""
    sizes: dict[str, dict[str, int]] = {}
    for line in cells_of(lines):
        sizes.setdefault(line.system, {})[line.setup] = line.size_bytes
    largest = max((size for own in sizes.values() for size in own.values()), default=0)
    if len({frozenset(own.items()) for own in sizes.values()}) < 2:
        return set()
    return {system for system, own in sizes.items() if set(own.values()) != {largest}}


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


def with_caveat(cell: Cell, told: str) -> Cell:
    """Returns `cell` with one more line of what it is without."""
    return replace(cell, caveat="\n".join(filter(None, (cell.caveat, told))))


def spread(cells: Sequence[Line], metric: str) -> Cell:
    """One cell's median and interval, or the range of several cells' medians and where the worst lies."""
    known = [line for line in cells if line[metric].n]
    if not known:
        return Cell(NOTHING)
    text = partial(value_text, METRICS[metric])
    if len(known) == 1:
        median, low, high, n = known[0][metric]
        return Cell(text(median), f"{text(low)} to {text(high)}" if n > 1 else "one trial")
    ordered = sorted(known, key=lambda line: line[metric].median)
    ends = list(dict.fromkeys(text(line[metric].median) for line in (ordered[0], ordered[-1])))
    worst = ordered[-1] if METRICS[metric].better == "lower" else ordered[0]
    shown = f"{text(worst[metric].median)} {METRICS[metric].shown_unit}".strip()
    return Cell(" to ".join(ends), f"worst, {shown}: {place(worst, known)}" if len(ends) > 1 else "")


def value_text(metric: Metric, value: float) -> str:
    """A value without its unit; a share as a difference in percent."""
    return difference(value) if metric.percent else number(value)


def with_smaller(cell: Cell, own: Sequence[Line], metric: str) -> Cell:
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
        lacking = not_in_range(lines, metric)
        unknown = not_known_in([line for line in lines if line not in lacking], metric)
        unknown = "; ".join(filter(None, (unknown, *_without(lacking, own, metric))))
        of = " to ".join(dict.fromkeys(map(sized, (group[0], group[-1]))))
        told.append(f"{value or unknown} at {of}{f' ({unknown})' if value and unknown else ''}")
    return replace(cell, detail="\n".join(filter(None, (cell.detail, *told))))


def where(line: Line) -> str:
    """The fault and the point on the axes: what tells a cell from the others of its system and size."""
    return ", ".join([line.scenario, *(f"{axis} {value}" for axis, value in line.points.items())])


def place(line: Line, own: Sequence[Line]) -> str:
    """The same, without the fault where a system (`own`) has one only."""
    several = len({each.scenario for each in own if each.with_fault}) > 1
    return where(line) if several or not line.points else where(line).removeprefix(f"{line.scenario}, ")


def named(some: Sequence[Line], cells: Sequence[Line]) -> str:
    """Which of `cells` `some` are: a fault where they are all of its cells, otherwise with their points on the axes."""
    others = {line.scenario for line in cells if line not in some}
    return ", ".join(dict.fromkeys(where(line) if line.scenario in others else line.scenario for line in some))


def healthy(cells: Sequence[Line], metric: str) -> Cell:
    """The healthy speed: the range over the cells, as the figure draws them and the table of all numbers lists them."""
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
    return listed_and(list(known)) if {line.operation for line in cells} - set(known) else ""


def _of(what: str) -> str:
    return f" of {what}" if what else ""


def after(cells: Sequence[Line], own: Sequence[Line], metric: str) -> Cell:
    """The speed after the fault, or when it stopped."""
    ended = [line for line in cells if all_stopped([line])]
    cell = stopped(cells, own) if all_stopped(cells) else with_stopped(spread(cells, metric), cells)
    return with_caveat(cell, told) if (told := _steps_lost(ended)) else cell


def repaired(cells: Sequence[Line], metric: str) -> Cell:
    """The speed after the repair, and in how many of its trials it is without the healed NIC."""
    cell, known = spread(cells, metric), [line for line in cells if line[metric].n]
    return with_caveat(cell, told) if (told := without_nic(known, metric)) else cell


def without_nic(known: Sequence[Line], metric: str) -> str:
    """``NIC not back in 2 of 3``: in how many trials with a speed after the repair the healed NIC did not carry."""
    out, in_part = sum(line.not_back for line in known), sum(line.back_in_part for line in known)
    return in_trials(out, in_part, sum(line.values[metric] for line in known))


def _steps_lost(ended: Sequence[Line]) -> str:
    """How many steps of training the trials that stopped have not done; empty: that is not known."""
    known = [line for line in ended if line["steps_lost"].n]
    if not known:
        return ""
    lost, trials = int(sum(line.told["steps_lost"] for line in known)), sum(line["steps_lost"].n for line in known)
    return f"lost {plural(lost, 'step')}{f' in {trials} trials' if trials > 1 else ''}"


def with_stopped(cell: Cell, cells: Sequence[Line]) -> Cell:
    """Returns `cell` with those of `cells` that it is not about, because they stopped; of a system that stopped in all
    of them, the speed after the fault says so."""
    if all_stopped(cells):
        return cell
    ended = [line for line in cells if all_stopped([line])]
    return with_caveat(cell, f"stopped: {named(ended, cells)}" if ended else "")


def stopped(cells: Sequence[Line], own: Sequence[Line]) -> Cell:
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
    """When the latest error of which that is known came, and whether at a size other than `sizes`. Another one, which
    may have come at once, may as well have come later."""
    known = [line for line in own if line["error_after_ms"].n]
    if not known:
        return "", False
    late = max(known, key=lambda line: line.worst["error_after_ms"])
    elsewhere = late.size_bytes not in sizes
    at = at_size(late.size_bytes) if elsewhere else ""
    at += " where that is known" if any(line.unknown(METRICS["error_after_ms"]) for line in own) else ""
    return f"at most {number(late.worst['error_after_ms'])} ms after the fault{at}", elsewhere


def _without_time(lines: Sequence[Line]) -> list[str]:
    """In how many trials that stopped there is no error, and in how many of the others its time is not known."""
    ended, unsure = sum(line.stopped for line in lines), sum(line.unknown(METRICS["error_after_ms"]) for line in lines)
    erred = sum(line["error_after_ms"].n for line in lines) + unsure
    told = [f"without an error: {ended - erred} of {plural(ended, 'trial')}"] if ended > erred else []
    return [*told, f"when is not known in {unsure} of {plural(erred, 'trial')}"] if unsure else told


def all_stopped(cells: Sequence[Line]) -> bool:
    """Whether every trial stopped."""
    faulted = [line for line in cells if line.faulted and line.conclusive]
    return bool(faulted) and all(line.stopped == line.conclusive for line in faulted)


def slowdown(cells: Sequence[Line]) -> Cell:
    """T/T0, with what the models say."""
    cell = spread(cells, "slowdown")
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


def lost(cells: Sequence[Line]) -> Cell:
    """The time lost."""
    cell, known = spread(cells, "lost_ms"), [line for line in cells if line["lost_ms"].n]
    if not known:
        return Cell(NOT_KNOWN) if any(line.disturbed for line in cells) else cell
    # A trial may be known in a cell whose median is not.
    alone = sum(line.values["lost_ms"] for line in cells) == 1  # then `spread` says so
    worst = f"worst trial {number(max(ms for line in cells if (ms := line.worst['lost_ms']) == ms))} ms"
    seen = Cell(f"{cell.text} ms", cell.detail if (len(known) > 1 or alone) and cell.detail else worst)
    return with_caveat(seen, told) if (told := ended_too_early(known)) else seen


def ended_too_early(lines: Sequence[Line]) -> str:
    """``2 of 3 trials ended before the cost was over``, of those that went on in a fault that is repaired; empty:
    none."""
    count, trials = sum(line.cost_goes_on for line in lines), sum(line.to_be_repaired for line in lines)
    return too_early(count, trials)


def too_early(count: int, trials: int) -> str:
    """The same, of so many trials."""
    return f"{count} of {plural(trials, 'trial')} ended before the cost was over" if count else ""


def with_unknown(cell: Cell, cells: Sequence[Line], own: Sequence[Line], metric: str) -> Cell:
    """Returns `cell` with the number of its trials, after a fault, whose value is not known, and with the cells that
    have none: because it is not known there, which may be the worst of all, or because nothing ran after the fault.
    Several are counted, and named in the small print."""
    told = _nothing_after(cells) if metric == "slowdown" else []
    lacking = not_in_range(cells, metric)
    unknown = not_known_in([line for line in cells if line not in lacking], metric)
    unknown += "" if any(line[metric].n for line in cells) else _in_the_others(cells, metric)
    unknown += at_size(max(line.size_bytes for line in cells)) if unknown and len(_sizes(own)) > 1 else ""
    known = [line for line in cells if line[metric].n]
    alone = f"{place(known[0], own)} only" if lacking and len(known) == 1 else ""
    named_ones = [alone, *_without(lacking, own, metric)]
    told = [unknown, *told]
    if len(lacking) < 2:
        told = [*named_ones, *told]
    else:  # their names would push the figure off the first screen
        count = f"not known in {len(lacking)} of {plural(len(lacking) + len(known), 'cell')}"
        told = [f"{count}{_worst_of(lacking, known, metric)}", *told]
        cell = replace(cell, detail="\n".join(filter(None, (cell.detail, *named_ones))))
    return with_caveat(cell, "\n".join(filter(None, told)))


def _nothing_after(cells: Sequence[Line]) -> list[str]:
    whys: dict[str, list[Line]] = {}
    for line in cells:
        if why := why_nothing_after(line):
            whys.setdefault(why if why == UNTIL_REPAIR else f"{why} the fault", []).append(line)
    names = {why: named(some, cells) for why, some in whys.items()}
    for why, some in whys.items():
        if len(some) >= MOST_NAMED and "," in names[why]:
            names[why] = f"{len(some)} of {plural(len(cells), 'cell')}"
    return [f"{why}: {which}" for why, which in names.items()]


def not_in_range(cells: Sequence[Line], metric: str) -> list[Line]:
    """Of `cells` of which some have a value, those that have none because it is not known."""
    some = any(line[metric].n for line in cells)
    return [line for line in cells if some and not line[metric].n and not_known_in([line], metric)]


def _without(lacking: Sequence[Line], own: Sequence[Line], metric: str) -> list[str]:
    """Of which cells of a system (`own`) a range is not, each with the trials in which its value is known all the
    same."""
    return [f"{place(line, own)}: {not_known_in([line], metric)}{_in_the_others([line], metric)}" for line in lacking]


def _in_the_others(lines: Sequence[Line], metric: str) -> str:
    """The worst known trial of cells whose median is not known; empty: none is known."""
    known = [value for line in lines if (value := line.worst[metric]) == value]
    if not known:
        return ""
    worst = number(METRICS[metric].together(known, "worst"))
    if METRICS[metric].unit == "ms":
        worst += " ms"
    alone = sum(line.values[metric] for line in lines) == 1
    return f", {worst} in the other" if alone else f", at worst {worst} in the others"


def _worst_of(lacking: Sequence[Line], known: Sequence[Line], metric: str) -> str:
    """The worst known trial of the cells whose median is not known, if it is worse than those that are."""
    worst = [value for line in lacking if (value := line.worst[metric]) == value]
    together = METRICS[metric].together
    if not worst or together([together(worst, "worst"), *(li[metric].median for li in known)], "worst") not in worst:
        return ""
    return f", {number(together(worst, 'worst'))} in one trial"


def _sizes(lines: Sequence[Line]) -> set[int]:
    return {line.size_bytes for line in lines}


def nothing_after(line: Line) -> bool:
    """Whether it went on, but no iteration lies after the fault (and before its repair)."""
    return line.faulted and line.conclusive > line.stopped and not line.runs_after


def why_nothing_after(line: Line) -> str:
    """Why nothing can be told of the time between the fault and its repair; empty: it is told, or it did not go on."""
    if not nothing_after(line):
        return ""
    return UNTIL_REPAIR if line.until_repair == line.conclusive - line.stopped else NOTHING_AFTER


def not_known_in(lines: Sequence[Line], metric: str) -> str:
    """In how many of the trials that went on it is not known; empty: in none."""
    went_on = [line for line in lines if line.faulted]
    unknown = sum(line.unknown(METRICS[metric]) for line in went_on)
    trials = sum(line.conclusive - line.stopped for line in went_on)
    return f"not known in {unknown} of {plural(trials, 'trial')}" if unknown else ""


def wrong(own: Sequence[Line]) -> Cell:
    """How many elements were wrong; of training, how many losses are others, and final weights if any are."""
    if any(line["steps_differ"].n for line in own):
        steps, weights = (
            int(sum(line.told[name] for line in own if line[name].n)) for name in ("steps_differ", "weights_differ")
        )
        text = f"{plural(steps, 'step')}, {plural(weights, 'trial')}" if weights else str(steps)
        told = ["steps with another loss than without failures"]
        told += ["trials with other final weights"] * bool(weights)
        return Cell(text, caveat="\n".join(told), bad=bool(steps or weights) or any(line.wrong for line in own))
    checked = sum(line.checked for line in own)
    if not checked:
        return Cell("unchecked" if any(line.conclusive for line in own) else NOTHING)
    found = sum(line.wrong for line in own)
    return Cell(str(found), f"in {checked_iterations(checked)}", bad=found > 0)
