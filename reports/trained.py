"""The results of training in plain sentences, by system and failure, and whether they are bit for bit the undisturbed
ones.

The input is `reports.measures.trial_frame`. Pure.
"""

from collections.abc import Iterator

import pandas as pd

from reports import stats
from reports.cells import too_early
from reports.metrics import METRICS
from reports.metrics.training import references
from reports.not_back import in_trials
from reports.wording import number, plural

OVERHEAD = METRICS["overhead"]


def training_sentences(frame: pd.DataFrame) -> list[str]:
    """A sentence on every system under every failure; none if nothing was trained."""
    trained = frame[(frame["workload"] == "training") & (frame["status"] != "inconclusive")]
    if trained.empty:
        return []
    known = references(trained)
    several = trained["setup"].nunique() > 1
    told = list(_repeatable(known, several))
    for (setup, system, scenario), part in known[known["faulted"]].groupby(["setup", "system", "scenario"], sort=False):
        told.append(f"{system} under {scenario}{_place(part, str(setup)) if several else ''}: {_outcome(part)}.")
    return [*told, *_overheads(known, several)]


def _overheads(known: pd.DataFrame, several: bool) -> Iterator[str]:
    """What a step costs after a failure, of all systems in one sentence: measured and simulated ones side by side."""
    went_on = known[known["faulted"] & (known["status"] != "failed")]
    for (setup, scenario), part in went_on.groupby(["setup", "scenario"], sort=False):
        told = {str(name): _overhead(own) for name, own in part.groupby("system", sort=False)}
        if sum(map(bool, told.values())) < 2 or part["overhead"].isna().all():
            continue
        each = ", ".join(f"{name} {text}" for name, text in told.items() if text)
        where = _place(part, str(setup)) if several else ""
        yield f"A step after {scenario}{where} takes longer than one before it by: {each}."


def _overhead(own: pd.DataFrame) -> str:
    """Of one system: its median, or its worst known trial where the others could make it another. Empty: no trial has
    one."""
    values, lacking = 100 * own["overhead"], int(own["overhead"].isna().sum())
    unknown = OVERHEAD.unknown_in(own)
    found = stats.estimate(values, unknown)
    if not found.n and not unknown:
        return ""
    if not found.n:
        told = f"not known in {lacking} of {plural(len(own), 'trial')}"
        known = stats.known(values)
        if not known.size:
            return f"({told})"
        where = "% in the other" if known.size == 1 else "% in the others"
        return f"({told}, {'at worst ' * (known.size > 1)}{number(known.max())} {where})"
    if found.n < 2 or found.low == found.high:
        return f"{number(found.median)} %{_known(values)}"
    what = "95 % interval" if found.n >= stats.MIN_BOOTSTRAP else "range"
    trials = f"{found.n} trials" if not lacking else f"known in {found.n} of {plural(len(own), 'trial')}"
    return f"{number(found.median)} % ({what} {number(found.low)} to {number(found.high)}, {trials})"


def _place(part: pd.DataFrame, setup: str) -> str:
    """Where on the axes the trials are, in parentheses; without axes, what ran."""
    points = part.iloc[0]["points"]
    return f" ({', '.join(f'{axis} {value}' for axis, value in points.items()) or setup})"


def _repeatable(known: pd.DataFrame, several: bool) -> Iterator[str]:
    """Whether healthy runs of a system agree with each other, without which no other run could be compared."""
    healthy = known[(known["scenario"] == "healthy") & known["weights"].notna()]
    for (setup, system), part in healthy.groupby(["setup", "system"], sort=False):
        if len(part) < 2:
            continue
        same = part["weights"].nunique() == 1 and part["losses"].nunique() == 1
        word = "are bit for bit the same in" if same else "DIFFER between"
        where = _place(part, str(setup)) if several else ""
        yield f"Without a failure, losses and weights of {system}{where} {word} its {len(part)} trials."


def _outcome(part: pd.DataFrame) -> str:
    stopped = int((part["status"] == "failed").sum())
    trials = plural(len(part), "trial")
    if stopped == len(part):
        lost = f" ({_usual_steps(part['steps_lost'])} lost)" if part["steps_lost"].notna().any() else ""
        late = part["error_after_ms"]
        when = f", {number(stats.median(late))} ms after the fault{_known(late)}" if late.notna().any() else ""
        return f"training ended with an error in each of {trials}{when}{lost}"
    some = f"; {stopped} of {trials} ended with an error" if stopped else ""
    return f"{_where(part)}{_steps(part)}, {_time(part)}{_again(part)}{_speed(part)}; {_bits(part)}{some}"


