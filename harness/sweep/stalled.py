"""Whether the hosts themselves stood still while ranks were silent: then a hang says nothing about the system. Pure.

A host's watch needs next to no processor time and reads every 100 ms. If the watches of all hosts read nothing for
seconds, something else had the processors: a fault stops one host at most, another program on the machine of a local
cluster stops all of them.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from harness.hosts.base import Reading, Sample

SHARE = 0.5
"""Of the longest silence that ranks are allowed; a watch that was as silent as that was as good as stopped."""


def stood_still_s(
    hosts: Sequence[str], readings: Mapping[str, Sequence[Reading]], samples: Mapping[str, Sequence[Sample]]
) -> float:
    """The longest time without a reading of the host whose watch paused least; 0 if a host was not watched."""
    return min((_longest_s(readings.get(host, ()), samples.get(host, ())) for host in hosts), default=0.0)


def _longest_s(seen: Sequence[Reading], taken: Sequence[Sample]) -> float:
    """Counters, which are read until the end of the trial, say when that was."""
    if not seen:
        return 0.0
    times = sorted({reading.t_ns for reading in seen})
    last = max((sample.t_ns for sample in taken), default=times[-1])
    return max((b - a for a, b in pairwise([*times, max(last, times[-1])])), default=0) / 1e9
