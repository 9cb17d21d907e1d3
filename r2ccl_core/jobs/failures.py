"""Failures of NICs, links and switches over time, drawn with a seed: rates with their sources, bursts, repair.

Days differ: if a source shows bursts, a day's rate is gamma-distributed, so counts are negative binomial. Alternatively
the days come from a trace of link failures, starting at a random day, scaled to the cluster's number of NICs.
"""

import csv
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Literal

from r2ccl_core.errors import UsageError

Kind = Literal["nic", "flap", "switch"]

HOURS = 24.0
REPAIR_H = (1.0, 24.0)
"""Hours until a NIC, cable or switch is repaired, uniform in the logarithm: an assumption, not published."""
FLAP_S = (2.0, 5.0, 15.0)
"""The minimum, median and maximum duration of a flap."""
HOSTS_PER_SWITCH = 16
"""Hosts whose NICs of one rail share one leaf switch."""


@dataclass(frozen=True)
class Rates:
    """Failures per 1000 days of one NIC (lost until repaired, or a flap) and of one leaf switch.

    ``burst`` is the k of the negative binomial distribution of a day's number; None: Poisson.
    """

    name: str
    nic: float
    flap: float
    switch: float
    source: str
    burst: float | None = None

    def __post_init__(self) -> None:
        if min(self.nic, self.flap, self.switch) < 0 or (self.burst is not None and self.burst <= 0):
            raise UsageError(f"rates {self.name}: none may be negative, and a burst must be more than 0")


PRESETS = {
    one.name: one
    for one in (
        Rates("hpn", 0.019, 0.0, 0.017, "Alibaba HPN, SIGCOMM '24: 0.057 % of links, 0.051 % of switches a month"),
        Rates("llama3", 0.048, 0.0, 0.0, "Llama 3, 16,384 GPUs, 54 days: 42 interruptions by NICs, cables, switches"),
        Rates("fire-flyer", 0.0, 0.37, 0.0, "DeepSeek, Fire-Flyer 2, Table VIII: 213 flash cuts in 348 days", 0.27),
        Rates("upper", 0.4, 1.6, 0.017, "an assumed upper end: 2.0 with flaps", 0.27),
    )
}


@dataclass(frozen=True)
class Trace:
    """Failures of links on each day of a fleet of ``nics``; days without any count."""

    counts: tuple[int, ...]
    nics: int


@dataclass(frozen=True)
class Event:
    """From ``at_h`` on, these NICs, as (host, NIC), are gone for ``lasts_h``."""

    at_h: float
    lasts_h: float
    kind: Kind
    nics: tuple[tuple[int, int], ...]


def preset(name: str) -> Rates:
    """The rates of that name; raises `UsageError` with the available names."""
    if name not in PRESETS:
        raise UsageError(f"no failure rates are called {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]


def draw(rates: Rates | Trace, hosts: int, nics: int, days: int, seed: str) -> tuple[Event, ...]:
    """Everything that fails in this number of days, in order of time. The same seed always gives the same failures."""
    if min(hosts, nics, days) < 1:
        raise UsageError(f"failures of {hosts} hosts with {nics} NICs over {days} days: every number must be positive")
    chance = random.Random(seed)
    events: list[Event] = []
    for day in (
        _trace_days(rates, hosts * nics, days, chance)
        if isinstance(rates, Trace)
        else _days(rates, hosts, nics, days, chance)
    ):
        events += (_event(kind, 24.0 * number, hosts, nics, chance) for number, kind in day)
    return tuple(sorted(events, key=lambda event: event.at_h))


def concurrent(hosts: int, nics: int, failures: int, seed: str) -> tuple[tuple[int, ...], ...]:
    """The NICs that each host has lost, of this many random failures; every host keeps one."""
    if not 0 <= failures <= hosts * (nics - 1):
        raise UsageError(f"{failures} failures: {hosts} hosts with {nics} NICs can lose at most {hosts * (nics - 1)}")
    chance = random.Random(seed)
    while True:
        lost: list[list[int]] = [[] for _ in range(hosts)]
        for place in chance.sample(range(hosts * nics), failures):
            lost[place // nics].append(place % nics)
        if max(map(len, lost)) < nics:
            return tuple(tuple(sorted(one)) for one in lost)


@cache
def flash_cuts() -> Trace:
    """Fire-Flyer 2's: about 1,650 NICs, 19 April 2023 to 31 March 2024."""
    path = Path(__file__).with_name("flash_cuts.csv")
    return read_trace(path, nics=1650, first=date(2023, 4, 19), last=date(2024, 3, 31))


def read_trace(path: Path, *, nics: int, first: date, last: date) -> Trace:
    """A CSV of date and number; days that are not listed had none. Raises `UsageError` with file and line."""
    counts = dict.fromkeys((first + timedelta(n) for n in range((last - first).days + 1)), 0)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a CSV of date and number") from error
    for number, row in enumerate(csv.reader(lines[1:]), start=2):
        try:
            day, count = date.fromisoformat(row[0]), int(row[1])
        except (ValueError, IndexError):
            raise UsageError(f"{path}:{number}: {','.join(row)!r} is not a date and a number") from None
        if day not in counts or count < 0:
            raise UsageError(f"{path}:{number}: {','.join(row)!r} is not within {first} to {last}, or negative")
        counts[day] += count
    return Trace(tuple(counts.values()), nics)


Day = list[tuple[int, Kind]]


def _days(rates: Rates, hosts: int, nics: int, days: int, chance: random.Random) -> Iterator[Day]:
    switches = nics * -(-hosts // HOSTS_PER_SWITCH)
    means: tuple[tuple[Kind, float], ...] = (
        ("nic", rates.nic * hosts * nics / 1000),
        ("flap", rates.flap * hosts * nics / 1000),
        ("switch", rates.switch * switches / 1000),
    )
    for number in range(days):
        weight = 1.0 if rates.burst is None else chance.gammavariate(rates.burst, 1 / rates.burst)
        yield [(number, kind) for kind, mean in means for _ in range(_poisson(mean * weight, chance))]


def _trace_days(trace: Trace, nics: int, days: int, chance: random.Random) -> Iterator[Day]:
    first = chance.randrange(len(trace.counts))
    for number in range(days):
        mean = trace.counts[(first + number) % len(trace.counts)] * nics / trace.nics
        yield [(number, "flap")] * _poisson(mean, chance)


def _event(kind: Kind, day_h: float, hosts: int, nics: int, chance: random.Random) -> Event:
    at_h = day_h + HOURS * chance.random()
    host, nic = chance.randrange(hosts), chance.randrange(nics)
    low, high = REPAIR_H
    lasts_h = low * (high / low) ** chance.random()
    if kind == "flap":
        lasts_h = _flap_s(chance) / 3600
    struck: Sequence[int] = (host,)
    if kind == "switch":
        first = host - host % HOSTS_PER_SWITCH
        struck = range(first, min(hosts, first + HOSTS_PER_SWITCH))
    return Event(at_h, lasts_h, kind, tuple((one, nic) for one in struck))


def _flap_s(chance: random.Random) -> float:
    """Log-normal around the median, within the limits."""
    least, median, most = FLAP_S
    return min(most, max(least, median * math.exp(chance.gauss(0.0, 0.5))))


def _poisson(mean: float, chance: random.Random) -> int:
    """Knuth's method; days have few failures."""
    count, left = 0, mean
    while (left := left - chance.expovariate(1.0)) > 0:
        count += 1
    return count
