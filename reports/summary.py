"""The results of a run in plain sentences. Pure.

The input is `reports.measures.trial_frame`. The sentences state only what the headline table holds: medians over
repeats, the worst single trial if a promise covers every trial, and a difference between systems only if the pairs of
one run show it.
"""

import re
from collections.abc import Iterable, Sequence

import pandas as pd

from r2ccl_core.units import format_rate
from reports.cells import (
    cells_of,
    ended_too_early,
    limited,
    listed,
    listed_and,
    unmeasured,
    where,
    with_share,
)
from reports.endured import system_sentence
from reports.headline import Line, headline
from reports.metrics import METRICS
from reports.paired import comparisons
from reports.screens import screen_of_trials
from reports.served import served_sentences
from reports.setting import Setting
from reports.trained import training_sentences
from reports.trial import Trial
from reports.wording import (
    NOT_MEASURED,
    at_size,
    checked_iterations,
    comma_size,
    plain,
    plural,
    range_of,
    sized,
)


def sentences(
    frame: pd.DataFrame, scopes: Sequence[str], earlier: Sequence[Trial] = (), incomplete: Sequence[str] = ()
) -> list[str]:
    """The runs in plain words, the most important first; the sentences contain no markup.

    `scopes` say what was run (`scope`); `earlier` are the inconclusive attempts that were run again and are not in
    `frame`; `incomplete` says of each run whose trials are not all there why (`reports.load.LoadedRun.incomplete`).
    """
    lines = headline(frame)
    told = [*scopes, _simulated(frame), _conclusion(frame, lines, incomplete), _repeated(earlier), _healthy(lines)]
    for system in dict.fromkeys(line.system for line in lines):
        own = [line for line in lines if line.system == system]
        cells = [line for line in cells_of(lines) if line.system == system]
        told.append(_with_unmeasured(system_sentence(frame[frame["system"] == system], own, cells), own))
    told.append(_by_fault(cells_of(lines)))
    of_workloads = [*training_sentences(frame), *served_sentences(frame)]
    return [text for text in [*told, *comparisons(frame), *of_workloads, _elements(frame)] if text]


def scope(frame: pd.DataFrame, setting: Setting) -> str:
    """What one run ran, in one sentence."""
    if frame.empty:
        return "No trial."
    collectives = (frame["workload"] == "collective").all()
    what = _what([str(name) for name in frame["collective" if collectives else "operation"].unique()])
    hosts = "virtual machines" if setting.virtual else "hosts"
    where = f"{setting.hosts} {hosts}" if setting.hosts else hosts
    if setting.nics:
        rate = f" of {format_rate(setting.rate_bit_s)}" if setting.rate_bit_s else ""
        ranks = f"{setting.gpus} ranks and " if setting.gpus > 1 else ""
        where += f" with {ranks}{setting.nics} NIC{'s' * (setting.nics > 1)}{rate} each"
    ends = (int(frame["size_bytes"].agg(end)) for end in ("min", "max"))
    sizes = ", " + " to ".join(dict.fromkeys(map(sized, ends))) if collectives else ""
    how = _with_faults(frame, screen_of_trials(frame).struck)
    soft = " Their RDMA is Soft-RoCE (rxe): nothing here is the speed of RDMA hardware." if setting.soft_rdma else ""
    return f"{len(frame)} trial{'s' * (len(frame) != 1)} of {what} over {where}{sizes}, {how}.{soft}"


def _what(operations: Sequence[str]) -> str:
    """Every operation; of those that differ in their parentheses only, what they share."""
    shared = list(dict.fromkeys(operation.split(" (")[0] for operation in operations))
    return ", ".join(operations if len(shared) == len(operations) else [*shared, f"in {len(operations)} forms"])


def _with_faults(frame: pd.DataFrame, operation: str) -> str:
    """An inconclusive trial counts as neither: its fault may have missed the operation."""
    inconclusive = frame["status"] == "inconclusive"
    faulted, unclear = int((frame["faulted"] & ~inconclusive).sum()), int(inconclusive.sum())
    without = len(frame) - faulted - unclear
    if without == len(frame):
        return "without a fault"
    if faulted == len(frame):
        return f"{'each ' * (faulted > 1)}with a fault during {operation}"
    told = [f"{faulted} with a fault during {operation}"] if faulted else []
    told += [f"{without} without{'' if faulted else ' a fault'}"] if without else []
    told += [f"{unclear if faulted or without else 'all'} inconclusive"] if unclear else []
    return ", ".join(told)


