"""The results of a run in plain sentences. Pure.

The input is `reports.measures.trial_frame`. The sentences state only what the headline table holds: medians over
repeats, the worst single trial if a promise covers every trial, and a difference between systems only if the pairs of
one run show it.
"""

import re
from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import combinations

import pandas as pd

from r2ccl_core.units import format_rate
from reports import stats
from reports.cells import (
    cells_of,
    ended_before_repair,
    limited,
    listed,
    listed_and,
    not_known_in,
    unmeasured,
    where,
    why_nothing_after,
    with_share,
    without_nic,
)
from reports.headline import Line, headline
from reports.metrics import METRICS
from reports.metrics.metric import ALIKE
from reports.screens import Screen, screen_for
from reports.served import served_sentences
from reports.setting import Setting
from reports.trained import training_sentences
from reports.trial import Trial
from reports.wording import (
    NOT_MEASURED,
    UNTIL_REPAIR,
    at_size,
    beside,
    checked_iterations,
    has,
    number,
    percent,
    plain,
    plural,
    sized,
)

MOST_COMPARISONS = 10
"""At most this many comparisons: all pairs of five systems."""

MOST_PER_SIZE = 4
"""T/T0 and time lost are told of so many sizes, the largest."""

SOUGHT = 0.05
"""The relative difference between systems that the repeats should be able to show."""

MODES = {
    0: "fail-stop, as NCCL is",
    1: "hot repair onto one back-up NIC",
    2: "Balance over all NICs left",
    3: "Balance, and R2CC-AllReduce after a loss",
}
ON_FAILURE = {
    "transfer_again": "then transfers again over the rails left",
    "recompute": "then computes prompts again",
    "reroute": "then the host of prompts answers alone",
    "restart": "then its processes start again",
}
"""What a system does after its transport has stopped at a loss, by the name of the strategy."""


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
        told.append(_with_unmeasured(_system(frame[frame["system"] == system], own, cells), own))
    told.append(_by_fault(cells_of(lines)))
    of_workloads = [*training_sentences(frame), *served_sentences(frame)]
    return [text for text in [*told, *_comparisons(frame), *of_workloads, _elements(frame)] if text]


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
    how = _with_faults(frame, _screen(frame).struck)
    soft = " Their RDMA is Soft-RoCE (rxe): nothing here is the speed of RDMA hardware." if setting.soft_rdma else ""
    return f"{len(frame)} trial{'s' * (len(frame) != 1)} of {what} over {where}{sizes}, {how}.{soft}"


def _screen(frame: pd.DataFrame) -> Screen:
    return screen_for(frame["workload"], lambda metric: bool(frame[metric].notna().any()))


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
        f"{_comma_size(line)}" for line in sorted(lines, key=lambda line: line.conclusive > 0)
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


def _system(trials: pd.DataFrame, lines: Sequence[Line], cells: Sequence[Line]) -> str:
    kind = _kind(trials.iloc[0])
    name = f"{lines[0].system} ({kind})" if kind else lines[0].system
    faulted = trials[trials["faulted"] & (trials["status"] != "inconclusive")]
    if faulted.empty:
        return ""
    stopped = faulted[faulted["status"] == "failed"]
    if len(stopped) == len(faulted):
        told = faulted["error_after_ms"].dropna()
        unsure = int(METRICS["error_after_ms"].not_known(faulted).sum())
        erred = len(told) + unsure
        sizes = " over all sizes" if faulted["size_bytes"].nunique() > 1 else ""
        when = f", at the latest {number(told.max())} ms after the fault{sizes}" if len(told) else ""
        when += f" (when is not known in {unsure} of {plural(erred, 'trial')})" if unsure else ""
        all_of_them = f"each of its {len(faulted)} faulted trials" if len(faulted) > 1 else "its faulted trial"
        if 0 < erred < len(faulted):  # the others hung, or were killed
            of_them = f"{erred} of its {len(faulted)} faulted trials"
            return f"{name} stopped: {of_them} with an error{when}, {len(faulted) - erred} without."
        if not erred:
            return f"{name} stopped: {all_of_them} ended without an error: it hung, or its processes were killed."
        return f"{name} stopped: {all_of_them} ended with an error{when}."
    ended = "stopped, as expected" if stopped["expected"].all() else "failed"
    lost = f". {len(stopped)} of its {len(faulted)} faulted trials {ended}" if len(stopped) else ""
    if trials.iloc[0]["workload"] not in ALIKE:
        return f"{name} {_went_on(faulted)}{lost}."
    if faulted["scenario"].nunique() > 1:
        return f"{name} {_over_scenarios(lines, cells, faulted)}{_partly(lines)}{lost}."
    known = [line for line in lines if line["slowdown"].n]
    held_up = _held_up_cells(cells)
    none_of_them = bool(held_up) and len(held_up) == sum(line.conclusive > line.stopped for line in cells)
    went_on = f"finished no {_screen(faulted).counts.removesuffix('s')} until the repair" if none_of_them else "went on"
    if not known:
        return f"{name} {went_on}{_lost(lines)}{_repaired(lines)}{_no_slowdown(faulted)}{lost}."
    if none_of_them:
        rest = f"{_partly(lines)}{_nothing_after(faulted)}{_switch(faulted)}{lost}"
        return f"{name} {went_on}{_elsewhere(held_up, known, faulted)}{_lost(lines)}{_repaired(lines)}{rest}."
    largest = [line for line in known if line.size_bytes == max(each.size_bytes for each in known)]
    shares = [-100 / median for median in _ends([-line["slowdown"].median for line in largest])]
    left = " to ".join(dict.fromkeys(f"{share:.0f}" if share >= 1 else number(share, 1) for share in shares))
    models = dict.fromkeys(number(line.model) for line in largest if line.model is not None)
    model = f"; the model says {', '.join(models)}" if models else ""
    alone = len(known) == len(largest) and largest[0].size_bytes == max(_sizes(lines))
    at = "" if alone else at_size(largest[0].size_bytes)
    kept = f"{name} went on at {left} % of its healthy speed{at} (T/T0 {_per_size(known)}{model})"
    rest = f"{_none_in(held_up, faulted)}{_partly(lines)}{_nothing_after(faulted)}{_switch(faulted)}{lost}"
    return f"{kept}{_lost(lines)}{_repaired(lines)}{rest}."


