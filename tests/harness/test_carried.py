"""Whether a NIC carried a collective or only what it carries without one, on short iterations made by hand."""

import pytest

from harness.events import RankRecord, Timed
from harness.hosts.base import Sample
from harness.sweep.carried import Carried, carried
from harness.sweep.in_flight import InFlight

MS = 1_000_000
EVERY = 4 * MS
"""An iteration of 2 ms every 4 ms; a barrier in the pause before each."""
EFFECT = 500 * MS + MS
BATCH = InFlight(113, 137, 125)
BARRIER = 1_600
"""Bytes of gloo's barrier between three hosts, sent and received."""


def rank(barrier_bytes: float) -> RankRecord:
    record = RankRecord(1, barrier_bytes=barrier_bytes)
    for i in range(250):
        record.begun[i] = i * EVERY
        record.finished[i] = Timed(i * EVERY, 2 * MS, 0)
    return record


def samples(each: int, quiet: int = 0, until_ns: int = 1000 * MS) -> list[Sample]:
    """Counters every 10 ms: `each` bytes in an iteration and `quiet` in 100 ms, half of them sent, until the NIC is
    dark."""
    taken = []
    for t_ns in range(0, 1000 * MS, 10 * MS):
        alive_ns = min(t_ns, until_ns)
        moved = each * (alive_ns // EVERY) + quiet * (alive_ns // (100 * MS))
        taken.append(Sample(t_ns, "eth1", moved // 2, moved - moved // 2, t_ns < until_ns))
    return taken


def found(taken: list[Sample], barrier_bytes: float, even_bytes: float, dark: bool = True) -> Carried:
    effect_ns = EFFECT if dark else None
    record = rank(barrier_bytes)
    return carried({"host1": taken}, record, BATCH, ("host1", "eth1"), (0, 800 * MS), even_bytes, effect_ns)


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize("size_bytes", [8, 4096, 65536])
def test_a_nic_that_carries_only_barriers_is_not_in_use(size_bytes: int, dark: bool) -> None:
    """Gloo: a trial counted although the fault was on the NIC of the barriers, which carry 1632 bytes an iteration."""
    only = samples(BARRIER, until_ns=EFFECT if dark else 1000 * MS)
    assert not found(only, BARRIER, size_bytes * 2 / 3, dark).in_use
    told = str(found(only, BARRIER, size_bytes * 2 / 3, dark))
    assert "would show that it was in use" in told


@pytest.mark.parametrize("dark", [True, False])
@pytest.mark.parametrize(("size_bytes", "each"), [(8, 2_460), (4096, 17_200), (65536, 178_000)])
def test_gloo_is_hit_on_the_nic_of_its_collectives_however_small(size_bytes: int, each: int, dark: bool) -> None:
    taken = samples(each, until_ns=EFFECT if dark else 1000 * MS)
    assert found(taken, BARRIER, size_bytes * 2 / 3, dark).in_use


def test_probes_of_an_idle_path_are_no_use_of_it() -> None:
    """The most that was seen on the other NIC of AllReduces of 4 KiB, in 50 ms right before the fault."""
    assert not found(samples(0, quiet=2_300, until_ns=EFFECT), 0.0, 4096 * 2 / 3).in_use


@pytest.mark.parametrize("dark", [True, False])
def test_a_busy_machines_probes_are_not_one_per_cent_of_several_iterations(dark: bool) -> None:
    """64 KiB by auto over the other NICs alone: 3.1 kB in 50 ms passed for one iteration's share, 437 bytes."""
    idle = samples(60, quiet=3_000, until_ns=EFFECT if dark else 1000 * MS)
    assert not found(idle, 0.0, 65536 * 2 / 3, dark).in_use


@pytest.mark.parametrize(("size_bytes", "each"), [(8, 160), (1024, 1_100), (65536, 45_000)])
def test_our_systems_are_hit_however_small_the_collective(size_bytes: int, each: int) -> None:
    """8 bytes come to 160 an iteration on the NIC that carries the fewer messages of a host."""
    assert found(samples(each, until_ns=EFFECT), 0.0, size_bytes * 2 / 3).in_use


def test_the_end_of_the_barrier_before_a_long_iteration_is_no_use_either() -> None:
    record = RankRecord(1, barrier_bytes=BARRIER, begun={0: 100 * MS})
    late = [Sample(t * MS, "eth1", 0, 0 if t < 120 else BARRIER, True) for t in range(90, 300, 10)]
    got = carried({"host1": late}, record, InFlight(0, 0, 0), ("host1", "eth1"), (0, 280 * MS), 20_000, 200 * MS)
    assert (got.in_flight, got.in_use) == (BARRIER, False)