def _simulated(frame: pd.DataFrame) -> str:
    count = int((frame["source"] == "simulated").sum())
    if not count:
        return ""
    which = "All of them were" if count == len(frame) else f"{count} of them, which are marked, were"
    return (
        f"{which} SIMULATED, not measured: no byte was moved. Processors, the time to notice a failure and the switch "
        "of schedules cost nothing there."
    )


def _conclusion(frame: pd.DataFrame, lines: Sequence[Line], incomplete: Sequence[str]) -> str:
    inconclusive = int((frame["status"] == "inconclusive").sum())
    odd = frame[~frame["expected"] & (frame["status"] != "inconclusive")]
    told = list(incomplete)
    if odd.empty and not inconclusive:
        which = "the trials that are there" if told else "every trial"
        return _sentence([*told, f"{which} ended as the experiment expects"])
    if len(odd):
        earliest = odd.sort_values("began_ns", kind="stable").iloc[0]
        first = ": ".join(filter(None, (_called(earliest), plain(earliest["reason"]))))
        told += [f"{plural(len(odd), 'trial')} did not end as expected (first: {first})"]
    verb = "is" if inconclusive == 1 else "are"
    which = f"{plural(inconclusive, 'trial')} stayed inconclusive and {verb} in no figure"
    told += [f"{which}{_inconclusive(lines)}"] if inconclusive else []
    reasons = [str(reason) for reason in frame.loc[frame["status"] == "inconclusive", "reason"] if reason]
    return _sentence(told) + (f" {_reasons(reasons)}" if reasons else "")


def _sentence(clauses: Sequence[str]) -> str:
    told = "; ".join(clauses)
    return f"{told[:1].upper()}{told[1:]}."


def _called(trial: "pd.Series") -> str:
    """The trial, and of several runs which one's it is."""
    return f"run {trial['run_number']}, {trial['trial_id']}" if trial["run_number"] else str(trial["trial_id"])


def _inconclusive(lines: Sequence[Line]) -> str:
    """Of which cells trials stayed inconclusive, by run if there are several."""
    by_run: dict[int, list[Line]] = {}
    for line in sorted((line for line in lines if line.inconclusive), key=lambda line: line.run):
        by_run.setdefault(line.run, []).append(line)
    if 0 in by_run:
        return f" ({_cells(by_run[0])})"
    counts = {run: sum(line.inconclusive for line in own) for run, own in by_run.items()}
    return ": " + "; ".join(f"{counts[run]} of run {run} ({_cells(own)})" for run, own in by_run.items())


def _cells(lines: Sequence[Line]) -> str:
    """The cells of one run, each with its number of inconclusive trials: those without a conclusive one first."""
    return listed(
        f"{line.inconclusive} of {line.inconclusive + line.conclusive} of {line.plain_system}, {where(line)}"
        f"{comma_size(line.size_bytes)}" for line in sorted(lines, key=lambda line: line.conclusive > 0)
    )  # fmt: skip


def _with_unmeasured(told: str, own: Sequence[Line]) -> str:
    """The sentence on a system, followed by its cells of which there is no conclusive trial."""
    missing = unmeasured(own, all_sizes=True)
    if not missing:
        return told
    if not told:
        return f"{own[0].system}: {NOT_MEASURED}, because every trial is inconclusive: {missing}."
    return f"{told} {NOT_MEASURED.capitalize()}, because every trial is inconclusive: {missing}."


def _repeated(earlier: Sequence[Trial]) -> str:
    if not earlier:
        return ""
    were, them = ("attempt was", "it") if len(earlier) == 1 else ("attempts were", "them")
    return (
        f"{len(earlier)} earlier {were} inconclusive and run again; rows.csv has {them}, no figure does. "
        f"{_reasons(trial.reason for trial in earlier)}"
    )