def _held_up_cells(cells: Sequence[Line]) -> list[Line]:
    """The cells of the first table that have nothing until the repair."""
    return [line for line in cells if why_nothing_after(line) == UNTIL_REPAIR]


def _none_in(held_up: Sequence[Line], faulted: pd.DataFrame) -> str:
    """In which cells nothing was finished until the repair, of a system that has others."""
    if not held_up:
        return ""
    one = _screen(faulted).counts.removesuffix("s")
    which = listed(f"{where(line)}{_comma_size(line)}" for line in held_up)
    return f"; it finished no {one} until the repair in {plural(len(held_up), 'cell')} ({which})"


def _elsewhere(held_up: Sequence[Line], known: Sequence[Line], faulted: pd.DataFrame) -> str:
    """The size of the cells where nothing was finished until the repair, and at which other sizes and in how many
    trials T/T0 is known."""
    trials = plural(int((faulted["status"] != "failed").sum()), "trial")
    told = f"T/T0 {_per_size(known)}, known in {sum(line.values['slowdown'] for line in known)} of {trials}"
    return f"{at_size(held_up[0].size_bytes)} ({told})"


def _went_on(faulted: pd.DataFrame) -> str:
    """In how many scenarios a system went on, if there are several."""
    scenarios = faulted["scenario"].nunique()
    ran = faulted.loc[faulted["status"] != "failed", "scenario"].nunique()
    return f"went on in {ran} of {scenarios} scenarios" if scenarios > 1 else "went on"


def _no_slowdown(faulted: pd.DataFrame) -> str:
    slowed = int(faulted["disturbed_slowdown"].sum())
    if slowed:
        return (
            "; how fast, against healthy iterations, is not known, because something else slowed these in "
            f"{slowed} of {plural(len(faulted), 'trial')}{_nothing_after(faulted)}"
        )
    counts = _screen(faulted).counts
    went_on = faulted[faulted["status"] != "failed"]
    if went_on["until_repair"].all():
        return f"; its T/T0 is not known: {_held_up(counts)}"
    old = "those on the old schedule, and the one that switches it, do not count: " if _may_switch(faulted) else ""
    why = f"{old}raise workload.{counts}"
    return f"; its T/T0 is not known: no trial has {counts} both before and after the fault ({why})"


def _may_switch(trials: pd.DataFrame) -> bool:
    """Whether it may change its schedule after a loss."""
    return bool((trials["mode"].astype(int) > 1).any() or trials["switch_ms"].notna().any())


