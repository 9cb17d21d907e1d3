"""The topology that a simulator sees while faults last."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults.base import Effect
from faults.simulated import degraded
from r2ccl_core.model.topology import Topology

NICS = {(f"host{h}", f"eth{n}"): (h, n) for h in range(3) for n in range(2)}
EFFECTS = st.builds(
    lambda nic, factor, delay: Effect(*nic, rate_factor=factor, added_delay_s=delay),
    st.sampled_from(sorted(NICS)),
    st.floats(0, 2),
    st.floats(0, 1),
)


def whole() -> Topology:
    return Topology.uniform(3, 2, 1e9)


def remaining(topology: Topology) -> dict[tuple[str, str], float]:
    return {names: topology.hosts[h].nics[n].remaining for names, (h, n) in NICS.items()}


@given(st.lists(EFFECTS, max_size=6))
def test_every_effect_slows_its_nic_and_no_other(effects: list[Effect]) -> None:
    shares = remaining(degraded(whole(), effects, NICS))
    for names, share in shares.items():
        wanted = 1.0
        for effect in effects:
            if (effect.host, effect.nic) == names:
                wanted *= min(1.0, effect.rate_factor)
        assert share == pytest.approx(wanted)


def test_a_nic_that_no_topology_has_is_a_bug() -> None:
    with pytest.raises(KeyError):
        degraded(whole(), [Effect("host9", "eth0")], NICS)
