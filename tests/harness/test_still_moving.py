"""Ranks whose NICs still carry data when their time is over are slow; those with keep-alives only hang."""

from collections.abc import Container, Mapping, Sequence

import pytest

from harness.hosts.base import Sample
from harness.sweep.still_moving import still_moving

S = 1_000_000_000


def bytes_s(
    hosts: Mapping[str, Sequence[Sample]], ranks: int = 1, without: Container[tuple[str, str]] = ()
) -> float:  # fmt: skip
    """What the NICs still received; 0 if they received nothing but keep-alives."""
    found = still_moving(hosts, 10 * S, 10, ranks, without)
    return found.together_bytes_s if found else 0.0


def sampled(bytes_s: float, since_s: float = 0, until_s: float = 10, nic: str = "eth0") -> Sequence[Sample]:
    """10 s of counters, read every 10 ms, of a NIC that receives in between; it sends all the time."""
    times = [number / 100 for number in range(1001)]
    received = [int(bytes_s * (min(max(t, since_s), until_s) - since_s)) for t in times]
    return [Sample(int(t * S), nic, got, int(t * 5e6), up=True) for t, got in zip(times, received, strict=True)]


@pytest.mark.parametrize(
    ("eth0", "eth1", "expected"),
    [
        (sampled(4e6), sampled(1e6, nic="eth1"), 10e6),
        (sampled(4e6), [], 8e6),
        # 0.6 MB/s are a NIC that is limited to 5 Mbit/s; 20 kB/s are keep-alives.
        (sampled(0.6e6), sampled(0, nic="eth1"), 1.2e6),
        (sampled(20e3), sampled(20e3, nic="eth1"), 0),
        # What moved before the last quarter may have moved before the fault.
        (sampled(4e6, until_s=7.4), [], 0),
        (sampled(4e6, since_s=7.4), [], 8e6),
        ([], [], 0),
    ],
)
def test_what_nics_received_in_the_last_quarter(
    eth0: Sequence[Sample], eth1: Sequence[Sample], expected: float
) -> None:
    hosts = {"a": [*eth0, *eth1], "b": [*eth0, *eth1]}
    assert bytes_s(hosts) == pytest.approx(expected, rel=0.02)


def test_nics_that_are_gone_and_what_came_later_do_not_count() -> None:
    gone = [Sample(int(t * S), "eth0", -1, -1, up=False) for t in (9, 9.5, 10)]
    later = [sample._replace(t_ns=sample.t_ns + 10 * S) for sample in sampled(4e6)]
    assert bytes_s({"a": gone, "b": later}) == 0


def test_nics_that_a_fault_floods_do_not_count() -> None:
    hosts = {"a": [*sampled(0), *sampled(5e6, nic="eth1")], "b": [*sampled(0), *sampled(5e6, nic="eth1")]}
    assert bytes_s(hosts) == pytest.approx(10e6, rel=0.02)
    assert bytes_s(hosts, without={("a", "eth1"), ("b", "eth1")}) == 0


@pytest.mark.parametrize(("ranks", "hung"), [(1, False), (4, True), (8, True)])
def test_every_rank_of_a_host_keeps_its_own_connections_alive(ranks: int, hung: bool) -> None:
    hosts = {"a": sampled(80e3), "b": sampled(80e3)}
    assert (bytes_s(hosts, ranks) == 0) is hung
    assert bytes_s({"a": sampled(4e6), "b": sampled(4e6)}, ranks) == pytest.approx(8e6, rel=0.02)


def test_what_was_received_is_told_for_a_reader_to_judge() -> None:
    hosts = {"a": [*sampled(0.1e6), *sampled(3e6, nic="eth1")], "b": sampled(0.1e6)}
    told = "8 MB in its last 2.5 s (3.2 MB/s, 3 MB/s of it on a eth1; keep-alives are at most 0.075 MB/s)"
    assert str(still_moving(hosts, 10 * S, 10)) == told