def _nothing_after(faulted: pd.DataFrame) -> str:
    """In how many trials that went on there is nothing to compare, so that no T/T0 is of them."""
    went_on = faulted[faulted["status"] != "failed"]
    lacking = went_on["slowdown"].isna() & ~went_on["disturbed_slowdown"].astype(bool)
    held_up = int((lacking & went_on["until_repair"]).sum())
    without, trials, counts = int(lacking.sum()) - held_up, plural(len(went_on), "trial"), _screen(faulted).counts
    told = f"; in {held_up} of {trials}, {_held_up(counts)}" if held_up else ""
    if without:
        told += f"; {without} of {trials} {has(without)} no comparable {counts} both before and after the fault"
    return told


def _held_up(counts: str) -> str:
    """That nothing can be told of the time before the repair, and what would tell more. More iterations would not."""
    one = counts.removesuffix("s")
    return f"the {one} that was hit lasted until the repair, and a longer fault shows whether others follow before it"


def _over_scenarios(lines: Sequence[Line], cells: Sequence[Line], faulted_trials: pd.DataFrame) -> str:
    """Several scenarios have no common median: states the mildest and the worst of the first table's cells (`cells`),
    or, if none of these has a T/T0, of the largest size that has one."""
    known = [line for line in lines if line["slowdown"].n]
    largest = [line for line in cells if line["slowdown"].n]
    largest = largest or [line for line in known if line.size_bytes == max(each.size_bytes for each in known)]
    faulted = dict.fromkeys(line.scenario for line in lines if line.scenario != "healthy" and line.conclusive)
    ran = {line.scenario for line in lines if line.conclusive > line.stopped}
    held_up = _none_in(_held_up_cells(cells), faulted_trials)
    if not largest:
        count = len(ran & set(faulted))
        none = _why_none(lines, faulted, ran) + held_up + _nothing_after(faulted_trials)
        return f"went on in {count} of {len(faulted)} scenarios{_lost(cells)}{_repaired(cells)}{none}"
    ordered = sorted(largest, key=lambda line: line["slowdown"].median)
    values = [number(line["slowdown"].median) for line in ordered]
    places = [f"{where(line)}{_comma_size(line)}" for line in ordered]
    span = f"T/T0 from {values[0]} ({places[0]}) to {values[-1]} ({places[-1]})"
    span = span if values[0] != values[-1] else f"T/T0 {values[0]} ({listed(places)})"
    known_in, told = ({line.scenario for line in some} for some in (known, largest))
    slowed = {line.scenario for line in lines if line.disturbed_slowdown} - known_in
    went_on = [scenario for scenario in faulted if scenario in ran | known_in | slowed]
    stopped = [scenario for scenario in faulted if scenario not in went_on]
    smaller = len(known_in - told)
    more = f"; the T/T0 of {smaller} more is known at smaller sizes only" if smaller else ""
    more += f"; the T/T0 of {len(slowed)} more is not known{_of_known(lines, slowed)}" if slowed else ""
    more += held_up + _nothing_after(faulted_trials)
    more += f"; it stopped in {', '.join(stopped)}" if stopped else ""
    return f"went on in {len(went_on)} of {len(faulted)} scenarios, {span}{_lost(cells)}{_repaired(cells)}{more}"


def _of_known(lines: Sequence[Line], scenarios: Collection[str]) -> str:
    """The worst trial of scenarios whose median is not known, which may be the worst of all; empty: none is known."""
    known = {
        scenario: max(values)
        for scenario in scenarios
        if (values := [v for li in lines if li.scenario == scenario and (v := li.worst["slowdown"]) == v])
    }
    told = "; ".join(f"{scenario}: {number(value)} in its worst known trial" for scenario, value in known.items())
    return f" ({told})" if told else ""


def _why_none(lines: Sequence[Line], faulted: Iterable[str], ran: set[str]) -> str:
    """Why no scenario has a T/T0 although iterations followed the fault; `ran` are those in which it went on."""
    slowed = sum(line.disturbed_slowdown for line in lines)
    trials = plural(sum(line.conclusive - line.stopped for line in lines if line.faulted), "trial")
    because = f"because something else slowed the iterations before the fault in {slowed} of {trials}"
    stopped = [scenario for scenario in faulted if scenario not in ran]
    whys = [f"its T/T0 is not known, {because}"] * bool(slowed) + [f"it stopped in {', '.join(stopped)}"] * bool(
        stopped
    )
    return "".join(f"; {why}" for why in whys)


def _comma_size(line: Line) -> str:
    return f", {sized(line.size_bytes)}" if line.size_bytes else ""


