"""How long a host's traffic was down after a fault, from its NIC counters. Pure.

The counters are samples of cumulative bytes (every 10 ms or so, every millisecond around a fault); two samples give one
mean throughput. Recovery is the time from the fault's effect to the start of the first interval, after traffic stopped,
from which the host's other NICs send as fast as they do later. If they carry nothing later either, the system uses only
the struck NIC, and the host's return to its own speed counts. Of a host that only keeps connections alive later, no
time is told: its traffic does not come back.

A system that notices nothing may send on for a while and stop later, as gloo does when the next step needs the lost
link. Nothing sent for longer than the longest healthy iteration and the longest healthy pause together is the fault's
stop whenever it begins, up to the end of the next iteration. A pause that is only longer than every healthy iteration
may be the fault's or another's: that pause's end is told as the most.

Healthy traffic pauses, too. Where samples are close before the fault as well, only a pause that is longer than each of
those is a stop; without one the time is 0, and the longest pause after the effect says what 0 may hide. Without such
samples the mean of 10 ms alone tells. It cannot tell a stop shorter than 10 ms, nor a usual pause from a stop, so the
time is then anything from 0 to what it tells, or to 10 ms (docs/decisions/50).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reports.effect import BASELINE_NS
from reports.stats import Floats

RECOVERED = 0.8
"""Share of the later throughput at which traffic counts as recovered."""
STEADY_NS = 10_000_000
"""How long traffic must stay at that level."""
RESOLUTION_NS = 1_000_000
"""The closest that samples are taken; no time is known better."""
ON_ITS_WAY_NS = 10_000_000
"""How long after a fault a host sends on what had been ready by then: 8 ms at 16 MiB in a black hole. A later pause is
another one, such as that between the phases of a collective."""
SENDS = 0.05
"""Share of the later throughput below which nothing is sent: in stalls of black holes, probes and acknowledgements came
to 0.003 of it at most."""
LEAST_BASELINE_NS = 200_000_000
"""Healthy traffic for less than that does not tell."""
MIN_SAMPLES = 5
"""Fewer samples of the iterations after the hit one do not tell how fast the host sends then. Nor do fewer of a hit one
that is long enough for means."""

NEAR_SAMPLES = 11
"""How many samples tell how close samples are at a time."""


@dataclass(frozen=True)
class Recovery:
    """How long traffic was down, in ns."""

    took_ns: float
    """0: it did not stop, or not for longer than it pauses anyway."""
    most_ns: float
    """What it is at most: if it is 0, the same if the longest pause right after the effect was a stop, and slow traffic
    was slow for the failure."""
    by_mean: bool = False
    """Which pauses are usual is not known: the mean alone told, and the time may be anything from 0 to the most."""


def by_then(frame: pd.DataFrame) -> "pd.Series[float]":
    """By when the traffic of each trial (`reports.measures.trial_frame`) was back for sure, in ms: without a stop, or
    where the mean alone tells, the most that it may have taken."""
    took = frame["recover_ms"]
    return took.mask(took.notna() & ((took == 0) | frame["by_mean"]), frame["recover_most_ms"].fillna(took))


def throughput(samples: pd.DataFrame, column: str = "tx_bytes") -> pd.DataFrame:
    """Bits per second between samples: columns host, nic, start_ns, end_ns, bit_s, up."""
    ordered = samples.sort_values(["host", "nic", "t_ns"], kind="stable", ignore_index=True)
    # The first sample of a NIC has no predecessor. Comparing neighbouring rows takes a tenth of the time of grouping.
    same = pd.Series(True, index=ordered.index)
    for name in ("host", "nic"):
        codes, _ = pd.factorize(ordered[name])
        same &= np.diff(codes, prepend=-1) == 0
    lasted, moved = ordered["t_ns"].diff(), ordered[column].diff()
    # A counter that decreases (a NIC that was recreated) gives no rate for that interval.
    known = same & (lasted > 0) & (moved >= 0)
    rates = pd.DataFrame(
        {
            "host": ordered["host"],
            "nic": ordered["nic"],
            "start_ns": ordered["t_ns"].shift(fill_value=0),
            "end_ns": ordered["t_ns"],
            "bit_s": 8e9 * moved / lasted,
            "up": ordered["up"],
        }
    )
    return rates[known].reset_index(drop=True)


def host_total(rates: pd.DataFrame, host: str) -> tuple[Floats, Floats, Floats]:
    """Starts and ends (ns) of the sampling intervals of `host`, and its NICs' summed bits per second."""
    own = rates[rates["host"] == host]
    table = own.groupby("end_ns").agg({"bit_s": "sum", "start_ns": "min"})
    ends = table.index.to_numpy(dtype=np.float64)
    return table["start_ns"].to_numpy(np.float64), ends, table["bit_s"].to_numpy(np.float64)


