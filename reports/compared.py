"""A comparison as people and programs read it: one line per finding, Markdown, JSON. Pure."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from reports import machine
from reports.cells import listed
from reports.compare import BETWEEN, NEITHER, Finding, is_open, regressions, unjudged, would_show
from reports.machines import Difference
from reports.metrics import METRICS
from reports.stats import MIN_EFFECT
from reports.wording import HIT_UNTIL_REPAIR, NOTHING, at_size, number, plain, plural, sized

NOTHING_LACKS: Mapping[str, str] = MappingProxyType({})
HEADINGS = ("size", "system", "metric", "BASE", "NEW", "repeats", "change", "interval", "tolerated", "conclusion")


def cells(finding: Finding) -> tuple[str, ...]:
    """The texts of one finding, in the order of `HEADINGS`."""
    unit = METRICS[finding.metric].unit
    metric = f"{finding.metric} ({unit})" if unit else finding.metric
    return (
        sized(finding.size_bytes), plain(finding.system), metric,
        *_sides(finding), _repeats(finding), *_change(finding), _tolerated(finding), finding.conclusion,
    )  # fmt: skip


def as_words(finding: Finding) -> str:
    """The finding as one line: ``8MiB balance, after_gbs: 0.15 to 0.12 GB/s (...): regression``."""
    size, system, _, base, new, repeats, change, interval, tolerated, conclusion = cells(finding)
    where = system if size == NOTHING else f"{size} {system}"
    unit = METRICS[finding.metric].unit
    between = "" if interval == "-" else f" ({interval})"
    told = f"{base} to {new}{' ' if unit else ''}{unit}, {change}{between}, {tolerated} tolerated, repeats {repeats}"
    return f"{where}, {finding.metric}: {told}: {conclusion}"


def _sides(finding: Finding) -> Iterator[str]:
    """The medians or totals, as everywhere; beside them the means, where their change, which is judged, is not that of
    the medians."""
    means = (finding.change.base_mean, finding.change.new_mean) if finding.change and _are_apart(finding) else ()
    mean = "geometric mean" if finding.relative else "mean"
    for at, (repeats, told) in enumerate(zip((finding.base, finding.new), finding.told, strict=True)):
        if (least := finding.at_least[at]) == least:
            yield f"{number(least)} or more"
            continue
        yield (number(told) + (f" ({mean} {number(means[at])})" if means else "")) if repeats.n else "-"


def _repeats(finding: Finding) -> str:
    """The known repeats of both sides, of how many if of more, and how many pairs they make if some have no
    counterpart."""
    found = finding.change
    sides = zip(finding.known, finding.not_known, strict=True)
    told = ", ".join(f"{known} of {known + unknown} known" if unknown else str(known) for known, unknown in sides)
    if found is None or not found.paired or finding.base.n == finding.new.n == found.base_n:
        return told
    return f"{told} ({plural(found.base_n, 'pair')})"


def _change(finding: Finding) -> tuple[str, str]:
    found = finding.change
    if found is None or found.value != found.value:
        return "-", "-"
    values = (_signed(v, finding.relative) for v in (found.value, found.low, found.high))
    value, low, high = values
    if math.inf in (found.high, -found.low) or (finding.relative and not found.low):
        way, end = ("more", low) if found.high == math.inf else ("less", high)
        return f"{value} or {way}", f"{end} or {way}, {'pairs' if found.paired else 'unpaired'}"
    how = "pairs" if found.paired else "unpaired"
    return value, "-" if found.low != found.low else f"{low} to {high}, {how}"


def _signed(value: float, relative: bool) -> str:
    if not relative:
        return f"{'+' if value >= 0 else ''}{number(value)}"
    return f"{100 * (value - 1):+.1f} %".replace("-", "\N{MINUS SIGN}")


def _tolerated(finding: Finding) -> str:
    worse = "+" if finding.better == "lower" else "\N{MINUS SIGN}"
    amount = f"{100 * finding.tolerance:g} %" if finding.relative else f"{finding.tolerance:g}"
    return f"{worse}{amount}"


def told(
    findings: Sequence[Finding],
    differences: Sequence[Difference],
    lacks: Mapping[str, str] = NOTHING_LACKS,
    unheld: Sequence[str] = (),
) -> list[str]:
    """The comparison in sentences, the conclusion last. `lacks` says of a side (BASE, NEW) why it may not be
    complete (`reports.load.LoadedRun`), `unheld` which weights are held against none and why."""
    lines = [f"{side}: {why}." for side, why in lacks.items()]
    lines += map(plain, unheld)
    lines += [plain(f"BASE and NEW differ in {difference.told()}") for difference in differences]
    if any(difference.about == "machine" for difference in differences):
        lines.append("The numbers come from different machines; the differences below may be due to the machines.")
    if network := [difference.what for difference in differences if difference.is_of_network]:
        conclusion = "Whether NEW is worse is unknown (exit status 3): run both on one cluster."
        if failed := regressions(findings):
            conclusion = f"No network excuses what is wrong in NEW alone (first: {_where(failed[0], findings)})."
        lines.append(f"No speed is judged, as the clusters differ in {', '.join(network)}. {conclusion}")
        return lines
    if any(map(_are_apart, findings)):
        lines.append(
            "BASE and NEW are medians, and a change is that of means over the repeats, or over pairs of them (of "
            "geometric ones if it is in percent). Where "
            "the means say something else than the medians, they stand beside them."
        )
    if any(any(finding.not_known) and finding.change and not finding.by_lower_ends for finding in findings):
        lines.append(
            "Repeats that are not known, because something else slowed their healthy iterations or because the moment "
            "of the fault's effect is not known well enough, are in no change."
        )
    lines.extend(_lower_ends_of(findings))
    lines.extend(_ends_of(findings))
    lines.extend(_inconclusive([finding for finding in findings if finding.compared]))
    lines.extend(_held_up([finding for finding in findings if finding.compared]))
    if any(
        finding.counts and finding.compared and finding.base.n != finding.new.n and any(finding.totals)
        for finding in findings
    ):
        lines.append(
            "Counts of unequal numbers of repeats are worse or better only if they are so both as they are and for "
            "equal numbers."
        )
    failed, compared = regressions(findings), [finding for finding in findings if finding.compared]
    pairs = plural(len(compared), "comparison")
    if failed:
        first = failed[0]
        where = _where(first, findings)
        are = "is a regression" if len(failed) == 1 else "are regressions"
        shown = f"{len(failed)} of {pairs} {are} (first: {where})"
    else:
        shown = f"No regression is shown in {pairs}"
    lines.append("; ".join([shown, *_untold(compared)]) + ".")
    lines.extend(_would_show(compared))
    lines.extend(_left_out(findings))
    if not failed and unjudged(findings) and any(finding.counts for finding in compared):
        lines.append("Only counts could be judged: no measure has enough repeats on both sides.")
    if not failed and is_open(findings, lacks):
        lines.append(f"Whether NEW is worse is unknown (exit status 3): {_remedy(findings, lacks)}.")
    return lines


def _remedy(findings: Sequence[Finding], lacks: Collection[str]) -> str:
    """What would tell whether NEW is worse."""
    loose = [finding for finding in findings if finding.conclusion == BETWEEN]
    if not loose or "NEW" in lacks or any(finding.unknown for finding in findings):
        return "run the missing trials, or more repeats"
    names = " and ".join(dict.fromkeys(finding.metric for finding in loose))
    return (
        f"more repeats do not tell what each trial leaves open of {names}. A quieter machine, where healthy pauses are "
        "shorter, leaves less, and a tolerance may be wider than it"
    )


def _ends_of(findings: Sequence[Finding]) -> Iterator[str]:
    """Why an interval is wider than what is between the repeats."""
    for name in dict.fromkeys(finding.metric for finding in findings if finding.change):
        if upper := METRICS[name].upper:
            yield (
                f"A trial says of {name} only between which values it lies, {upper} at most: the intervals take in all "
                "of them, and a change is told only beyond what they leave open."
            )


def _lower_ends_of(findings: Sequence[Finding]) -> Iterator[str]:
    """How trials that ended before their value was known are judged, and why they decide nothing where they do not."""
    for name in dict.fromkeys(finding.metric for finding in findings if finding.by_lower_ends):
        own = [finding for finding in findings if finding.metric == name and finding.by_lower_ends]
        yield (
            f"Trials that ended before {name} was known tell only that it is more than until then, and count as that: "
            f"their side is so much or more.{''.join(_undecided([f for f in own if f.change is None], findings))}"
        )


def _undecided(findings: Sequence[Finding], among: Sequence[Finding]) -> Iterator[str]:
    """Why no change is shown, of the first of these findings."""
    if findings:
        first = findings[0]
        sides = [side for side, least in zip(("BASE", "NEW"), first.at_least, strict=True) if least == least]
        why = (
            "both sides have such trials"
            if len(sides) == 2
            else f"the repeats show no change by what {sides[0]} has at least"
        )
        more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
        yield f" That decides nothing of {_where(first, among)}{more}: {why}."


def _inconclusive(findings: Sequence[Finding]) -> Iterator[str]:
    """How many repeats NEW could not conclude of what was compared, while BASE has values. Several metrics may be of
    one repeat."""
    most: dict[tuple[str, int, str], int] = {}
    for finding in findings:
        cell = (finding.case, finding.size_bytes, finding.system)
        most[cell] = max(most.get(cell, 0), finding.inconclusive)
    count = sum(most.values())
    if count:
        first = next(finding for finding in findings if finding.inconclusive)
        where = f"{'first: ' if sum(map(bool, most.values())) > 1 else ''}{_where(first, findings)}"
        are, ones = ("is", "a worse one") if count == 1 else ("are", "the worse ones")
        yield f"{plural(count, 'repeat')} of BASE {are} inconclusive in NEW ({where}), and may be {ones} there."


def _held_up(findings: Sequence[Finding]) -> Iterator[str]:
    """What NEW lacks of what was compared because what was hit lasted until the repair."""
    lacking = [finding for finding in findings if finding.held_up]
    if lacking:
        first = lacking[0]
        more = f", and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        yield (
            f"NEW lacks {plural(first.held_up, 'repeat')} of BASE for {_where(first, findings)}{more}, as "
            f"{HIT_UNTIL_REPAIR}. They may be the worse ones."
        )


def _where(finding: Finding, among: Sequence[Finding]) -> str:
    """``slowdown of balance at 64KiB``, and the case where there are several."""
    case = f" ({plain(finding.case)})" if len({each.case for each in among}) > 1 else ""
    return f"{finding.metric} of {plain(finding.system)}{at_size(finding.size_bytes)}{case}"


def _would_show(findings: Sequence[Finding]) -> Iterator[str]:
    """How many repeats would show a difference, which qualifies `no difference shown`."""
    none = [finding for finding in findings if finding.conclusion == "no difference shown" and finding.change]
    if not none:
        return
    needed = {id(finding): would_show(finding) or float("inf") for finding in none}
    most = max(none, key=lambda finding: needed[id(finding)])
    where = _where(most, findings)
    count = needed[id(most)]
    if most.change and count <= min(most.change.base_n, most.change.new_n):
        return
    if count == float("inf"):
        told = f"no practical number of repeats would show the tolerated one of {where}, which vary most"
    else:
        told = f"about {count} repeats would show the tolerated one of {where}, which vary most"
    yield f"No difference is shown in {plural(len(none), 'comparison')}; {told}."


def _left_out(findings: Sequence[Finding]) -> Iterator[str]:
    """How many measures only one side has, or neither although both should, by reason; and which the latter are."""
    reasons = Counter(finding.conclusion for finding in findings if not finding.compared)
    if reasons:
        why = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
        neither = [_where(finding, findings) for finding in findings if finding.conclusion == NEITHER]
        which = f" ({listed(neither)})" if neither else ""
        yield f"{plural(reasons.total(), 'more measure')} could not be compared: {why}{which}."


def _are_apart(finding: Finding) -> bool:
    """Whether the change says something else than the medians: by more than `MIN_EFFECT` (of them), or the opposite."""
    (base, new), change = finding.told, finding.change
    if change is None or (finding.relative and not base) or finding.by_lower_ends:
        return False
    if finding.relative:
        return abs(change.value - new / base) > MIN_EFFECT or (change.value - 1) * (new - base) < 0
    return abs(change.value - (new - base)) > MIN_EFFECT * max(abs(base), abs(new)) or change.value * (new - base) < 0


def _untold(findings: Sequence[Finding]) -> Iterator[str]:
    """What cannot be concluded of what was compared, by reason."""
    for conclusion, one, several in (
        ("too few repeats", "has too few repeats to show one", "have too few repeats to show one"),
        (
            "too few known repeats",
            "has too few repeats whose value is known to show one",
            "have too few repeats whose value is known to show one",
        ),
        (
            "too few conclusive repeats",
            "has too few conclusive repeats to show one",
            "have too few conclusive repeats to show one",
        ),
        (
            BETWEEN,
            "is open, as its trials do not tell their values closely enough",
            "are open, as their trials do not tell their values closely enough",
        ),
        (
            "no ratio of such values",
            "has values without a ratio, as some are 0 or less: a rule with an absolute tolerance judges it",
            "have values without a ratio, as some are 0 or less: a rule with an absolute tolerance judges them",
        ),
    ):
        count = sum(finding.conclusion == conclusion for finding in findings)
        if count:
            yield f"{plural(count, 'comparison')} {one if count == 1 else several}"


def as_json(
    base: str,
    new: str,
    findings: Sequence[Finding],
    differences: Sequence[Difference],
    lacks: Mapping[str, str] = NOTHING_LACKS,
    unheld: Sequence[str] = (),
) -> str:
    """The comparison as one JSON object."""
    values = {
        "schema": 2,
        "base": base,
        "new": new,
        "regressions": len(regressions(findings)),
        "compared": sum(finding.compared for finding in findings),
        "known_in_neither": sum(finding.conclusion == NEITHER for finding in findings),
        "lacks": dict(lacks),
        "weights_not_compared": list(unheld),
        "differences": [vars(difference) for difference in differences],
        "findings": [_record(finding) for finding in findings],
    }
    return json.dumps(values, indent=1) + "\n"


def _record(finding: Finding) -> dict[str, object]:
    left_out = ("change", "totals", "at_least")
    record = {key: machine.plain(value) for key, value in vars(finding).items() if key not in left_out}
    record["aggregate"] = METRICS[finding.metric].aggregate
    record |= dict(zip(("base_told", "new_told"), map(machine.plain, finding.told), strict=True))
    record |= dict(zip(("base_at_least", "new_at_least"), map(machine.plain, finding.at_least), strict=True))
    found = finding.change
    record["change"] = None if found is None else {key: machine.plain(value) for key, value in found._asdict().items()}
    return record