def _kind(trial: "pd.Series") -> str:
    """The kind of a system: its mode, or the schedule that it names, which says more. Other networks than ours and
    NCCL's have no mode."""
    if trial["network"].lower() not in ("", "r2ccl", "socket", "ib"):
        return ""
    algo = trial["algo"]
    if algo == "auto":
        return "the planner's schedules"
    if algo not in ("", "ring"):
        return f"the schedule {algo}"
    if trial["on_failure"]:
        then = str(trial["on_failure"])
        return f"stops at the first loss, {ON_FAILURE.get(then, f'then {then}')}"
    return MODES.get(int(trial["mode"]), f"mode {trial['mode']}")


def _lost(lines: Sequence[Line]) -> str:
    """Time lost against healthy iterations over the whole trial, by size as T/T0 is."""
    known = [line for line in lines if line["lost_ms"].n]
    if not known:
        return ""
    sizes = sorted({line.size_bytes for line in known})
    most = [ms for line in lines if (ms := line.worst["lost_ms"]) == ms]  # also where no median is known
    several = len(most) > 1 or known[0]["lost_ms"].n > 1
    worst = f", at most {number(max(most))} ms" if several else ""
    at = f"{'' if len(sizes) > 1 else at_size(known[0].size_bytes)}{worst}".removeprefix(" ").removeprefix(", ")
    where = f" ({at})" if at else ""
    medians = ", ".join(
        f"{_range([line['lost_ms'].median for line in known if line.size_bytes == size])} ms"
        f"{at_size(size) if len(sizes) > 1 else ''}" for size in sizes[-MOST_PER_SIZE:]
    )  # fmt: skip
    return f" and lost {medians} against healthy iterations over the whole trial{where}"


def _repaired(lines: Sequence[Line]) -> str:
    """How much of the healthy speed is there after the repair, at the largest size that tells, since what is before
    does not say whether the speed came back."""
    known = [line for line in lines if line["repaired_ms"].n and line["before_ms"].n]
    largest = [line for line in known if line.size_bytes == max(each.size_bytes for each in known)]
    if not largest:
        return ""
    shares = (100 * line["before_ms"].median / line["repaired_ms"].median for line in largest)
    ends = " to ".join(dict.fromkeys(f"{share:.0f}" for share in _ends(list(shares))))
    without = without_nic(largest, "repaired_ms")
    at = at_size(largest[0].size_bytes) if len(_sizes(lines)) > 1 else ""
    return f"; after the repair it ran at {ends} % of its healthy speed{at}{f' ({without})' if without else ''}"


def _sizes(lines: Sequence[Line]) -> set[int]:
    return {line.size_bytes for line in lines}


