"""How the bytes of a schedule are divided over NICs where hosts have lost different rails."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2ccl_core.model.health import Health
from r2ccl_core.planning.nic_shares import divided, host_loads, nic_rates, with_nic_shares
from r2ccl_core.planning.selection import Cost, read_policy, selection
from r2ccl_core.schedules import ring

NBYTES = 96 << 20
DIFFERENT = Health((3,) * 4, ((), (1,), (2,), ()))


def loads_of_nics(health: Health, algo: str) -> np.ndarray:
    """What each NIC sends and receives of the vector, over its rate and over the least that its host's NICs can have:
    ``[direction, host, nic]``."""
    schedule = selection(read_policy(2, {"R2CC_ALGO": algo}))("all_reduce", NBYTES, health, Cost())
    rates = nic_rates(health.topology(1.0))
    loads = np.zeros((2, *rates.shape))
    whole = np.zeros((2, len(rates)))
    for (a, b), load in zip(*host_loads(schedule, health.gpus), strict=True):
        share = np.array(schedule.nic_shares[a * health.gpus, b * health.gpus])
        assert share.sum() == pytest.approx(1)
        loads[0, a] += load * share
        loads[1, b] += load * share
        whole[0, a] += load
        whole[1, b] += load
    assert not loads[:, rates == 0].any(), "a lost NIC has a share"
    least: float = (whole / rates.sum(axis=1)).max()
    return loads / least


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("algo", ["forest", "r2cc", "leaf_ring"])
def test_no_nic_has_more_to_do_than_the_busiest_host_asks_for(algo: str, gpus: int) -> None:
    assert loads_of_nics(Health(DIFFERENT.nics, DIFFERENT.lost, gpus), algo).max() < 1.01


def test_hosts_that_share_all_rails_leave_the_only_common_one_to_those_that_share_no_other() -> None:
    schedule = selection(read_policy(2, {"R2CC_ALGO": "forest"}))("all_reduce", NBYTES, DIFFERENT, Cost())
    assert schedule.nic_shares[0, 3] == pytest.approx((0, 0.5, 0.5), abs=0.02)
    assert schedule.nic_shares[0, 1] == pytest.approx((0.5, 0, 0.5), abs=0.02)


def test_the_ranks_of_two_hosts_have_the_shares_of_the_hosts() -> None:
    health = Health(DIFFERENT.nics, DIFFERENT.lost, 2)
    shares = selection(read_policy(3, {}))("all_reduce", NBYTES, health, Cost()).nic_shares
    hosts = {(a // 2, b // 2) for a, b in shares}
    assert len(shares) == 4 * len(hosts)
    for a, b in hosts:
        assert len({shares[2 * a + place, 2 * b + other] for place in (0, 1) for other in (0, 1)}) == 1


@pytest.mark.parametrize("lost", [((), (), (), ()), ((), (1,), (), ()), ((), (1,), (1,), ())])
def test_nothing_is_planned_where_hosts_share_what_they_have(lost: tuple[tuple[int, ...], ...]) -> None:
    select = selection(read_policy(2, {"R2CC_ALGO": "auto"}))
    assert not select("all_reduce", NBYTES, Health((3,) * 4, lost), Cost()).nic_shares


def test_nothing_is_planned_where_an_even_division_is_as_good() -> None:
    select = selection(read_policy(2, {}))
    for collective in ("all_reduce", "all_gather", "broadcast"):
        assert not select(collective, NBYTES, DIFFERENT, Cost()).nic_shares
    apart = Health((2,) * 2, ((0,), (1,)))
    assert not with_nic_shares(ring.all_reduce(2), apart.topology(1.0)).nic_shares


def test_hosts_that_share_no_nic_have_no_shares() -> None:
    pairs, loads = host_loads(selection(read_policy(3, {}))("all_reduce", NBYTES, DIFFERENT, Cost()), 1)
    rates = np.vstack([nic_rates(DIFFERENT.topology(1.0)), [[1, 0, 0], [0, 1, 0]]])
    parts = divided(np.vstack([pairs, [[4, 5]]]), np.append(loads, 0.1), rates)
    assert parts is not None
    assert parts.sum(axis=1) == pytest.approx([1] * len(pairs) + [0])


@given(st.data())
@settings(max_examples=50)
def test_every_pair_is_divided_over_the_nics_that_both_have(data: st.DataObject) -> None:
    hosts, nics = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 5))
    rate = st.sampled_from([0.0, 0.25, 1.0])
    rates = np.array([[data.draw(rate) for _ in range(nics)] for _ in range(hosts)])
    every = [(a, b) for a in range(hosts) for b in range(hosts) if a != b]
    pairs = np.array(data.draw(st.lists(st.sampled_from(every), unique=True, min_size=1)))
    loads = np.array([data.draw(st.floats(0.01, 2)) for _ in pairs])
    parts = divided(pairs, loads, rates)
    if parts is None:
        return
    common = (rates[pairs[:, 0]] > 0) & (rates[pairs[:, 1]] > 0)
    assert (parts >= 0).all()
    assert not parts[~common].any()
    assert parts.sum(axis=1) == pytest.approx(common.any(axis=1).astype(float))
