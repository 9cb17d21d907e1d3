"""How a system endured its faults, in one sentence: whether it went on, at which speed, what that cost, and what is not
known. Pure."""

from collections.abc import Collection, Iterable, Sequence

import pandas as pd

from reports import stats
from reports.cells import ended_too_early, listed, listed_and, not_known_in, where, why_nothing_after, without_nic
from reports.headline import Line
from reports.metrics import METRICS
from reports.metrics.metric import ALIKE
from reports.screens import screen_of_trials
from reports.wording import UNTIL_REPAIR, at_size, comma_size, ends_of, has, number, plural, range_of

MOST_PER_SIZE = 4
"""T/T0 and time lost are told of so many sizes, the largest."""

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


def system_sentence(trials: pd.DataFrame, lines: Sequence[Line], cells: Sequence[Line]) -> str:
    """What a system did under its faults; empty of one without. `lines` are all of its lines, `cells` those of the
    first table."""
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
        where_known = " where that is known" if when and unsure else ""
        when += f"{where_known} (when is not known in {unsure} of {plural(erred, 'trial')})" if unsure else ""
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
    went_on = (
        f"finished no {screen_of_trials(faulted).counts.removesuffix('s')} until the repair"
        if none_of_them
        else "went on"
    )
    if not known:
        return f"{name} {went_on}{_lost(lines)}{_repaired(lines)}{_no_slowdown(faulted)}{lost}."
    if none_of_them:
        rest = f"{_partly(lines)}{_nothing_after(faulted)}{_switch(faulted)}{lost}"
        return f"{name} {went_on}{_elsewhere(held_up, known, faulted)}{_lost(lines)}{_repaired(lines)}{rest}."
    largest = [line for line in known if line.size_bytes == max(each.size_bytes for each in known)]
    shares = [-100 / median for median in ends_of([-line["slowdown"].median for line in largest])]
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
    one = screen_of_trials(faulted).counts.removesuffix("s")
    which = listed(f"{where(line)}{comma_size(line.size_bytes)}" for line in held_up)
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
    counts = screen_of_trials(faulted).counts
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
    without, trials, counts = (
        int(lacking.sum()) - held_up,
        plural(len(went_on), "trial"),
        screen_of_trials(faulted).counts,
    )
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
    places = [f"{where(line)}{comma_size(line.size_bytes)}" for line in ordered]
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
    """Time lost against healthy iterations over the whole trial, by size as T/T0 is, and in how many trials that is a
    part only."""
    known = [line for line in lines if line["lost_ms"].n]
    if not known:
        return ""
    sizes = sorted({line.size_bytes for line in known})
    most = [ms for line in lines if (ms := line.worst["lost_ms"]) == ms]  # also where no median is known
    several = len(most) > 1 or known[0]["lost_ms"].n > 1
    worst = f", at most {number(max(most))} ms" if several else ""
    at = f"{'' if len(sizes) > 1 else at_size(known[0].size_bytes)}{worst}".removeprefix(" ").removeprefix(", ")
    where = "; ".join(filter(None, (at, ended_too_early(known))))
    medians = ", ".join(
        f"{range_of([line['lost_ms'].median for line in known if line.size_bytes == size])} ms"
        f"{at_size(size) if len(sizes) > 1 else ''}" for size in sizes[-MOST_PER_SIZE:]
    )  # fmt: skip
    return f" and lost {medians} against healthy iterations over the whole trial{f' ({where})' if where else ''}"


def _repaired(lines: Sequence[Line]) -> str:
    """How much of the healthy speed is there after the repair, at the largest size that tells, since what is before
    does not say whether the speed came back."""
    known = [line for line in lines if line["repaired_ms"].n and line["before_ms"].n]
    largest = [line for line in known if line.size_bytes == max(each.size_bytes for each in known)]
    if not largest:
        return ""
    shares = (100 * line["before_ms"].median / line["repaired_ms"].median for line in largest)
    ends = " to ".join(dict.fromkeys(f"{share:.0f}" for share in ends_of(list(shares))))
    without = without_nic(largest, "repaired_ms")
    at = at_size(largest[0].size_bytes) if len(_sizes(lines)) > 1 else ""
    return f"; after the repair it ran at {ends} % of its healthy speed{at}{f' ({without})' if without else ''}"


def _sizes(lines: Sequence[Line]) -> set[int]:
    return {line.size_bytes for line in lines}


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
    return ", ".join(f"{range_of(medians)}{at_size(size)}" for size, medians in list(by_size.items())[-MOST_PER_SIZE:])
