"""Which network a trial really used, from its logs and counters. Pure.

NCCL falls back silently: a plugin that cannot be loaded is one INFO line, and the numbers that follow are those of
NCCL's own sockets. So its log must name the network ("Using network X") and show connections over it ("via NET/X/0"),
not P2P or shared memory alone. Our core reports the NICs that carried bytes. Neither is proof by itself: the NICs' own
counters must show the bytes, too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from harness.backends.nccl_log import NcclEvent

Finding = Literal["proven", "another", "unknown", "not_asked"]

INTERNAL = ("IB", "Socket")
"""Names of NCCL's built-in networks; any other comes from a plugin."""

LEAST_SHARE = 0.5
"""Share of the bytes that iterations must move that the NICs' counters must show."""

_SOCKET_NIC = re.compile(r"\[\d+\](\S+?):")
_TELLING = ("version", "network", "plugin_loaded", "plugin_failed", "net_devices")
"""Kinds of NCCL's events that are kept as evidence, under NCCL's names."""
_MOST_LINES = 12


@dataclass(frozen=True)
class Proof:
    """The result of the check. `intended` and `used` are names of networks or of NICs."""

    finding: Finding
    reason: str = ""
    intended: str = ""
    used: tuple[str, ...] = ()
    detail: Mapping[str, Any] = field(default_factory=dict)

    def as_evidence(self) -> dict[str, Any]:
        """JSON values for the stored trial."""
        return {
            "finding": self.finding,
            "reason": self.reason,
            "intended": self.intended,
            "used": list(self.used),
            **self.detail,
        }


NOT_ASKED = Proof("not_asked")


def from_nccl_log(events: Iterable[NcclEvent], intended: str | None, plugin: bool, nics: Sequence[str]) -> Proof:
    """The network by the log of all ranks. `intended` is a network's name (None: any, or with `plugin` any that is not
    built into NCCL); if NCCL used its sockets, they must be on `nics`."""
    told = list(events)
    wanted = intended or ("a plugin's network" if plugin else "any network")
    used = tuple(sorted({str(event.fields["name"]) for event in told if event.kind == "network"}))
    ways = Counter(_way(str(event.fields["via"])) for event in told if event.kind == "channel")
    lines = dict.fromkeys(event.text for event in told if event.kind in _TELLING)
    detail = {"connections": dict(ways), "lines": list(lines)[:_MOST_LINES]}
    if not used:
        why = "the log does not say which network NCCL used; is NCCL_DEBUG=INFO set?"
        return Proof("unknown", why, wanted, used, detail)
    reason = _elsewhere(told, used, ways, intended, plugin, nics)
    return Proof("another" if reason else "proven", reason, wanted, used, detail)


def _elsewhere(
    told: Sequence[NcclEvent],
    used: Sequence[str],
    ways: Mapping[str, int],
    intended: str | None,
    plugin: bool,
    nics: Sequence[str],
) -> str:
    """Why the network is not the intended one; empty if it is."""
    others = [name for name in used if not _is_wanted(name, intended, plugin)]
    if others:
        wanted = intended or "a plugin's network"
        return f"NCCL used the network {others[0]}, not {wanted}"
    if ways and not any(way.startswith("NET/") for way in ways):
        return f"NCCL moved the data by {', '.join(ways)}, over no network"
    devices = [str(event.fields["devices"]) for event in told if event.fields.get("transport") == "Socket"]
    strangers = sorted({nic for text in devices for nic in _SOCKET_NIC.findall(text)} - set(nics))
    if "Socket" in used and nics and strangers:
        return f"NCCL's sockets were on {', '.join(strangers)} too"
    return ""


def _way(via: str) -> str:
    """``NET/Socket`` of ``NET/Socket/0``, ``P2P`` of ``P2P/CUMEM``."""
    words = via.split("/")
    return "/".join(words[:2]) if words[0] == "NET" else words[0]


def from_core(cores: Sequence[Mapping[str, Any] | None], nics: Sequence[Sequence[str]]) -> Proof:
    """The NICs that our core's ranks report, beside those of their hosts; None for a rank that ended before it could
    report.

    A rank reports every NIC that it opened, including those lost since. The bytes of a single NIC are no sign: a short
    message needs only one NIC.
    """
    heard = [(core, meant) for core, meant in zip(cores, nics, strict=True) if core is not None and core.get("nics")]
    told, known = [core for core, _ in heard], dict.fromkeys(nic for of_host in nics for nic in of_host)
    wanted = ", ".join(known)
    if not told:
        return Proof("unknown", "no rank told which NICs it used", wanted)
    used = {nic["name"]: 0 for core in told for nic in core["nics"]}
    for core in told:
        for nic in core["nics"]:
            used[nic["name"]] += nic["tx_bytes"] + nic["rx_bytes"]
    detail = {"bytes_by_nic": used}
    if strangers := sorted(set(used) - set(known)):
        return Proof("another", f"the ranks used {', '.join(strangers)}, not {wanted}", wanted, tuple(used), detail)
    opened = [({nic["name"] for nic in core["nics"]}, meant) for core, meant in heard]
    if missed := dict.fromkeys(nic for of_rank, meant in opened for nic in meant if nic not in of_rank):
        return Proof("another", f"the ranks left out {', '.join(missed)} of {wanted}", wanted, tuple(used), detail)
    if not any(used.values()):
        return Proof("unknown", f"no NIC of {wanted} carried anything", wanted, (), detail)
    return Proof("proven", "", wanted, tuple(nic for nic, count in used.items() if count), detail)


def from_counters(
    sent_bytes: Mapping[str, int], nics: Sequence[str], least_bytes: float, counts: str = "iterations"
) -> Proof:
    """The network by the NICs' counters. `sent_bytes`: by NIC, over all hosts; `least_bytes`: the bytes that the
    iterations, or whatever the workload `counts`, must send over all NICs together."""
    wanted = ", ".join(nics)
    detail = {"bytes_by_nic": dict(sent_bytes), "least_bytes": round(least_bytes)}
    if not sent_bytes:
        return Proof("unknown", "no counters of any NIC", wanted)
    total = sum(sent_bytes.values())
    if total < LEAST_SHARE * least_bytes:
        why = f"the NICs {wanted} sent {total} bytes where the {counts} need {least_bytes:.0f}"
        return Proof("another", why, wanted, (), detail)
    if not total:
        return Proof("unknown", f"no NIC of {wanted} carried anything", wanted, (), detail)
    used = tuple(nic for nic, count in sent_bytes.items() if count >= 0.01 * total)
    return Proof("proven", "", wanted, used, detail)


def confirmed(told: Proof, counted: Proof) -> Proof:
    """The network that ranks or a log report, if the counters confirm it: without the bytes it is no proof."""
    detail = {**counted.detail, **told.detail}
    if told.finding == "proven" and counted.finding != "proven":
        return Proof("unknown", f"{counted.reason}; what the ranks tell is no proof", told.intended, (), detail)
    return replace(told, detail=detail)


def _is_wanted(name: str, intended: str | None, plugin: bool) -> bool:
    if intended is not None:
        return name.lower() == intended.lower()
    return not (plugin and name in INTERNAL)