def without(rates: pd.DataFrame, nic: str) -> pd.DataFrame:
    """The rates of a host's NICs other than `nic`; those of all if it has no other.

    What they carry is what the failure left. The struck NIC counts for nothing, since one that flaps carries again and
    again, and with it the host is faster later than it can be while the NIC is gone.
    """
    others = rates[rates["nic"] != nic]
    return rates if others.empty else others


def effect_ns(rates: pd.DataFrame, host: str, nic: str, window: tuple[int, int]) -> float:
    """When the fault took effect, within the `window` of its injection: once the struck NIC sent nothing more.

    The end of the window if the NIC has no counters or still sends.
    """
    own = rates[(rates["host"] == host) & (rates["nic"] == nic)]
    if own.empty:
        return float(window[1])
    sent = own[(own["bit_s"] > 0) & (own["start_ns"] < window[1])]
    return float(np.clip(sent["end_ns"].max(), *window)) if len(sent) else float(window[0])


def recovery(
    rates: pd.DataFrame,
    host: str,
    nic: str,
    fault_ns: float,
    hit_end_ns: int,
    after: tuple[int, int],
    healthy: Sequence[tuple[float, float]] = (),
    warmup: Sequence[tuple[float, float]] = (),
    next_end_ns: float = 0.0,
) -> Recovery | None:
    """Time from `fault_ns`, when the fault of `nic` took effect, until traffic on the other NICs of `host` has
    recovered, or that of the host if only `nic` is in use; None if the counters do not tell.

    `after` spans the iterations after the hit one, `healthy` each timed one that began before the fault. Traffic must
    return to their throughput and keep it in the mean of `STEADY_NS`, so a burst between two close samples does not
    count; nor does what was still on its way when the fault came, nor a stop as short as the pauses of healthy traffic.
    Where the timed iterations are too few to tell these, those of the `warmup`, whose pauses may be longer, count too.
    A stop that begins later is looked for until `next_end_ns`, when the iteration after the hit one ended.
    """
    rates = rates[rates["host"] == host]
    if _is_left(host_total(rates, host), fault_ns, after, healthy):
        return None
    others_carry = _others_carry(rates, nic, after)
    sent = host_total(without(rates, nic) if others_carry else rates, host)
    enough = _enough(rates, nic, sent, others_carry, (fault_ns, hit_end_ns), after)
    if enough is None:
        return None
    is_short = _is_short((fault_ns, hit_end_ns))
    took_ns = 0.0 if is_short else _by_means(rates, nic, sent, enough, fault_ns, hit_end_ns)
    if took_ns is None:
        return None
    starts, ends, total = sent
    sends = total >= SENDS * enough
    usual_ns = _usual_pause_ns(starts, ends, sends, fault_ns, healthy)
    if usual_ns is None:
        usual_ns = _usual_pause_ns(starts, ends, sends, fault_ns, [*warmup, *healthy])
    late = _late_pause(starts, ends, sends, (fault_ns, max(next_end_ns, hit_end_ns)), healthy)
    one_loss = late is None or not _came_or_went(rates, nic, (fault_ns, late.end_ns))
    if usual_ns is None:
        most_ns = hit_end_ns - fault_ns if is_short else max(took_ns, STEADY_NS)
        return _with_late(Recovery(took_ns, most_ns, by_mean=True), late, fault_ns, one_loss)
    pauses = _pauses(starts, ends, sends, (fault_ns, float(hit_end_ns)))
    until_ns = fault_ns + max(ON_ITS_WAY_NS, took_ns)
    near = [pause for pause in pauses if pause.begin_ns <= until_ns]
    found = _by_pauses(near, usual_ns, took_ns, fault_ns, is_short)
    return _with_late(found, late, fault_ns, one_loss)


