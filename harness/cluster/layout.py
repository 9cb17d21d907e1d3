"""The layout of a local cluster as plain values: names, addresses and the numbers of its rate limits.

Everything that is made carries the cluster's tag, so that what a crash leaves behind can be recognised.
"""

import re
from dataclasses import dataclass

from harness.cluster.base import ClusterSpec
from harness.hosts.base import Nic

NAMESPACE_PREFIX = "r2ccl-"
UPLINK_PREFIX = "r2m"
MANAGEMENT_NIC = "mgmt0"
SUBNETS = tuple(f"198.{net}.{part}" for net in (18, 19) for part in range(256))
"""Management networks (/24), out of the block for benchmarks (RFC 2544): it never appears in the Internet."""

GSO_BYTES = 65536 + 1024
"""The largest packet TCP hands to a NIC at once, and room for its headers."""

QUEUE_S = 0.016
"""How long a packet may wait behind a NIC's rate limit."""

BURST_S = 0.002
"""How much a NIC may send at once after a pause, as time at its rate; at least one GSO packet."""


@dataclass(frozen=True)
class RateLimit:
    """The parameters of one token bucket filter (tbf)."""

    rate_bytes_s: int
    burst_bytes: int
    limit_bytes: int


def rate_limit(rate_bit_s: float) -> RateLimit:
    """For one direction of one NIC.

    A packet larger than the burst would be cut up by the kernel, one larger than the queue dropped; so both
    hold GSO packets whole even where the rate alone would ask for less.
    """
    rate = rate_bit_s / 8
    burst = max(2 * GSO_BYTES, int(rate * BURST_S))
    return RateLimit(int(rate), burst, max(4 * GSO_BYTES, int(rate * QUEUE_S)))


@dataclass(frozen=True)
class HostLayout:
    """One host: its namespace, its management address, its NICs and the switch ports they are plugged in."""

    name: str
    namespace: str
    address: str
    nics: tuple[Nic, ...]
    ports: tuple[str, ...]
    management_port: str


@dataclass(frozen=True)
class Layout:
    """A whole local cluster."""

    tag: str
    switch: str
    """The namespace of the bridges: one per rail, `rail0`.., and `mgmt`."""
    uplink: str
    """The only interface in the caller's namespace; its other end is `up` in the switch."""
    uplink_address: str
    rails: tuple[str, ...]
    hosts: tuple[HostLayout, ...]


def lay_out(spec: ClusterSpec, tag: str, subnet: str) -> Layout:
    """All names and addresses of a cluster; `subnet` is one of `SUBNETS`."""
    return Layout(
        tag=tag,
        switch=f"{NAMESPACE_PREFIX}{tag}-switch",
        uplink=f"{UPLINK_PREFIX}{tag}",
        uplink_address=f"{subnet}.254",
        rails=tuple(f"rail{r}" for r in range(spec.nics)),
        hosts=tuple(_lay_out_host(spec, tag, subnet, h) for h in range(spec.hosts)),
    )


def _lay_out_host(spec: ClusterSpec, tag: str, subnet: str, h: int) -> HostLayout:
    nics = tuple(Nic(f"eth{r}", r, f"10.{100 + r}.0.{h + 1}", spec.rate_bit_s) for r in range(spec.nics))
    return HostLayout(
        name=f"host{h}",
        namespace=f"{NAMESPACE_PREFIX}{tag}-host{h}",
        address=f"{subnet}.{h + 1}",
        nics=nics,
        ports=tuple(f"h{h}r{r}" for r in range(spec.nics)),
        management_port=f"h{h}mgmt",
    )


def tag_of(name: str) -> str | None:
    """The tag in the name of a namespace or an uplink of ours; None for all other names."""
    match = re.fullmatch(r"r2ccl-([0-9a-f]{8})-(?:switch|host\d+)|r2m([0-9a-f]{8})", name)
    return (match[1] or match[2]) if match else None
