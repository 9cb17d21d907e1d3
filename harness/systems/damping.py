"""For how long our core holds back a NIC that is lost often, as `native/failover/damping.h` does. Pure."""

import math
from collections.abc import Iterable, Mapping

HALF_LIFE = "R2CC_FLAP_HALF_LIFE_MS"
DEFAULTS = {HALF_LIFE: 4000, "R2CC_FLAP_SUPPRESS": 2000, "R2CC_FLAP_REUSE": 750, "R2CC_FLAP_MAX_MS": 60_000}
PENALTY = 1000.0
"""What every loss adds."""


def held_until_s(losses_s: Iterable[float], env: Mapping[str, str]) -> float:
    """When a NIC that is lost at these moments carries again, if it is well from then on; 0: it is not held back."""
    half_life_s, suppress, reuse, most_s = (
        float(env.get(name, default)) / (1e3 if name.endswith("_MS") else 1) for name, default in DEFAULTS.items()
    )
    if half_life_s == 0:
        return 0.0
    most = max(reuse * 2 ** (most_s / half_life_s), suppress)
    penalty, lost_s, is_held = 0.0, 0.0, False
    for at_s in sorted(losses_s):
        penalty *= 2 ** ((lost_s - at_s) / half_life_s)
        is_held = is_held and penalty > reuse and at_s - lost_s < most_s
        penalty, lost_s = min(penalty + PENALTY, most), at_s
        is_held = is_held or penalty >= suppress
    return lost_s + min(math.log2(penalty / reuse) * half_life_s, most_s) if is_held else 0.0