@dataclass(frozen=True)
class _Pause:
    """From the end of the last sample that shows traffic to the start of the next; at most from the one's start to the
    other's end, since traffic stopped and returned somewhere within them."""

    begin_ns: float
    end_ns: float
    first_ns: float
    last_ns: float
    is_last: bool
    """Whether nothing was sent afterwards."""

    @property
    def lasted_ns(self) -> float:
        return self.end_ns - self.begin_ns

    @property
    def most_ns(self) -> float:
        return self.last_ns - self.first_ns


def _pauses(
    starts: Floats,
    ends: Floats,
    sends: NDArray[np.bool_],
    span: tuple[float, float],
    wide: NDArray[np.bool_] | None = None,
) -> list[_Pause]:
    """Every pause within `span`, at its ends and between two samples that show traffic as well; no part of a sample
    that is `wide` is taken for a pause beside it."""
    low, high = span
    at = np.flatnonzero(sends & (ends > low) & (starts < high))
    wide = np.zeros(starts.size, dtype=np.bool_) if wide is None else wide
    earliest, latest = np.where(wide, ends, starts)[at], np.where(wide, starts, ends)[at]
    firsts, begins = np.clip(([low, *earliest], [low, *ends[at]]), low, high)
    finals, lasts = np.clip(([*starts[at], high], [*latest, high]), low, high)
    return [
        _Pause(float(begins[i]), float(finals[i]), float(firsts[i]), float(lasts[i]), is_last=i == at.size)
        for i in range(at.size + 1)
    ]


@dataclass(frozen=True)
class _Late:
    """A pause that begins before the next iteration ends, and is surely longer than every healthy iteration."""

    is_sure: bool
    """It is the fault's beyond doubt: longer than the longest healthy iteration and the longest healthy pause."""
    first_end_ns: float
    """The end of the first that is sure, or of the first."""
    end_ns: float
    last_ns: float
    """When the last of all such pauses was over for sure."""


def _late_pause(
    starts: Floats,
    ends: Floats,
    sends: NDArray[np.bool_],
    span: tuple[float, float],
    healthy: Sequence[tuple[float, float]],
) -> _Late | None:
    """The last pause that begins in `span` and is surely longer than the longest iteration that was over before it and
    the longest pause since the first of them together; without one, the last that is longer than each of those
    iterations."""
    over_ns = [end - begin for begin, end in healthy if end <= span[0]]
    if not over_ns:
        return None
    before = _pauses(starts, ends, sends, (min(begin for begin, _ in healthy), span[0]), _wide(starts, ends))
    later = _pauses(starts, ends, sends, (span[0], float(ends[-1])))  # a stop may outlast the iteration
    longer = [one for one in later if one.begin_ns < span[1] and one.lasted_ns > max(over_ns) and not one.is_last]
    if not longer:
        return None
    sure = [one for one in longer if one.lasted_ns > max(over_ns) + max(pause.most_ns for pause in before)]
    return _Late(bool(sure), (sure or longer)[0].end_ns, (sure or longer)[-1].end_ns, longer[-1].last_ns)