def _by_fault(cells: Sequence[Line]) -> str:
    """Of several faults, what each cost each system: a range over all faults does not tell who bears one of them best.
    It orders medians and claims no difference, which takes pairs (`_comparisons`)."""
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
    and for which systems some are not; empty: no point has several systems. Trials that ended before the repair, at
    different times of the fault, have lost as much as they saw of it."""
    systems = {line.system for line in cells if line.conclusive > line.stopped}
    points: dict[tuple[str, int], dict[str, Line]] = {}
    for line in cells:
        points.setdefault((line.case, line.size_bytes), {})[line.system] = line
    shared = [[point[system] for system in systems] for point in points.values() if systems <= point.keys()]
    if len(systems) < 2 or not shared:
        return ""
    if cut := ended_before_repair([line for point in shared for line in point]):
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
    told = ", ".join(f"{name} {_range(ms)} ms" for name, ms in ordered)
    partly = f" (of {len(known)} of {plural(len(shared), 'point')}; {unknown} at the others)" if lacking else ""
    return f"{told}{partly}"


def _partly(lines: Sequence[Line]) -> str:
    """In how many trials T/T0 and time lost are not known, so that nothing before is of all of them. Of a T/T0 that no
    cell has, the sentence has said why."""
    told: dict[str, list[str]] = {}
    for what, metric in (("T/T0", "slowdown"), ("time lost", "lost_ms")):
        if metric == "lost_ms" or any(line[metric].n for line in lines):
            told.setdefault(not_known_in(lines, metric), []).append(what)
    return "".join(f"; {listed_and(whats)} {unknown}" for unknown, whats in told.items() if unknown)


def _switch(faulted: pd.DataFrame) -> str:
    known = faulted[faulted["switch_cost_ms"].notna()]
    if known.empty:
        return ""
    middle, worst = (stats.percentile(known["switch_cost_ms"], q) for q in (50, 100))
    longer = f"{number(middle)} ms longer" if round(middle) > 0 else "no longer"
    at_most = f"; at most {number(worst)} ms" if round(worst) > 0 else ""
    return (
        f"; its switch of schedules made one operation {longer} than those after it "
        f"(median of {plural(len(known), 'trial')}{at_most})"
    )


def _per_size(lines: Sequence[Line]) -> str:
    """T/T0 of the four largest sizes; for several collectives or points of the axes, their range."""
    by_size: dict[int, list[float]] = {}
    for line in sorted(lines, key=lambda line: line.size_bytes):
        by_size.setdefault(line.size_bytes, []).append(line["slowdown"].median)
    return ", ".join(f"{_range(medians)}{at_size(size)}" for size, medians in list(by_size.items())[-MOST_PER_SIZE:])


def _range(values: Sequence[float]) -> str:
    return " to ".join(dict.fromkeys(map(number, _ends(values))))


def _ends(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _comparisons(frame: pd.DataFrame) -> list[str]:
    """Systems that went on, in pairs, at the largest size: time after the fault in the same run and repeat."""
    # Requests of two systems that began after a failure are not the same ones.
    going = frame[frame["after_ms"].notna() & frame["faulted"] & frame["workload"].isin(ALIKE)]
    told, short, apart = [], list[tuple[int, int]](), 0
    several = going["case"].nunique() > 1
    for name, case in going.groupby("case", sort=False):
        part = case[case["size_bytes"] == case["size_bytes"].max()]
        size_bytes = int(part["size_bytes"].iloc[0])
        ran = frame[(frame["case"] == name) & (frame["size_bytes"] == size_bytes)]
        at = at_size(size_bytes) + (f" ({name})" if several else "")
        for first, second in combinations(dict.fromkeys(part["system"]), 2):
            one, other = _by_repeat(part, first), _by_repeat(part, second)
            if not one.keys() & other.keys():
                apart += 1
                continue
            found = stats.paired(one, other)
            if found.conclusion == "too few pairs":
                short.append((found.n, len(_by_repeat(ran, first).keys() & _by_repeat(ran, second).keys())))
            else:
                told.append(_compared(found, first, second, at))
    elsewhere = "Systems of different runs are not compared here: `harness compare` does that."
    several_runs = apart and frame["run"].nunique() > 1
    more = len(told) - MOST_COMPARISONS
    left_out = [f"{plural(more, 'more comparison')} of two systems: see the table of all numbers."] if more > 0 else []
    return [*told[:MOST_COMPARISONS], *left_out, *_too_few(short), *([elsewhere] if several_runs else [])]


def _too_few(short: Sequence[tuple[int, int]]) -> list[str]:
    """The comparisons that have too few pairs, each with the pairs that are known and those that were run: of few
    repeats in one sentence, of few known ones in another."""
    unknown = [pair for pair in short if pair[1] >= stats.MIN_PAIRS]
    least, few = f"it takes at least {stats.MIN_PAIRS}.", len(short) - len(unknown)
    which = "to say which of two systems is faster after the fault, in"
    pairs = ", ".join(dict.fromkeys(f"{known} of {ran}" for known, ran in unknown))
    told = [f"Too few repeats in one run {which} {plural(few, 'case')}; {least}"] if few else []
    told += [f"Too few pairs {which} {plural(len(unknown), 'case')}: {pairs} are known; {least}"] if unknown else []
    return told


def _compared(found: stats.Difference, first: str, second: str, at: str) -> str:
    what = f"After the fault{at}, pairing trials of one repeat"
    if found.conclusion == "no difference shown":
        return f"{what}: no difference shown between {first} and {second} ({found.n} pairs; {_would_show(found)})."
    ratio, low, high = found.ratio, found.low, found.high
    if found.conclusion == "more":
        slow, fast = first, second
    else:
        slow, fast, ratio, low, high = second, first, 1 / ratio, 1 / high, 1 / low
    return (
        f"{what}, {slow} took {beside(ratio, 1)} times as long as {fast} "
        f"(interval {beside(low, 1)} to {beside(high, 1)}, {found.n} pairs)."
    )


def _would_show(found: stats.Difference) -> str:
    """How many repeats would show a difference, which qualifies `no difference shown`."""
    needed = stats.pairs_to_show(found.spread, SOUGHT)
    if needed is None:
        return f"they differ too much from each other for any number of repeats to show one of {percent(SOUGHT)}"
    if needed <= found.n:
        return f"one of {percent(SOUGHT)} would have shown"
    return f"about {needed} would show one of {percent(SOUGHT)}"


def _by_repeat(part: pd.DataFrame, system: str) -> dict[Hashable, float]:
    own = part[part["system"] == system]
    return dict(zip(zip(own["run"], own["repeat"], strict=True), own["after_ms"].astype(float), strict=True))


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
