"""Combines the stats of a rank's several communicators into one: a layout has a group for each dimension. Pure."""

from collections.abc import Sequence
from typing import Any

_COUNTS = ("replayed_chunks", "duplicate_chunks")


def together(stats: Sequence[dict[str, Any]], left_out: Sequence[str] = ()) -> dict[str, Any]:
    """The first communicator's fields with the bytes, chunks and events of all; and the NICs that this life started
    without."""
    first, *others = stats
    nics = [dict(nic) for nic in first["nics"]]
    for nic in nics:
        same = [n for other in others for n in other["nics"] if n["name"] == nic["name"]]
        for key, value in nic.items():
            if key.endswith("_bytes"):
                nic[key] = value + sum(n[key] for n in same)
    nics += [{"name": name, "address": "", "tx_bytes": 0, "rx_bytes": 0, "state": "left out"} for name in left_out]
    counts = {key: sum(one[key] for one in stats) for key in _COUNTS}
    events = sorted((event for one in stats for event in one["events"]), key=lambda event: event["t_ns"])
    return {**first, "nics": nics, "events": events, **counts}
