"""Hosts stand still where none of their watches read anything; one alone may have been stopped by a fault."""

from collections.abc import Sequence

from harness.hosts.base import Reading, Sample
from harness.sweep.stalled import stood_still_s

S = 1_000_000_000


def watch(*at_s: float) -> Sequence[Reading]:
    return [Reading(int(t * S), "cpu", metric, 0.5) for t in at_s for metric in ("busy_share", "softirq_share")]


STEADY, STOPPED = watch(0, 0.1, 0.2, 0.3), watch(0, 0.1, 58.1, 58.2)


def test_the_host_that_paused_least_says_for_how_long() -> None:
    assert stood_still_s(["a", "b"], {"a": STOPPED, "b": watch(0, 20)}, {}) == 20
    assert stood_still_s(["a", "b"], {"a": STOPPED, "b": STEADY}, {}) == 0.1


def test_a_host_without_a_watch_is_not_known_to_have_stood_still() -> None:
    assert stood_still_s(["a", "b"], {"a": STOPPED}, {}) == 0
    assert stood_still_s([], {}, {}) == 0


def test_a_watch_that_never_read_again_lasts_as_long_as_the_counters() -> None:
    counters = [Sample(int(t * S), "eth0", 0, 0, up=True) for t in (0, 60)]
    assert stood_still_s(["a"], {"a": STEADY}, {"a": counters}) == 59.7
