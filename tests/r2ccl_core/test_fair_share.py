"""The simulator's local fair sharing against a plain one that fills every port anew at every event."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core import native
from r2ccl_core.errors import TransportError
from r2ccl_core.model.schedule import NOBODY, Schedule, lane
from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.simulate import simulate


def _built() -> bool:
    try:
        return hasattr(native.load(), "simulate")
    except TransportError:
        return False


pytestmark = pytest.mark.skipif(not _built(), reason="the native core is not built with the simulator")

Message = tuple[int, int, int]
"""Source, destination, chunks."""

MESSAGES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 40)).filter(lambda m: m[0] != m[1]),
    min_size=1,
    max_size=24,
)
SHARES = st.lists(st.sampled_from([1.0, 0.875, 0.75, 0.5, 0.3, 0.1]), min_size=6, max_size=6)


def fair_rates(flows: list[Message], capacity: dict[tuple[str, int], float]) -> list[float]:
    """Progressive filling, from the start."""
    left, open_flows, rates = dict(capacity), set(range(len(flows))), [0.0] * len(flows)
    ports = [(("out", source), ("in", target)) for source, target, _ in flows]
    while open_flows:
        users = {port: [f for f in open_flows if port in ports[f]] for port in left}
        share, port = min((left[port] / len(own), port) for port, own in users.items() if own)
        for flow in users[port]:
            rates[flow] = share
            open_flows.discard(flow)
            for used in ports[flow]:
                left[used] -= share
    return rates


def seconds(flows: list[Message], shares: list[float]) -> float:
    """When the last of these messages, which all begin at once, has arrived."""
    capacity = {(way, host): share for host, share in enumerate(shares) for way in ("out", "in")}
    left, now = {index: float(size) for index, (_, _, size) in enumerate(flows)}, 0.0
    while left:
        order = list(left)
        rates = dict(zip(order, fair_rates([flows[i] for i in order], capacity), strict=True))
        step = min(left[i] / rates[i] for i in order)
        now += step
        left = {i: rest for i in order if (rest := left[i] - rates[i] * step) > 1e-9}
    return now


def schedule(flows: list[Message], hosts: int) -> Schedule:
    """A lane a message."""
    total = sum(size for _, _, size in flows)
    begins = [sum(size for _, _, size in flows[:index]) for index in range(len(flows))]

    def steps(rank: int, index: int) -> list[tuple[int, int, int, int, int]]:
        source, target, size = flows[index]
        span = begins[index], begins[index] + size, 0
        return [(NOBODY, target, *span)] * (rank == source) + [(source, NOBODY, *span)] * (rank == target)

    programs = tuple(tuple(lane(steps(rank, i)) for i in range(len(flows))) for rank in range(hosts))
    return Schedule("messages", "alltoall", hosts, total, programs)


@settings(max_examples=150)
@given(flows=MESSAGES, shares=SHARES)
def test_rates_are_max_min_fair_whatever_comes_and_goes(flows: list[Message], shares: list[float]) -> None:
    made = schedule(flows, len(shares))
    took = simulate(made, Topology.of_shares(shares), made.nchunks).seconds
    assert took == pytest.approx(seconds(flows, shares), rel=1e-6)


@settings(max_examples=50)
@given(flows=MESSAGES, shares=SHARES)
def test_a_tolerance_costs_about_as_much(flows: list[Message], shares: list[float]) -> None:
    made = schedule(flows, len(shares))
    exact = simulate(made, Topology.of_shares(shares), made.nchunks).seconds
    assert simulate(made, Topology.of_shares(shares), made.nchunks, tolerance=0.01).seconds == pytest.approx(
        exact, rel=0.05
    )
