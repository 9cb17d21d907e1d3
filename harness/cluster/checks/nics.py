"""Findings about each host's NICs: found, up, speed, addresses, ARP settings, switch ports. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Interface, ip_interface

from harness.cluster.checks.evidence import Evidence
from harness.cluster.checks.finding import Finding, error, note, ok, split_remedy, warning
from harness.cluster.find_nics import port_mistakes
from harness.cluster.gather import Surveyed
from harness.hosts.base import Nic
from harness.hosts.links import Link
from r2ccl_core.units import format_rate

ARP_REMEDY = "sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, and in /etc/sysctl.d"
FILTER_REMEDY = "sysctl -w net.ipv4.conf.all.rp_filter=0 and that of the NIC (2 is fine, too), and in /etc/sysctl.d"


def findings(seen: Evidence) -> Iterator[Finding]:
    """Findings about every NIC that the inventory names, on every host that was reached."""
    for name, nics in seen.nics.items():
        survey = seen.surveys[name]
        wrong = [error("nics", name, *split_remedy(line)) for line in seen.wrong_nics.get(name, ())]
        wrong += [found for nic in nics for found in _nic(name, nic, survey)]
        yield from wrong or [ok("nics", name, "every NIC of the inventory is up and has its address")]
        yield from arp(name, nics, survey)
        yield from (error("switch", name, *split_remedy(line)) for line in port_mistakes(nics, seen.switches))
    yield from _counts(seen)


def _nic(name: str, nic: Nic, survey: Surveyed) -> Iterator[Finding]:
    link = survey.links.by_name[nic.name]
    if not link.up:
        yield error("nics", name, f"{nic.name} is down", f"ip link set dev {nic.name} up")
    elif not link.carrier:
        yield error("nics", name, f"{nic.name} has no carrier", "look at its cable, transceiver and switch port")
    ipv4 = [address for address in link.addresses if ":" not in address]
    if not ipv4:
        what = f"{nic.name} has no IPv4 address, and the core carries nothing else"
        yield error("nics", name, what, f"ip address add ADDRESS/24 dev {nic.name}")
    if len(ipv4) > 1:
        what = f"{nic.name} has {len(ipv4)} IPv4 addresses, which count as so many NICs"
        yield warning("nics", name, what, f"ip address del one of {', '.join(ipv4)} dev {nic.name}")
    yield from _speed(name, nic, link, survey)


def _speed(name: str, nic: Nic, link: Link, survey: Surveyed) -> Iterator[Finding]:
    shown = survey.facts["nics"].get(nic.name, {})
    speed = None if link.kind == "veth" else shown.get("speed_bit_s")
    if speed and nic.rate_bit_s and speed < nic.rate_bit_s:
        what = f"{nic.name} runs at {format_rate(speed)}, the inventory says {format_rate(nic.rate_bit_s)}"
        yield warning("speed", name, what, "look at cable and switch port, or correct the inventory")
    if not speed and not nic.rate_bit_s:
        what = f"the speed of {nic.name} is not known; 10 Gbit/s are assumed where times must be estimated"
        yield note("speed", name, what, "write its rate into the inventory")
    if shown.get("duplex") == "half":
        yield warning("speed", name, f"{nic.name} runs in half duplex", "let it negotiate, or set full duplex")


def arp(name: str, nics: tuple[Nic, ...], survey: Surveyed) -> Iterator[Finding]:
    """Findings about ARP: a Linux host answers ARP for all its addresses on every NIC, unless it is configured
    otherwise."""
    addressed = {link.name: _networks(link) for link in survey.links.by_name.values() if not link.loopback}
    homes = [link for link, networks in addressed.items() if networks]
    if len(homes) < 2:
        return
    subnets = Counter(str(net) for networks in addressed.values() for net in {a.network for a in networks})
    shared = [subnet for subnet, count in subnets.items() if count > 1]
    told = error if shared else warning
    why = f"two of its NICs lie in {shared[0]}" if shared else "it matters as soon as two NICs share a switch"
    sysctls = survey.facts["sysctls"]
    loose = [nic.name for nic in nics if _effective(sysctls, nic.name, "arp_ignore") < 1]
    loud = [nic.name for nic in nics if _effective(sysctls, nic.name, "arp_announce") < 2]
    if loose or loud:
        what = f"{', '.join(sorted({*loose, *loud}))} answer ARP for the addresses of other NICs; {why}"
        yield told("arp", name, what, ARP_REMEDY)
    else:
        yield ok("arp", name, "each NIC answers ARP for its own addresses only")
    strict = [nic.name for nic in nics if _effective(sysctls, nic.name, "rp_filter") == 1]
    if strict and shared:
        what = f"{', '.join(strict)} drop what comes in by another NIC than answers leave by (rp_filter=1)"
        yield warning("arp", name, what, FILTER_REMEDY)


def _networks(link: Link) -> list[IPv4Interface]:
    known = [ip_interface(address) for address in link.addresses]
    return [address for address in known if isinstance(address, IPv4Interface)]


def _effective(sysctls: Mapping[str, Mapping[str, int]], nic: str, key: str) -> int:
    """The larger of the two settings, which is the one that the kernel uses."""
    return max(sysctls.get("all", {}).get(key, 0), sysctls.get(nic, {}).get(key, 0))


def _counts(seen: Evidence) -> Iterator[Finding]:
    counts = Counter(len(nics) for nics in seen.nics.values())
    if len(counts) > 1:
        usual = counts.most_common(1)[0][0]
        for name, nics in seen.nics.items():
            if len(nics) != usual:
                yield note("nics", name, f"has {len(nics)} NICs, most hosts have {usual}", "is one missing?")
