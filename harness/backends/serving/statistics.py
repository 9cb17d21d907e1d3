"""Combines the statistics of several users of the same NICs."""

from typing import Any


def joined(first: dict[str, Any], *others: dict[str, Any] | None) -> dict[str, Any]:
    """`first` with the bytes of all users, by NIC, and every event in the order of time."""
    by_name: dict[str, dict[str, Any]] = {}
    events: list[dict[str, Any]] = []
    for stats in filter(None, (first, *others)):
        events += stats["events"]
        for nic in stats["nics"]:
            known = by_name.setdefault(nic["name"], {**nic, "tx_bytes": 0, "rx_bytes": 0})
            known["tx_bytes"] += nic["tx_bytes"]
            known["rx_bytes"] += nic["rx_bytes"]
    return {**first, "nics": list(by_name.values()), "events": sorted(events, key=lambda event: event["t_ns"])}
