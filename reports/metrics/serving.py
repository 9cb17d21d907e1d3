"""Serving: time to first token and time per later token, by phase, and the requests that the failure affected.

*Before* are requests that had ended when the failure came, *during* those in progress, *after* those that began later.
The healthy trials of the same system and experiment are the run without failures: every answer must be the same, token
by token.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from reports import stats
from reports.metrics.metric import NOT_COMPARED, Metric
from reports.metrics.view import View
from reports.trial import Iteration, Phase, Trial

if TYPE_CHECKING:
    import pandas as pd

ONLY = ("serving",)
PHASES = {"before": ("before",), "during": ("hit",), "after": ("after", "repaired")}
WHEN = {"before": "before the failure", "during": "under way when it came", "after": "that began after it"}
TIMES = {"ttft": "time from a request's arrival to its first token", "tpot": "time per token after the first"}
HURT = "2 requests"
"""What a comparison accepts. Requests queue, so that a busy moment hurts several: 3 to 9 and 1 to 9 of 9 in five
repeats each of two runs of one experiment. Of the other counts, which are totals of what must not be, one is too many.
An amount and no share, since a system may hurt none."""


class Request(NamedTuple):
    """One request of a trial."""

    phase: Phase
    measures: Mapping[str, float]
    t_ns: int
    until_ns: int


def _requests(view: View, phases: Iterable[str]) -> list[Iteration]:
    return [i for i in view.trial.iterations if i.phase in phases]


def _told(requests: Iterable[Iteration], name: str) -> list[float]:
    return [i.measures[name] for i in requests if name in i.measures]


def _percentile(name: str, phase: str, q: int, view: View) -> float | None:
    found = _told(_requests(view, PHASES[phase]), f"{name}_ms")
    return stats.percentile(found, q) if found else None


def _again(view: View) -> float | None:
    """How many requests had work repeated. Warm-up requests never count, since they end before any failure."""
    return float(sum(again > 0 for again in _told(view.trial.iterations, "again")))


def _within(first: str, last: str | None, lost: str, view: View) -> float | None:
    """Whether the failure came between two events of the request that it struck, or of another request in progress. If
    the transport gave up, both events happened again, and the measure `lost` says whether it struck between them."""
    fault = view.trial.fault
    hit = [i for i in _requests(view, PHASES["during"]) if {"sent_until_ms", lost} & set(i.measures)]
    if fault is None or not hit:
        return None

    def holds(i: Iteration) -> bool:
        if lost in i.measures:
            return i.measures[lost] > 0
        begin_ns = i.t_ns + 1e6 * i.measures[first]
        end_ns = i.t_ns + 1e6 * i.measures[last] if last else i.t_ns + i.duration_ns
        return begin_ns <= fault.t_before_ns and fault.t_after_ns <= end_ns

    return float(any(holds(i) for i in hit))


def requests(trial: Trial) -> dict[int, Request]:
    """The timed requests of a trial by number; empty if the trial serves none."""
    timed = [i for i in trial.iterations if i.phase != "warmup" and "answer" in i.measures]
    return {i.iteration: Request(i.phase, i.measures, i.t_ns, i.t_ns + i.duration_ns) for i in timed}


def lacks(iteration: Iteration) -> str:
    """The first measure that an answered request has and this one lacks; empty: none. Other iterations lack none."""
    told = iteration.measures
    needed = ["ttft_ms", "tpot_ms"] * ("answer" in told) + ["sent_from_ms"] * ("sent_until_ms" in told)
    return next((name for name in needed if name not in told), "")


Others = dict[int, Request]


def _beside_healthy(of: Callable[[Others, list[Others]], float | None], frame: "pd.DataFrame") -> "pd.Series":
    """Applies `of` to the requests of each trial and those of the other healthy trials of its system: those around it,
    of the same repeat, or, where there are none, all; NaN without any."""
    import pandas as pd

    values = {index: of(row["requests"], beside) if beside else None for index, row, beside in _beside(frame)}
    return pd.Series([values.get(index) for index in frame.index], index=frame.index, dtype=float)


def _beside(frame: "pd.DataFrame") -> "Iterator[tuple[Hashable, pd.Series, list[Others]]]":
    """Every conclusive trial that serves, with the requests of the healthy trials beside it."""
    keys = ["run", "setup", "system"]
    served = frame[frame["workload"] == "serving"]
    healthy = served[(served["scenario"] == "healthy") & (served["status"] == "ok")]
    around = {key: dict(group["requests"]) for key, group in healthy.groupby([*keys, "repeat"])}
    whole = {key: dict(group["requests"]) for key, group in healthy.groupby(keys)}
    for index, row in served[served["status"] != "inconclusive"].iterrows():
        key = tuple(row[keys])
        yield index, row, _but(index, around.get((*key, row["repeat"]), {})) or _but(index, whole.get(key, {}))


def _throughput(frame: "pd.DataFrame") -> "pd.Series":
    """Tokens of all timed requests, from the start of the first to the end of the last. Where some were not answered,
    the trial would have lasted as long as the healthy ones beside it; without these it is not known how long."""
    import pandas as pd

    values: dict[Hashable, float] = {}
    for index, row, beside in _beside(frame):
        own: Others = row["requests"]
        lasts_ns = _span_ns(own)
        if row["status"] == "failed" or any(each.keys() - own.keys() for each in beside):
            lasts_ns = max(lasts_ns, stats.mean(map(_span_ns, beside))) if beside else 0.0
        if lasts_ns:
            values[index] = sum(one.measures.get("tokens", 0.0) for one in own.values()) / lasts_ns * 1e9
    return pd.Series([values.get(index) for index in frame.index], index=frame.index, dtype=float)


def _span_ns(requests: Others) -> float:
    """From the start of the first to the end of the last; 0 if there are fewer than two."""
    if len(requests) < 2:
        return 0.0
    return float(max(one.until_ns for one in requests.values()) - min(one.t_ns for one in requests.values()))


def _but(index: Hashable, trials: dict[Hashable, Others]) -> list[Others]:
    """A trial compared with itself would show nothing."""
    return [requests for other, requests in trials.items() if other != index]


def _differing(own: Others, healthy: list[Others]) -> float:
    """Of the requests that both have answered; those without an answer are counted by `_unanswered`."""
    usual = healthy[0]
    both = own.keys() & usual.keys()
    return float(sum(own[number].measures["answer"] != usual[number].measures["answer"] for number in both))


def _unanswered(own: Others, healthy: list[Others]) -> float:
    return float(len(healthy[0].keys() - own.keys()))


def _over(name: str, phase: str, own: Others, healthy: list[Others]) -> float:
    """Requests come in bursts, so each is compared with itself in the healthy trials, by their mean."""
    ratios = []
    for number, one in own.items():
        usual = stats.mean(each[number].measures[name] for each in healthy if number in each)
        if one.phase in PHASES[phase] and usual > 0:
            ratios.append(one.measures[name] / usual - 1)
    return stats.median(ratios)


def _hurt(own: Others, healthy: list[Others]) -> float | None:
    """How many requests since the failure were slower, to the first token or per token, than every request of the
    healthy trials."""
    since = [one for one in own.values() if one.phase in (*PHASES["during"], *PHASES["after"])]
    if not since:
        return None
    names = ("ttft_ms", "tpot_ms")
    worst = {name: max(one.measures[name] for each in healthy for one in each.values()) for name in names}
    return float(sum(any(one.measures[name] > worst[name] for name in names) for one in since))


def _latencies() -> Iterable[Metric]:
    for name, meaning in TIMES.items():
        for phase, told in WHEN.items():
            for q in (50, 99):
                of: Callable[[View], float | None] = partial(_percentile, name, phase, q)
                yield Metric(
                    f"{phase}_{name}_p{q}_ms", "ms", "lower",
                    f"{meaning}: {q}th percentile of requests {told}", of,
                    of="every trial" if phase == "before" else "some trials", needs_fault=phase != "before",
                    heading=f"{name.upper()} p{q} {phase}", short=f"{name.upper()} {phase}" if q == 50 else "",
                    workloads=ONLY,
                )  # fmt: skip


METRICS = (
    *_latencies(),
    Metric(
        "served_tokens_s", "tokens/s", "higher", "tokens answered per second, over the whole trial; of one that "
        "left requests unanswered, over the time of the trials without failures around it (unknown without any)",
        lambda view: None, among=_throughput, heading="throughput", workloads=ONLY,
    ),
    Metric(
        "requests_hurt", "requests", "lower", "requests since the failure that waited longer for their first token, or "
        "for each one, than any of the run without failures", lambda view: None, of="some trials", needs_fault=True,
        among=partial(_beside_healthy, _hurt), heading="hurt, median", workloads=ONLY, tolerance=HURT,
    ),
    Metric(
        "requests_again", "requests", "lower", "requests for which some work was repeated", _again,
        aggregate="total", heading="done again", workloads=ONLY,
    ),
    Metric(
        "in_transfer", "trials", "higher", "trials whose failure came while a cache was sent",
        partial(_within, "sent_from_ms", "sent_until_ms", "lost_sending"),
        aggregate="total", of="some trials", needs_fault=True, workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "in_decode", "trials", "higher", "trials whose failure came while an answer was decoded",
        partial(_within, "sent_until_ms", None, "lost_decoding"),
        aggregate="total", of="some trials", needs_fault=True, workloads=ONLY, tolerance=NOT_COMPARED,
    ),
    Metric(
        "requests_unanswered", "requests", "lower", "requests that the run without failures has answered and this one "
        "has not", lambda view: None, aggregate="total", of="some trials",
        among=partial(_beside_healthy, _unanswered), heading="no answer", workloads=ONLY,
    ),
    Metric(
        "answers_differ", "requests", "lower", "answered requests whose answer differs in some token from that of the "
        "run without failures", lambda view: None, aggregate="total", of="some trials",
        among=partial(_beside_healthy, _differing), heading="other answers", on_any_network=True, workloads=ONLY,
    ),
    *(
        Metric(
            f"{phase}_{name}_over", "", "lower", f"{meaning}: increase of requests {WHEN[phase]} against the same ones "
            "in the trials without failures around it (median)", lambda view: None, of="some trials",
            needs_fault=phase != "before",
            among=partial(_beside_healthy, partial(_over, f"{name}_ms", phase)),
            heading=f"{name.upper()} {phase} over healthy", percent=True, workloads=ONLY, tolerance=NOT_COMPARED,
        )
        for name, meaning in TIMES.items()
        for phase in PHASES
    ),
)  # fmt: skip