def _wide(starts: Floats, ends: Floats) -> NDArray[np.bool_]:
    """Which intervals are longer than usable ones where samples are close otherwise: the sampler had to wait. One that
    carried traffic does not say that any part of it was a pause."""
    lasted = pd.Series(ends - starts)
    usual = lasted.rolling(NEAR_SAMPLES, center=True, min_periods=1).median()
    found: NDArray[np.bool_] = ((lasted > 2 * RESOLUTION_NS) & (usual <= 2 * RESOLUTION_NS)).to_numpy(np.bool_)
    return found


def _with_late(found: Recovery, late: _Late | None, fault_ns: float, one_loss: bool) -> Recovery:
    """`found`, and what a later stop says: of one that is not the fault's beyond doubt, only that the time may have
    been as long. Where a stop was found before, none is unless both are of `one_loss`."""
    if late is None:
        return found
    most_ns = max(found.most_ns, late.last_ns - fault_ns)
    if late.is_sure and (found.took_ns == 0 or one_loss):
        took_ns = max(found.took_ns, (late.end_ns if one_loss else late.first_end_ns) - fault_ns)
        return Recovery(took_ns, late.last_ns - fault_ns if found.took_ns == 0 else most_ns)
    return replace(found, most_ns=most_ns)


def _usual_pause_ns(
    starts: Floats, ends: Floats, sends: NDArray[np.bool_], fault_ns: float, healthy: Sequence[tuple[float, float]]
) -> float | None:
    """The longest pause within the `healthy` iterations shortly before the fault; None if it was not sampled closely
    enough to tell."""
    from_ns = fault_ns - BASELINE_NS
    spans = [(max(begin, from_ns), min(end, fault_ns)) for begin, end in healthy]
    spans = [(begin, end) for begin, end in spans if begin < end]
    seen_ns = sum(end - begin for begin, end in spans)
    taken = sum(int(((starts >= begin) & (ends <= end)).sum()) for begin, end in spans)
    if seen_ns < LEAST_BASELINE_NS or taken * 2 * RESOLUTION_NS < seen_ns:
        return None
    return max(pause.most_ns for span in spans for pause in _pauses(starts, ends, sends, span))


def _by_pauses(near: Sequence[_Pause], usual_ns: float, took_ns: float, fault_ns: float, is_short: bool) -> Recovery:
    """What the pauses after the effect, and while the mean was low, say beside the time by means.

    A pause that is not unusually long is no stop, and traffic is not back before the end of one that is. Where nothing
    follows a stop, the means tell whether the host was done; where the hit iteration `is_short`, too short for means,
    either may be true. Without a stop, traffic that was slow for a while may have been so for the failure, or as at
    other times.
    """
    stops = [pause for pause in near if pause.lasted_ns > usual_ns]
    back = [pause for pause in stops if not pause.is_last]
    if stops:
        took_ns = max([took_ns, *(pause.end_ns - fault_ns for pause in back)])
        return Recovery(took_ns, max([took_ns, *(pause.last_ns - fault_ns for pause in (stops if is_short else back))]))
    longest = max(near, key=lambda pause: (pause.lasted_ns, pause.most_ns))
    return Recovery(0.0, max(took_ns, longest.last_ns - fault_ns if longest.lasted_ns > 0 else longest.most_ns))


def _enough(
    rates: pd.DataFrame,
    nic: str,
    sent: tuple[Floats, Floats, Floats],
    others_carry: bool,
    hit: tuple[float, int],
    after: tuple[int, int],
) -> float | None:
    """The throughput at which traffic counts as recovered; None if the counters do not tell."""
    starts, ends, _ = sent
    inside = (starts >= after[0]) & (ends <= after[1])
    seen = ((ends > hit[0]) & (ends <= hit[1])).sum() >= MIN_SAMPLES
    if not (seen or _is_short(hit)) or inside.sum() < MIN_SAMPLES:
        return None
    later = np.arange(after[0], after[1] - STEADY_NS + 1, RESOLUTION_NS, dtype=np.float64)
    if not rates[rates["nic"] != nic].empty:
        later = later[_alike(rates, nic, later, hit, up=not others_carry)]
    if later.size * RESOLUTION_NS < STEADY_NS:
        return None
    # The upper quartile, because the line is idle between iterations, and idle time is no measure of its speed.
    enough = RECOVERED * float(np.percentile(_mean_rate(*sent)(later), 75))
    # Any time is as fast as nothing at all.
    return enough if enough > 0 else None