def _again(part: pd.DataFrame) -> str:
    """The parts of a restart from a checkpoint."""
    if part["restart_ms"].isna().all():
        return ""
    names = (("noticed_ms", "to notice"), ("restart_ms", "to start again"), ("reload_ms", "to read the checkpoint"))
    told = [f"{number(stats.median(part[column]) / 1e3)} s {what}" for column, what in names]
    steps = _usual_steps(part["steps_again"])
    return f": {', '.join(told)}, {number(stats.median(part['redo_ms']) / 1e3)} s to do {steps} again"


def _usual_steps(counted: "pd.Series[float]") -> str:
    """The median, which of an even number of trials may lie between two."""
    usual = stats.median(counted)
    return f"{number(usual)} {'step' if usual == 1 else 'steps'}"


def _known(values: "pd.Series[float]") -> str:
    """In how many of the trials it is known, in parentheses; empty: in all."""
    known = int(values.notna().sum())
    return f" (known in {known} of {plural(len(values), 'trial')})" if known < len(values) else ""


def _where(part: pd.DataFrame) -> str:
    known = part["in_backward"].dropna()
    unknown = f" ({len(part) - len(known)} not known)" if len(known) < len(part) else ""
    return (
        f"struck in mid-backward in {int(known.sum())} of {plural(len(known), 'trial')}{unknown}; "
        if len(known)
        else ""
    )


def _steps(part: pd.DataFrame) -> str:
    lost = part["steps_lost"]
    if lost.isna().all():
        return "steps lost not known"
    return f"{'no step' if lost.sum() == 0 else plural(int(lost.sum()), 'step')} lost"


def _time(part: pd.DataFrame) -> str:
    lost = part["lost_ms"]
    if lost.isna().all():
        return "time lost not known"
    # Less than the scatter of the steps; it can be negative.
    worst = f"worst {number(float(lost.max()) / 1e3)} s" if len(lost.dropna()) > 1 else ""
    seen = too_early(int(part["cost_goes_on"].sum()), int(part["to_be_repaired"].sum()))
    beside = "; ".join(filter(None, (worst, seen)))
    return f"{number(stats.median(lost) / 1e3)} s lost{f' ({beside})' if beside else ''}{_known(lost)}"


def _speed(part: pd.DataFrame) -> str:
    names = (
        ("before_tokens_s", "before"),
        ("during_tokens_s", "in the step that was hit"),
        (
            "after_tokens_s",
            "over all steps while it came and went" if part["comes_and_goes"].any() else "while it lasted",
        ),
        ("repaired_tokens_s", f"after the repair{_without_nic(part)}"),
    )
    told = [f"{number(stats.median(part[column]))} {when}" for column, when in names if part[column].notna().any()]
    return f", tokens per second: {', '.join(told)}" if told else ""


def _without_nic(part: pd.DataFrame) -> str:
    """`` (NIC not back in 2 of 3)``: in how many trials with a speed after the repair the NIC did not carry again."""
    known = part[part["repaired_tokens_s"].notna()]
    out, in_part = METRICS["return_ms"].not_known(known), known["back_in_part"].astype(bool)
    told = in_trials(int((out & ~in_part).sum()), int((out & in_part).sum()), len(known))
    return f" ({told})" if told else ""


def _bits(part: pd.DataFrame) -> str:
    if part["steps_differ"].isna().any():
        return "no run without failures to hold losses and weights against"
    steps, weights = int(part["steps_differ"].sum()), int(part["weights_differ"].sum())
    if not steps and not weights:
        if part["weights_differ"].isna().all():
            return "every loss is bit for bit that of the run without failures, and no trial has final weights"
        known = _known(part["weights_differ"])
        return f"every loss and the final weights{known} are bit for bit those of the run without failures"
    told = [f"{plural(steps, 'step')} with another loss"] * bool(steps)
    told += [f"{plural(weights, 'trial')} with other weights"] * bool(weights)
    return f"NOT those of the run without failures: {', '.join(told)}"
