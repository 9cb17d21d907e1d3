"""Numbers as people read them: three digits, no exponent, the correct sign, a dash for an unknown value."""

from collections import Counter
from collections.abc import Iterable, Sequence

from r2ccl_core.units import format_size

NOTHING = "\N{EN DASH}"
NOT_KNOWN = "not known"
"""The cost of a fault in a trial whose healthy iterations something else slowed."""
NOT_MEASURED = "not measured"
"""A cell whose trials all stayed inconclusive."""
NOTHING_AFTER = "no comparable iteration after"
"""A cell that went on, but whose trials ended, or whose NIC was repaired, before an iteration began on the schedule
that follows the fault."""
UNTIL_REPAIR = "none until the repair"
"""The same of a cell whose iteration that was hit lasted until the repair in every trial."""
HIT_UNTIL_REPAIR = "what was hit lasted until the repair"
"""Why a trial that went on has no value of what follows the fault and of what compares with it."""
STOPPED = "stopped (expected)"
"""The status of a trial that was expected to fail and did."""


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits, but at least its whole part: ``1.51``, ``1234``."""
    if value is None or value != value:
        return NOTHING
    if value in (float("inf"), float("-inf")):
        return "infinite"
    if value == 0:
        return "0"
    text = f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"
    if "e" in text:
        text = f"{value:.6f}".rstrip("0").rstrip(".") or "0"
    if text == "-0":
        return "0"
    return text.replace("-", "\N{MINUS SIGN}")


def beside(value: float, most: float) -> str:
    """`value` with as many digits, three or more, as show whether it is above `most`."""
    enough = (n for n in range(3, 15) if (float(f"{value:.{n}g}") > most) == (value > most))
    return number(value, next(enough, 15))


def exactly(limit: float) -> str:
    """A limit as somebody wrote it: ``1.0625``."""
    return number(limit, 15)


def plain(text: str, longest: int = 300) -> str:
    """`text` as a label or a line in a terminal: printable, on one line, shortened to `longest` characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:longest])


def percent(share: float) -> str:
    """A share in whole percent: ``66 %``."""
    return NOTHING if share != share else f"{100 * share:.0f} %"


def difference(share: float) -> str:
    """A difference as whole percent, with its sign: ``+12``."""
    told = number(round(100 * share)) if share == share else NOTHING
    return f"+{told}" if share > 0 and told != "0" else told


def plural(count: int, noun: str) -> str:
    """``1 trial``, ``3 trials``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def missing_trials(missing: int, planned: int | None) -> str:
    """``3 of 32 trials are missing from the folder or cannot be read``; empty: none is."""
    are = "is" if missing == 1 else "are"
    return f"{_trials_of(missing, planned)} {are} missing from the folder or cannot be read" if missing else ""


def trials_without_result(missing: int, planned: int | None, most: str = "") -> str:
    """``3 of 32 trials have no result``, of a sweep that has not finished; empty: none is known to be."""
    return f"{most}{_trials_of(missing, planned)} {has(missing)} no result" if missing else ""


def _trials_of(count: int, planned: int | None) -> str:
    return plural(count, "trial") if planned is None else f"{count} of {plural(planned, 'trial')}"


def has(count: int) -> str:
    """The verb to `plural`."""
    return "has" if count == 1 else "have"


def not_known(unknown: int, trials: int) -> str:
    """``not known``, and in how many trials if the number is known in the others."""
    return NOT_KNOWN if unknown >= trials else f"{NOT_KNOWN} in {unknown} of {plural(trials, 'trial')}"


def checked_iterations(count: int) -> str:
    """What wrong elements were counted in. Everywhere else iterations are those that are timed; a wrong element counts
    in a warm-up as well."""
    return f"{plural(count, 'checked iteration')}, warm-ups included"


def sized(size_bytes: int) -> str:
    """``64MiB``; a dash for a workload without a size."""
    return format_size(size_bytes) if size_bytes else NOTHING


def ended(status: str, *, expected: bool) -> str:
    """How a trial ended, as every output says it: a failure that the experiment expects is a stop."""
    if status == "failed" and expected:
        return STOPPED
    return f"{status} (not expected)" if status == "ok" and not expected else status


def tally(ends: Iterable[tuple[str, bool]]) -> str:
    """``4 ok, 1 stopped (expected)``: of trials, each with its status and whether that is expected."""
    counts = Counter(ended(status, expected=expected) for status, expected in ends)
    return ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))


def at_size(size_bytes: int) -> str:
    """`` at 64MiB`` to follow a name; empty for a workload without a size."""
    return f" at {format_size(size_bytes)}" if size_bytes else ""


def comma_size(size_bytes: int) -> str:
    """``, 64MiB`` behind a place; empty for a workload without a size."""
    return f", {sized(size_bytes)}" if size_bytes else ""


def range_of(values: Sequence[float]) -> str:
    """``3``, or ``3 to 5`` from the least to the greatest."""
    return " to ".join(dict.fromkeys(map(number, ends_of(values))))


def ends_of(values: Sequence[float]) -> tuple[float, float]:
    """The least and the greatest."""
    return min(values), max(values)