def _is_short(hit: tuple[float, int]) -> bool:
    """Whether a pause and what shows in the mean that it is over do not fit into the hit iteration.

    Were such trials left out, those would be left in which something else stopped traffic for long enough.
    """
    return hit[1] - hit[0] < 2 * STEADY_NS


def _by_means(
    rates: pd.DataFrame,
    nic: str,
    sent: tuple[Floats, Floats, Floats],
    enough: float,
    fault_ns: float,
    hit_end_ns: int,
) -> float | None:
    """When the mean of `STEADY_NS` was `enough` again: 0 if it did not fall; None if the counters do not tell."""
    starts, ends, total = sent
    steady = _mean_rate(*sent)(starts) >= enough
    since = (starts >= fault_ns) & (starts + STEADY_NS <= hit_end_ns)
    slow = since & ~steady
    if not since.any():
        return None
    if not slow.any() or starts[slow][0] > fault_ns + ON_ITS_WAY_NS:
        return 0.0
    stopped = starts[slow][0]
    back = since & steady & (starts > stopped)
    if not back.any():
        sends = (ends <= hit_end_ns) & (total >= SENDS * enough)
        # A host that sent on and then nothing more in this iteration had no more to send.
        if (since & steady).any() and not (sends & (starts >= stopped + STEADY_NS)).any():
            return 0.0
        return _without_return(starts[sends], ends[sends], fault_ns, hit_end_ns)
    first = starts[back][0]
    fast = np.flatnonzero((starts >= first) & (starts < first + STEADY_NS) & (total >= enough))
    at = int(fast[0]) if fast.size else int(np.flatnonzero(back)[0])
    later_ns = _silent_until(starts, ends, total >= SENDS * enough, (starts[at], hit_end_ns))
    if later_ns is not None and not _came_or_went(rates, nic, (fault_ns, later_ns)):
        return later_ns - fault_ns
    took = float(starts[at] - fault_ns)
    return took if took >= max(RESOLUTION_NS, ends[at - 1] - starts[at - 1]) else 0.0


def _came_or_went(rates: pd.DataFrame, nic: str, span: tuple[float, float]) -> bool:
    """Whether the link of `nic` was both up and down in `span`, so that a stop there may be that of another loss."""
    own = rates[rates["nic"] == nic]
    return bool(own.loc[(own["end_ns"] > span[0]) & (own["start_ns"] < span[1]), "up"].nunique() > 1)


def _mean_rate(starts: Floats, ends: Floats, total: Floats) -> Callable[[Floats], Floats]:
    """Returns the mean bits per second over the `STEADY_NS` from each of some times, however close its samples are.

    Single samples would not do: those of a millisecond are as fast as bursts, and there are ten of them for one of
    10 ms.
    """
    moved = np.cumsum(total * (ends - starts))

    def mean(from_ns: Floats) -> Floats:
        return (np.interp(from_ns + STEADY_NS, ends, moved) - np.interp(from_ns, ends, moved)) / STEADY_NS

    return mean


def _others_carry(rates: pd.DataFrame, nic: str, after: tuple[int, int]) -> bool:
    """Whether the host's other NICs carry traffic in the span `after`. Those of a system that uses only `nic` carry
    neighbour discovery and the like, and their speed is none that traffic could return to."""
    inside = rates[(rates["start_ns"] >= after[0]) & (rates["end_ns"] <= after[1])]
    moved = inside["bit_s"] * (inside["end_ns"] - inside["start_ns"])
    return bool(moved[inside["nic"] != nic].sum() >= SENDS * moved.sum())


