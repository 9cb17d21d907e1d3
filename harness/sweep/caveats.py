"""Caveats about a sweep that are shown beside its table: cells with too wide an interval, unknown costs. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from harness.experiment.sweep import SweepModel
from harness.sweep.plan import Trial
from harness.sweep.precision import is_narrow, widths
from harness.sweep.summary import told
from reports import trial as stored
from reports.metrics import METRICS, cost
from reports.metrics.view import View


def precision_caveats(trials: Sequence[Trial], sweep: SweepModel, records: Mapping[str, stored.Trial]) -> Iterator[str]:
    """A line for every cell whose interval stayed wider than the sweep asks for."""
    until = sweep.repeats.until
    if until is None:
        return
    wide = [width for width in widths(trials, records) if not is_narrow(width, until)]
    for width in wide:
        shown = "not known" if width.half_width != width.half_width else f"{100 * width.half_width:.1f} %"
        repeats = f"{width.repeats} repeat{'s' * (width.repeats != 1)}"
        yield f"not known within {100 * until:g} %: {width.cell}: interval +-{shown} after {repeats}"


def cost_caveats(records: Iterable[stored.Trial]) -> Iterator[str]:
    """A line about the trials whose cost is not known, and one about cells that lost less than nothing, if there are
    any."""
    cells: dict[str, list[stored.Trial]] = {}
    for record in records:
        cells.setdefault(str((record.shown_system, record.size_bytes, record.scenario, record.axes)), []).append(record)
    views = [View(record) for cell in cells.values() for record in cell]
    slowed, slowdowns = (sum(map(bool, map(unknown, views))) for unknown in (cost.disturbed, cost.disturbed_slowdown))
    if slowed or slowdowns:
        yield cost.unknown_costs(slowed, slowdowns)
    shares = (told(cell, [METRICS["lost_share"]]).get("lost_share", 0.0) for cell in cells.values())
    if any(map(cost.is_gain, shares)):
        yield cost.GAIN
