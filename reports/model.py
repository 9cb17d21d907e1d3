"""What theory says of T/T0 after one of a host's NICs is lost: the lines beside the measured points.

X is the lost share of the host's bandwidth. Balance (mode 2) spreads the load over what is left:
T/T0 = 1/(1-X). Hot repair (mode 1) lets one back-up NIC carry the lost one's load beside its own: 2, however
many NICs there are. `floor` is the least that any schedule can reach (`r2ccl_core.bound`).
"""

from r2ccl_core.bound import bound_s, fault_free_ring_s

HOT_REPAIR = 2.0


def balance(lost_share: float) -> float:
    """T/T0 of Balance; infinite if nothing is left."""
    return 1 / (1 - lost_share) if lost_share < 1 else float("inf")


def of_mode(mode: int, nics: int) -> float | None:
    """T/T0 that the model gives a system of this mode with one of `nics` NICs lost; None: it does not go on."""
    if nics < 2 or mode not in (1, 2):
        return None
    return HOT_REPAIR if mode == 1 else balance(1 / nics)


def floor(collective: str, hosts: int, nics: int) -> float | None:
    """The least T/T0 of any schedule; known for all_reduce, whose healthy form is the ring."""
    if collective != "all_reduce" or hosts < 2 or nics < 2:
        return None
    rates = [1 - 1 / nics] + [1.0] * (hosts - 1)
    return max(1.0, bound_s(collective, rates, 1.0) / fault_free_ring_s(hosts, 1.0, 1.0))