def _is_left(
    sent: tuple[Floats, Floats, Floats],
    fault_ns: float,
    after: tuple[int, int],
    healthy: Sequence[tuple[float, float]],
) -> bool:
    """Whether the host sends only keep-alives in the span `after`, because the system goes on without it, as one that
    answers alone. It sent 0.005 of its `healthy` speed then, and 0.4 or more where it was still in use."""
    spans = [(begin, min(end, fault_ns)) for begin, end in healthy if begin < fault_ns]
    return bool(spans) and _mean_over(*sent, [after]) < SENDS * _mean_over(*sent, spans)


def _mean_over(starts: Floats, ends: Floats, total: Floats, spans: Sequence[tuple[float, float]]) -> float:
    """Bits per second over `spans`, those of intervals that lie within one."""
    inside = np.any([(starts >= begin) & (ends <= end) for begin, end in spans], axis=0)
    lasted = (ends - starts)[inside]
    return float((total[inside] * lasted).sum() / lasted.sum()) if lasted.size else 0.0


def _alike(rates: pd.DataFrame, nic: str, from_ns: Floats, hit: tuple[float, float], up: bool) -> NDArray[np.bool_]:
    """Whether the struck NIC was down throughout the `STEADY_NS` from each time (`up`: carried throughout), if it was
    down in the iteration that was `hit` at all. While a NIC that flaps is up, the others may send faster than they can
    without it; while it is down, a system that uses no other sends nothing."""
    own = rates[rates["nic"] == nic].sort_values("end_ns")
    was_up, ends = own["up"].to_numpy(dtype=np.bool_), own["end_ns"].to_numpy(np.float64)
    if not (~was_up & (ends > hit[0]) & (ends <= hit[1])).any():
        return np.ones(from_ns.size, dtype=np.bool_)
    unlike = ~was_up if up else was_up
    # At either end of an interval: a sample tells only what holds when it is taken.
    unlike_at_times = np.cumsum(unlike | np.concatenate(([True], unlike[:-1])))
    first = np.searchsorted(ends, from_ns, "right")
    last = np.searchsorted(ends, from_ns + STEADY_NS, "left")
    before = np.concatenate(([0], unlike_at_times))
    alike: NDArray[np.bool_] = before[np.minimum(last, ends.size - 1) + 1] == before[first]
    return alike & (last < ends.size)


def _silent_until(starts: Floats, ends: Floats, sends: NDArray[np.bool_], span: tuple[float, float]) -> float | None:
    """When the host sent again after the last long silence in `span`; None if there is none.

    A host may send bursts of what was ready before it stops for the failure itself, which a black hole lets it notice
    late. If its NIC came and went meanwhile, a later silence may be that of another loss, so that nothing is concluded.
    """
    at = np.flatnonzero(sends & (starts >= span[0]) & (ends <= span[1]))
    gaps = starts[at[1:]] - ends[at[:-1]]
    long = np.flatnonzero(gaps >= 2 * STEADY_NS)
    return float(starts[at[1:]][long[-1]]) if long.size else None


def _without_return(starts: Floats, ends: Floats, fault_ns: float, hit_end_ns: int) -> float | None:
    """The time until traffic was back if it did not reach its later speed again before the hit iteration ended.

    `starts` and `ends` are those of the intervals in which anything was sent. A host that sent nothing was down for the
    rest of the iteration, and one whose pause left less than `STEADY_NS` of it was down until then. Of one that went on
    more slowly, it is not known.
    """
    resumed = starts[starts >= fault_ns + ON_ITS_WAY_NS]
    if not resumed.size:
        return float(hit_end_ns - fault_ns)
    paused_ns = max([fault_ns, *ends[starts < fault_ns + ON_ITS_WAY_NS]])
    paused = resumed[0] - paused_ns >= STEADY_NS and hit_end_ns - resumed[0] < STEADY_NS
    return float(resumed[0] - fault_ns) if paused else None
