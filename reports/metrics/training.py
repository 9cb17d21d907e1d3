"""Training: throughput, and whether losses and weights equal those of the run without failures.

The run without failures is the healthy trials of the same system and experiment: with one seed and a fixed order of
reduction, they must agree to the last bit.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING

from reports import stats
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import IF_HIT, ONCE_HEALED, View
from reports.trial import Iteration, Phase, Trial

if TYPE_CHECKING:
    import pandas as pd

ONLY = ("training",)


def _rate(phase: Phase) -> Callable[[View], float | None]:
    """Tokens per second of the median step, or over all steps where the fault comes and goes (`View.usual_ns`)."""

    def rate(view: View) -> float | None:
        items = [i for i in view.in_phase(phase) if "tokens" in i.measures]
        usual_ns = view.usual_ns(phase)
        return stats.median(i.measures["tokens"] for i in items) / usual_ns * 1e9 if items and usual_ns > 0 else None

    return rate


def _overhead(view: View) -> float | None:
    """By the medians of one trial, so that a slower machine in another trial does not count."""
    healthy_ns = view.healthy_ns
    if view.disturbed_slowdown:
        return None
    return view.usual_ns("after") / healthy_ns - 1 if healthy_ns > 0 else None


def _last_loss(view: View) -> float | None:
    losses = [i.measures["loss"] for i in view.trial.iterations if "loss" in i.measures]
    return losses[-1] if losses else None


def steps_of(trial: Trial) -> list[Iteration]:
    """The timed steps of a trial that told their loss; none if it trains nothing."""
    return [i for i in trial.iterations if i.phase != "warmup" and "loss" in i.measures]


_CONFIGURED = ["setup", "system"]
_KEYS = ["run", *_CONFIGURED]


def references(frame: "pd.DataFrame") -> "pd.DataFrame":
    """By training trial: `steps_healthy`, `losses_healthy` and `weights_healthy` of the first healthy trial of its
    system."""
    first = _healthy(frame).groupby(_KEYS)[["steps", "losses", "weights"]].first()
    return frame.join(first.add_suffix("_healthy"), on=_KEYS)


def _healthy(frame: "pd.DataFrame") -> "pd.DataFrame":
    return frame[(frame["scenario"] == "healthy") & (frame["status"] == "ok") & frame["weights"].notna()]


def _differing(row: "pd.Series") -> float:
    """Of the steps that both have done: what was not done is lost, and has no loss that could be another one."""
    own, other = (dict(zip(row[f"steps{end}"], row[f"losses{end}"], strict=True)) for end in ("", "_healthy"))
    return float(sum(loss != other[step] for step, loss in own.items() if step in other))


def _lost(row: "pd.Series") -> float:
    return float(len(set(row["steps_healthy"]) - set(row["steps"])))


def _has_other_weights(row: "pd.Series") -> float:
    """Unknown of a trial that ended before it could tell its final weights."""
    return float(row["weights"] != row["weights_healthy"]) if isinstance(row["weights"], str) else float("nan")


def _of_those_told(frame: "pd.DataFrame", of: "Callable[[pd.Series], float]") -> "pd.Series":
    """Applies `of` to every conclusive training trial that has another, without failures, to compare with."""
    import pandas as pd

    beside = references(frame)
    told = (beside["workload"] == "training") & (beside["status"] != "inconclusive") & beside["weights_healthy"].notna()
    told &= ~frame.index.isin(_healthy(frame).groupby(_KEYS).head(1).index)  # it would be compared with itself
    values = [of(row) if known else float("nan") for known, (_, row) in zip(told, beside.iterrows(), strict=True)]
    return pd.Series(values, index=frame.index, dtype=float)


def _steps_differ(frame: "pd.DataFrame") -> "pd.Series":
    return _of_those_told(frame, _differing)


def _steps_lost(frame: "pd.DataFrame") -> "pd.Series":
    return _of_those_told(frame, _lost)


def _weights_differ(frame: "pd.DataFrame") -> "pd.Series":
    return _of_those_told(frame, _has_other_weights)


def held_against(base: "pd.DataFrame", new: "pd.DataFrame") -> "tuple[pd.DataFrame, pd.DataFrame]":
    """Two runs of one experiment with `weights_differ` of healthy trials held against those of `base`: what changed all
    trials of a run alike is in none of them beside the others. A system whose healthy trials in `base` are not the same
    has nothing to hold others against."""
    known = _agreed(base)
    return _against(base, known), _against(new, known)


def not_held(base: "pd.DataFrame", new: "pd.DataFrame") -> dict[str, str]:
    """By system, why `held_against` holds the weights of some of its healthy trials in `new` against none."""
    theirs, known = _healthy(base).groupby(_CONFIGURED).groups, _agreed(base)
    lacking = (key for key in _healthy(new).groupby(_CONFIGURED).groups if key not in known)
    return {
        str(key[1]): "those of BASE are not the same in all trials" if key in theirs else "BASE has none"
        for key in lacking
        if isinstance(key, tuple)
    }


def have_weights(frame: "pd.DataFrame") -> bool:
    """Whether there are healthy trials with final weights."""
    return not _healthy(frame).empty


def _agreed(base: "pd.DataFrame") -> "dict[Hashable, str]":
    """The weights of the healthy trials of each system for which they are all the same."""
    groups = _healthy(base).groupby(_CONFIGURED)["weights"]
    return {key: weights.iloc[0] for key, weights in groups if weights.nunique() == 1}


def _against(frame: "pd.DataFrame", known: "Mapping[Hashable, str]") -> "pd.DataFrame":
    held = frame.copy()
    for key, part in _healthy(frame).groupby(_CONFIGURED):
        if key in known:
            held.loc[part.index, "weights_differ"] = (part["weights"] != known[key]).astype(float)
    return held


def _in_backward(view: View) -> float | None:
    """Whether the fault came after the longest forward pass of the hit step."""
    hit, fault = [i for i in view.trial.iterations if i.phase == "hit"], view.trial.fault
    if fault is None or not hit or "forward_ms" not in hit[0].measures:
        return None
    begins_ns = hit[0].t_ns + hit[0].measures["forward_ms"] * 1e6
    return float(begins_ns <= fault.t_before_ns and fault.t_after_ns <= hit[0].t_ns + hit[0].duration_ns)


def _of_hit(name: str) -> Callable[[View], float | None]:
    """A value that the hit step itself reported."""
    return lambda view: next((i.measures[name] for i in view.in_phase("hit") if name in i.measures), None)


def _noticed(view: View) -> float | None:
    """The ranks report their failure relative to the start of their step."""
    hit, fault, failed = view.in_phase("hit"), view.trial.fault, _of_hit("failed_after_ms")(view)
    return None if fault is None or failed is None else failed + (hit[0].t_ns - fault.t_before_ns) / 1e6


METRICS = (
    Metric(
        "before_tokens_s", "tokens/s", "higher", "tokens (bytes) trained per second, healthy (median step)",
        _rate("before"), heading="healthy", short="before", workloads=ONLY,
    ),
    Metric(
        "during_tokens_s", "tokens/s", "higher",
        f"tokens (bytes) trained per second in the step that the fault hits ({IF_HIT})",
        _rate("hit"), of="trials that went on", heading="hit", workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "after_tokens_s", "tokens/s", "higher", "tokens (bytes) trained per second after the fault, before its repair; "
        "of one that comes and goes, over all steps from the first that is hit until the repair", _rate("after"),
        of="trials that went on", heading="after", short="after", workloads=ONLY,
    ),
    Metric(
        "repaired_tokens_s", "tokens/s", "higher", f"tokens (bytes) trained per second {ONCE_HEALED}",
        _rate("repaired"), of="some trials that went on", heading="repaired", workloads=ONLY,
    ),
    Metric(
        "overhead", "", "lower", "how much longer a step after the fault takes than one before it", _overhead,
        of="trials that went on", heading="overhead", percent=True, workloads=ONLY, against_healthy=True,
        by_medians=True, tolerance=NOT_COMPARED,
    ),
    Metric(
        "in_backward", "trials", "higher", "trials whose fault came in mid-backward, after every rank's forward",
        _in_backward, aggregate="total", of="trials that went on", workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "last_loss", "nats", "lower", "loss of the last step", _last_loss, heading="last loss", workloads=ONLY,
        tolerance=NOT_COMPARED,
    ),
    Metric(
        "steps_lost", "steps", "lower", "steps that the run without failures has and this one has not",
        lambda view: None, aggregate="total", of="some trials", among=_steps_lost, heading="steps lost",
        workloads=ONLY,
    ),
    Metric(
        "steps_differ", "steps", "lower", "steps that were done and whose loss is not bit for bit that of the run "
        "without failures",
        lambda view: None, aggregate="total", of="some trials", among=_steps_differ, heading="other losses",
        on_any_network=True, workloads=ONLY,
    ),
    Metric(
        "weights_differ", "trials", "lower",
        "trials whose final weights are not bit for bit those of the run without failures (unknown without any)",
        lambda view: None, aggregate="total", of="some trials", among=_weights_differ, heading="other weights",
        on_any_network=True, workloads=ONLY,
    ),
    Metric(
        "noticed_ms", "ms", "lower", "from the fault until the ranks to be restarted have failed", _noticed,
        of="some trials", needs_fault=True, workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "restart_ms", "ms", "lower", "from the ranks' failure until all of them have met again", _of_hit("restart_ms"),
        of="some trials", needs_fault=True, heading="restart", workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "reload_ms", "ms", "lower", "time to read the checkpoint", _of_hit("reload_ms"), of="some trials",
        needs_fault=True,
        workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "redo_ms", "ms", "lower", "time to repeat the steps since the checkpoint", _of_hit("redo_ms"),
        of="some trials", needs_fault=True, workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "steps_again", "steps", "lower", "steps that are repeated", _of_hit("steps_again"), of="some trials",
        needs_fault=True,
        heading="done again", workloads=ONLY, tolerance=NOT_COMPARED,
    ),
)  # fmt: skip
