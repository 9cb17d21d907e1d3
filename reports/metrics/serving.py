"""Serving: how long requests wait for their first token and for each one after it, by phase, and which ones were hurt.

*Before* are requests that had ended when the failure came, *during* those that it found under way, *after* all that
began since. The run without failures is the healthy trials of the same system and experiment: every answer must be the
same, token by token.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from reports import stats
from reports.metrics.metric import Metric
from reports.metrics.view import View
from reports.trial import Iteration

if TYPE_CHECKING:
    import pandas as pd

ONLY = ("serving",)
PHASES = {"before": ("before",), "during": ("hit",), "after": ("after", "repaired")}
TIMES = {"ttft": "from a request's arrival to its first token", "tpot": "for each token after the first"}


def _requests(view: View, phases: Iterable[str]) -> list[Iteration]:
    return [i for i in view.trial.iterations if i.phase in phases]


def _told(requests: Iterable[Iteration], name: str) -> list[float]:
    return [i.measures[name] for i in requests if name in i.measures]


def _percentile(name: str, phase: str, q: int, view: View) -> float | None:
    found = _told(_requests(view, PHASES[phase]), f"{name}_ms")
    return stats.percentile(found, q) if found else None


def _throughput(view: View) -> float | None:
    """Of all timed requests, from the first one's begin to the last one's end."""
    timed = [i for i in view.trial.iterations if i.phase != "warmup" and "tokens" in i.measures]
    if len(timed) < 2:
        return None
    span_ns = max(i.t_ns + i.duration_ns for i in timed) - min(i.t_ns for i in timed)
    return sum(i.measures["tokens"] for i in timed) / span_ns * 1e9


def _again(view: View) -> float | None:
    """Without those of the warm-up, which end before any failure."""
    return float(sum(again > 0 for again in _told(view.trial.iterations, "again")))


def _hurt(view: View) -> float | None:
    """Slower to the first token, or a token, than every request that had ended before."""
    before = _requests(view, PHASES["before"])
    worst = {name: max(_told(before, name), default=None) for name in ("ttft_ms", "tpot_ms")}
    if view.trial.fault is None or any(value is None for value in worst.values()):
        return None
    since = _requests(view, (*PHASES["during"], *PHASES["after"]))
    return float(sum(any(i.measures.get(name, 0.0) > most for name, most in worst.items() if most) for i in since))


def _within(first: str, last: str | None, view: View) -> float | None:
    """Whether the failure came between two moments of the request that it struck, or of another one under way."""
    fault = view.trial.fault
    hit = [i for i in _requests(view, PHASES["during"]) if "sent_until_ms" in i.measures]
    if fault is None or not hit:
        return None

    def holds(i: Iteration) -> bool:
        begin_ns = i.t_ns + 1e6 * i.measures[first]
        end_ns = i.t_ns + 1e6 * i.measures[last] if last else i.t_ns + i.duration_ns
        return begin_ns <= fault.t_before_ns and fault.t_after_ns <= end_ns

    return float(any(holds(i) for i in hit))


def answers(frame: "pd.DataFrame") -> "pd.Series":
    """Requests of each trial whose answer is not that of the first healthy trial of its system; NaN without one."""
    import pandas as pd

    keys = ["run", "setup", "system"]
    healthy = frame[(frame["scenario"] == "healthy") & (frame["status"] == "ok") & (frame["workload"] == "serving")]
    beside = frame.join(healthy.groupby(keys)[["answers"]].first().add_suffix("_healthy"), on=keys)

    def differing(row: "pd.Series") -> float:
        if (
            row["workload"] != "serving"
            or row["status"] == "inconclusive"
            or not isinstance(row["answers_healthy"], tuple)
        ):
            return float("nan")
        own, other = row["answers"], row["answers_healthy"]
        return float(abs(len(own) - len(other)) + sum(a != b for a, b in zip(own, other, strict=False)))

    return pd.Series([differing(row) for _, row in beside.iterrows()], index=frame.index, dtype=float)


def _latencies() -> Iterable[Metric]:
    when = {"before": "before the failure", "during": "under way when it came", "after": "begun after it"}
    for name, meaning in TIMES.items():
        for phase, told in when.items():
            for q in (50, 99):
                of: Callable[[View], float | None] = partial(_percentile, name, phase, q)
                yield Metric(
                    f"{phase}_{name}_p{q}_ms", "ms", "lower",
                    f"{meaning}: {q} of 100 requests {told} take at most this", of,
                    of="every trial" if phase == "before" else "some trials",
                    heading=f"{name.upper()} p{q} {phase}", short=f"{name.upper()} {phase}" if q == 99 else "",
                    workloads=ONLY,
                )  # fmt: skip


METRICS = (
    *_latencies(),
    Metric(
        "served_tokens_s", "tokens/s", "higher", "tokens answered a second, over the whole trial", _throughput,
        heading="throughput", workloads=ONLY,
    ),
    Metric(
        "requests_hurt", "requests", "lower", "requests since the failure that waited longer for their first token, or "
        "for each one, than any before it", _hurt, of="trials that went on", heading="hurt", workloads=ONLY,
    ),
    Metric(
        "requests_again", "requests", "lower", "requests of which something was done again", _again,
        aggregate="total", heading="done again", workloads=ONLY,
    ),
    Metric(
        "in_transfer", "trials", "higher", "trials whose failure came while a cache was sent",
        partial(_within, "sent_from_ms", "sent_until_ms"), aggregate="total", of="some trials", workloads=ONLY,
    ),
    Metric(
        "in_decode", "trials", "higher", "trials whose failure came while an answer was decoded",
        partial(_within, "sent_until_ms", None), aggregate="total", of="some trials", workloads=ONLY,
    ),
    Metric(
        "answers_differ", "requests", "lower", "requests whose answer is not token by token that of the run without "
        "failures", lambda view: None, aggregate="total", of="some trials", among=answers, heading="other answers",
        workloads=ONLY,
    ),
)  # fmt: skip