def _reasons(of_trials: Iterable[str]) -> str:
    """The most frequent reasons for which trials were inconclusive, which name the key to change. Reasons that differ
    in their numbers only are one, told as the first of them says it."""
    alike: dict[str, list[str]] = {}
    for reason in (plain(reason) or "reason unknown" for reason in of_trials):
        alike.setdefault(re.sub(r"\d+(\.\d+)?", "", reason), []).append(reason)
    ordered = sorted(alike.values(), key=len, reverse=True)
    told = "; ".join(some[0] + (f" ({_times(some)})" if len(some) > 1 else "") for some in ordered[:3])
    more = f"; and {len(ordered) - 3} more reasons" if len(ordered) > 3 else ""
    return f"{'Reason' if len(ordered) == 1 else 'Reasons'}: {told}{more}."


def _times(reasons: Sequence[str]) -> str:
    return f"{len(reasons)} times{', each with its own numbers' if len(set(reasons)) > 1 else ''}"


def _healthy(lines: Sequence[Line]) -> str:
    cells = cells_of(lines)
    known = with_share(cells)
    if not known:
        return ""
    shares = [line["share"].median for line in known]
    between = " to ".join(dict.fromkeys(f"{100 * s:.0f}" for s in (min(shares), max(shares))))
    sizes = ", ".join(dict.fromkeys(sized(line.size_bytes) for line in known))
    limits = ", ".join(dict.fromkeys(f"{line['before_gbs'].median / line['share'].median:.4g}" for line in known))
    of = f" of {only}" if (only := limited(cells)) else ""
    return f"Healthy, at {sizes}, the bus bandwidth{of} was {between} % of what the NICs carry ({limits} GB/s)."


def _by_fault(cells: Sequence[Line]) -> str:
    """Of several faults, what each cost each system: a range over all faults does not tell who bears one of them best.
    It orders medians and claims no difference, which takes pairs (`reports.paired`)."""
    cells = [line for line in cells if METRICS["lost_ms"].is_of(line.workload)]
    faults = dict.fromkeys(line.scenario for line in cells if line.faulted)
    if len(faults) < 2 or any(line.run for line in cells):  # systems of several runs are not compared here
        return ""
    costs = {fault: _costs([line for line in cells if line.faulted and line.scenario == fault]) for fault in faults}
    told = [f"{fault}: {cost}" for fault, cost in costs.items() if cost]
    sizes = {line.size_bytes for line in cells}
    at = at_size(*sizes) if len(sizes) == 1 else ""
    order = "of all points that the systems share, the least in sum first"
    return f"Time lost by fault{at} (medians {order}): {'; '.join(told)}." if told else ""


def _costs(cells: Sequence[Line]) -> str:
    """The time that each system lost in one fault, over the points that all of them have and whose values are known,
    and for which systems some are not; empty: no point has several systems. Trials that ended before the cost was
    over have lost as much as they saw of it, each another part."""
    systems = {line.system for line in cells if line.conclusive > line.stopped}
    points: dict[tuple[str, int], dict[str, Line]] = {}
    for line in cells:
        points.setdefault((line.case, line.size_bytes), {})[line.system] = line
    shared = [[point[system] for system in systems] for point in points.values() if systems <= point.keys()]
    if len(systems) < 2 or not shared:
        return ""
    if cut := ended_too_early([line for point in shared for line in point]):
        return f"not compared, because {cut} and saw only part of it"
    known = [point for point in shared if all(line["lost_ms"].n for line in point)]
    lacking = dict.fromkeys(line.system for point in shared for line in point if not line["lost_ms"].n)
    unknown = f"not known for {listed_and(list(lacking))}"
    if not known:
        return unknown
    lost: dict[str, list[float]] = {}
    for line in (line for point in known for line in point):
        lost.setdefault(line.system, []).append(line["lost_ms"].median)
    ordered = sorted(lost.items(), key=lambda each: (sum(each[1]), each[0]))
    told = ", ".join(f"{name} {range_of(ms)} ms" for name, ms in ordered)
    partly = f" (of {len(known)} of {plural(len(shared), 'point')}; {unknown} at the others)" if lacking else ""
    return f"{told}{partly}"


def _elements(frame: pd.DataFrame) -> str:
    frame = frame[frame["workload"] == "collective"]
    if frame.empty:
        return ""
    checked, wrong = int(frame["checked"].sum()), int(frame["wrong"].sum())
    if (frame["status"] == "inconclusive").all():
        return "No trial is conclusive, so no checked element counts."
    if not checked:
        return "No element was checked."
    if wrong:
        return f"{wrong} WRONG elements in {checked_iterations(checked)}."
    return f"No wrong element in {checked_iterations(checked)}, every element on every rank compared."
