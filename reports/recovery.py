"""How long a host's traffic was down after a fault, from its NIC counters. Pure.

The counters are samples of cumulative bytes (every 10 ms or so, every millisecond right after a fault); two samples
give one mean throughput. Recovery is the time from the fault to the start of the first interval from which the host
sends as fast as it does later, on the remaining NICs. Its resolution is the sampling interval.
"""

import numpy as np
import pandas as pd

from reports.stats import Floats

RECOVERED = 0.8
"""Share of the later throughput at which traffic counts as recovered."""
STEADY_NS = 10_000_000
"""How long traffic must stay at that level."""
MIN_SAMPLES = 5
"""An iteration shorter than this many samples is too short to show a dip."""


def throughput(samples: pd.DataFrame, column: str = "tx_bytes") -> pd.DataFrame:
    """Bits per second between samples: columns host, nic, start_ns, end_ns, bit_s, up."""
    ordered = samples.sort_values(["host", "nic", "t_ns"], kind="stable", ignore_index=True)
    # The first sample of a NIC has no predecessor. Comparing neighbouring rows takes a tenth of the time of grouping.
    same = pd.Series(True, index=ordered.index)
    for name in ("host", "nic"):
        codes, _ = pd.factorize(ordered[name])
        same &= np.diff(codes, prepend=-1) == 0
    lasted, moved = ordered["t_ns"].diff(), ordered[column].diff()
    # A counter that decreases (a NIC that was recreated) gives no rate for that interval.
    known = same & (lasted > 0) & (moved >= 0)
    rates = pd.DataFrame(
        {
            "host": ordered["host"],
            "nic": ordered["nic"],
            "start_ns": ordered["t_ns"].shift(fill_value=0),
            "end_ns": ordered["t_ns"],
            "bit_s": 8e9 * moved / lasted,
            "up": ordered["up"],
        }
    )
    return rates[known].reset_index(drop=True)


def host_total(rates: pd.DataFrame, host: str) -> tuple[Floats, Floats, Floats]:
    """Starts and ends (ns) of the sampling intervals of `host`, and its NICs' summed bits per second."""
    own = rates[rates["host"] == host]
    table = own.groupby("end_ns").agg({"bit_s": "sum", "start_ns": "min"})
    ends = table.index.to_numpy(dtype=np.float64)
    return table["start_ns"].to_numpy(np.float64), ends, table["bit_s"].to_numpy(np.float64)


def recovery_ns(rates: pd.DataFrame, host: str, fault_ns: int, hit_end_ns: int, after: tuple[int, int]) -> float | None:
    """Time from the fault until traffic on `host` has recovered; None if the counters are too coarse to tell.

    `after` spans the iterations after the hit one. Traffic must return to their throughput and keep it for `STEADY_NS`,
    so a burst between two close samples does not count.
    """
    starts, ends, total = host_total(rates, host)
    inside = (starts >= after[0]) & (ends <= after[1])
    if ((ends > fault_ns) & (ends <= hit_end_ns)).sum() < MIN_SAMPLES or inside.sum() < MIN_SAMPLES:
        return None
    # The upper quartile, because the line is idle between iterations, and idle time is no measure of its speed.
    enough = RECOVERED * float(np.percentile(total[inside], 75))
    moved = np.cumsum(total * (ends - starts))
    steady = np.interp(starts + STEADY_NS, ends, moved) - np.interp(starts, ends, moved)
    back = (starts >= fault_ns) & (starts + STEADY_NS <= hit_end_ns) & (steady >= enough * STEADY_NS)
    if not back.any():
        return float(hit_end_ns - fault_ns)
    first = starts[back][0]
    fast = (starts >= first) & (starts < first + STEADY_NS) & (total >= enough)
    return float((starts[fast][0] if fast.any() else first) - fault_ns)
