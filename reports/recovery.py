"""How long a host's traffic was down after a fault, from its NIC counters. Pure.

The counters are samples of bytes so far (every 10 ms or so, right after a fault every millisecond); between two
samples lies one mean throughput. Recovery is the time from the fault to the beginning of the first interval from which
on the host sends as fast as it does later, on what is left. Its resolution is the sampling interval.
"""

import numpy as np
import pandas as pd

from reports.stats import Floats

RECOVERED = 0.8
"""Share of the later throughput at which traffic counts as back."""
STEADY_NS = 10_000_000
"""For so long traffic has to keep that."""
MIN_SAMPLES = 5
"""An iteration shorter than this many samples is too short to see its dip."""


def throughput(samples: pd.DataFrame, column: str = "tx_bytes") -> pd.DataFrame:
    """Bits per second between samples: columns host, nic, start_ns, end_ns, bit_s, up."""
    ordered = samples.sort_values(["host", "nic", "t_ns"], kind="stable", ignore_index=True)
    # A NIC's first sample has none before it: compared by itself, which is a tenth of the time of grouping.
    same = pd.Series(True, index=ordered.index)
    for name in ("host", "nic"):
        codes, _ = pd.factorize(ordered[name])
        same &= np.diff(codes, prepend=-1) == 0
    lasted, moved = ordered["t_ns"].diff(), ordered[column].diff()
    # A counter that goes back (a NIC that was made anew) says nothing about that interval.
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
    """Time from the fault to traffic being back on `host`; None where the counters are too coarse to say.

    `after` spans the iterations after the hit one: their throughput is what traffic must come back to, and keep for
    `STEADY_NS`, so that a burst between two close samples is none.
    """
    starts, ends, total = host_total(rates, host)
    inside = (starts >= after[0]) & (ends <= after[1])
    if ((ends > fault_ns) & (ends <= hit_end_ns)).sum() < MIN_SAMPLES or inside.sum() < MIN_SAMPLES:
        return None
    # The upper quartile: between iterations the line is idle, which is no measure of its speed.
    enough = RECOVERED * float(np.percentile(total[inside], 75))
    moved = np.cumsum(total * (ends - starts))
    steady = np.interp(starts + STEADY_NS, ends, moved) - np.interp(starts, ends, moved)
    back = (starts >= fault_ns) & (starts + STEADY_NS <= hit_end_ns) & (steady >= enough * STEADY_NS)
    if not back.any():
        return float(hit_end_ns - fault_ns)
    first = starts[back][0]
    fast = (starts >= first) & (starts < first + STEADY_NS) & (total >= enough)
    return float((starts[fast][0] if fast.any() else first) - fault_ns)
