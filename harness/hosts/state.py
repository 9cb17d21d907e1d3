"""The network state of a host as values that can be compared: before a fault, and after it was healed.

Links, addresses, routes, rules, queueing disciplines and filters of the given interfaces. Values that change by
themselves (counters, lifetimes, handles that the kernel draws, values from a router or a lease) are left out.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from harness.hosts.base import Host
from harness.hosts.iproute import ask

State = Mapping[str, str]
"""The present objects by name, such as ``eth1 link``."""

_VOLATILE = frozenset(
    {"valid_life_time", "preferred_life_time", "stats", "stats64", "expires", "refcnt", "used", "tentative", "nodad"}
)
_LINK_FLAGS = ("UP", "LOWER_UP", "NO-CARRIER")


def read_state(host: Host, names: Collection[str]) -> State:
    """The state of these interfaces on `host`. On a host without ``ip`` or ``tc`` that part is absent."""
    links = {link.get("ifname"): link for link in ask(host, "ip", "-j", "addr", "show")}
    routes = ask(host, "ip", "-j", "route", "show", "table", "all")
    qdiscs = ask(host, "tc", "-j", "qdisc", "show")
    state = {
        "rules": _lines(ask(host, "ip", "-j", "rule", "show")),
        "routes to nowhere": _lines(route for route in routes if route.get("type") == "blackhole"),
    }
    for name in names:
        state |= _link(name, links.get(name))
        lasting = [route for route in routes if route.get("dev") == name and route.get("protocol") != "ra"]
        state[f"{name} routes"] = _lines(lasting)
        hanging = [qdisc for qdisc in qdiscs if qdisc.get("dev") == name]
        state[f"{name} qdiscs"] = _lines(hanging)
        if any(qdisc.get("kind") in ("clsact", "ingress") for qdisc in hanging):
            for hook in ("ingress", "egress"):
                state[f"{name} {hook} filters"] = _lines(ask(host, "tc", "-j", "filter", "show", "dev", name, hook))
    return state


def differences(place: str, before: State, after: State) -> Iterator[str]:
    """One line for every difference."""
    for key in sorted({*before, *after}):
        was, now = before.get(key, ""), after.get(key, "")
        if was != now:
            yield f"{place}: {key}: was {was or 'nothing'}, is {now or 'nothing'}"


def _link(name: str, link: Mapping[str, Any] | None) -> dict[str, str]:
    if link is None:
        return {f"{name} link": "absent"}
    flags = [flag for flag in _LINK_FLAGS if flag in link.get("flags", ())]
    parts = [*flags, f"mtu {link.get('mtu')}", f"master {link.get('master', 'none')}", str(link.get("operstate"))]
    lasting = [info for info in link.get("addr_info", ()) if not info.get("dynamic")]
    return {f"{name} link": " ".join(parts), f"{name} addresses": _lines(lasting)}


def _lines(values: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(sorted(json.dumps(_stable(value), sort_keys=True) for value in values))


def _stable(value: Any) -> Any:
    if isinstance(value, Mapping) and value.get("kind") == "tbf":
        # The kernel keeps burst and latency in ticks: they read back slightly differently for each program.
        value = dict(value, options={"rate": value.get("options", {}).get("rate")})
    if isinstance(value, Mapping):
        return {key: _stable(inner) for key, inner in value.items() if key not in _VOLATILE and not _drawn(key, inner)}
    return [_stable(inner) for inner in value] if isinstance(value, list) else value


def _drawn(key: str, value: object) -> bool:
    """Whether the kernel drew the value: handles from 8000: on are its own numbers, which grow with every one it
    draws."""
    return key == "handle" and re.fullmatch(r"[89a-f][0-9a-f]{3}:", str(value)) is not None and value != "ffff:"
