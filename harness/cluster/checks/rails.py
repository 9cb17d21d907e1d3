"""Findings about the networks between hosts: reachability on each rail, full-size packets, paths between rails.
Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from harness.cluster.checks.evidence import Evidence, to_root
from harness.cluster.checks.finding import Finding, error, note, ok, warning
from harness.cluster.checks.nics import ARP_REMEDY
from harness.cluster.gather import Endpoint, Probe, Reached

SILENT_REMEDY = "look at cable, switch port, VLAN and address, and at firewalls (UDP 20000-32000 is tried)"


def findings(seen: Evidence) -> Iterator[Finding]:
    """Findings about every rail, then about the paths between rails and to rank 0."""
    for rail, ends in seen.rails().items():
        wrong = list(_rail(seen, seen.rail_name(rail), ends))
        yield from wrong or [ok("rails", "", f"{seen.rail_name(rail)}: all {len(ends)} NICs reach each other")]
    yield from _across(seen)
    yield from _root(seen)


def _rail(seen: Evidence, name: str, ends: Sequence[Endpoint]) -> Iterator[Finding]:
    if len(ends) == 1:
        yield warning("rails", ends[0].host, f"{name} has no other NIC than its {ends[0].nic}", "leave this NIC out")
    silent: dict[Endpoint, list[tuple[Endpoint, Reached]]] = defaultdict(list)
    astray: dict[Endpoint, list[str]] = defaultdict(list)
    for source in ends:
        for target in ends:
            answer = seen.answers.get(Probe(source, target))
            if answer is None:
                continue
            if answer.arrived_on is None:
                silent[source].append((target, answer))
            elif answer.arrived_on != target.nic:
                astray[target].append(answer.arrived_on)
    yield from _silent(seen, name, silent, len(ends) - 1)
    for target, arrived in astray.items():
        what = f"{name}: packets for {target.nic} arrive at {', '.join(sorted(set(arrived)))}"
        yield error("rails", target.host, what, ARP_REMEDY)
    yield from _sizes(seen, name, ends)


def _silent(
    seen: Evidence, name: str, silent: dict[Endpoint, list[tuple[Endpoint, Reached]]], others: int
) -> Iterator[Finding]:
    """One finding for a NIC that reaches no other NIC, which is then at fault; otherwise one for each pair."""
    cut = {source for source, failed in silent.items() if len(failed) == others}
    for source, failed in silent.items():
        if source in cut:
            what = f"{name}: {source.nic} ({source.address}) reaches nobody: {_reasons(failed)}"
            yield error("rails", source.host, what, SILENT_REMEDY)
            continue
        pairs = [(target, answer) for target, answer in failed if target not in cut]
        if pairs:
            to = ", ".join(target.host for target, _ in pairs)
            what = f"{name}: {source.nic} ({source.address}) does not reach {to}: {_reasons(pairs)}"
            yield error("rails", source.host, what, SILENT_REMEDY)


def _reasons(failed: Sequence[tuple[Endpoint, Reached]]) -> str:
    return ", ".join(sorted({answer.error or "no answer" for _, answer in failed}))


def _sizes(seen: Evidence, name: str, ends: Sequence[Endpoint]) -> Iterator[Finding]:
    """A packet as large as the NIC's MTU must pass whole, or streams stall once they fill their packets."""
    if len({end.mtu for end in ends}) > 1:
        shown = ", ".join(f"{end.host} {end.mtu}" for end in ends)
        yield warning("mtu", "", f"{name}: its NICs have different MTUs: {shown}", "give all NICs of a rail the same")
    for source in ends:
        sized = {p.target: a for p, a in seen.answers.items() if p.source == source and p.size}
        small = {target for target in sized if (a := seen.answers.get(Probe(source, target))) and a.arrived_on}
        lost = sorted(target.host for target in small if sized[target].arrived_on is None)
        if lost:
            what = f"{name}: packets of {source.mtu} bytes from {source.nic} do not reach {', '.join(lost)}"
            yield error("mtu", source.host, what, "set one MTU on all NICs and switch ports of the rail")


def _across(seen: Evidence) -> Iterator[Finding]:
    """Findings about rails that reach each other: no fault, but a lost NIC's traffic may then take another path.

    A packet to another rail's address that arrives on the sender's rail shows that its host answered ARP there.
    """
    rail_of = {end: rail for rail, ends in seen.rails().items() for end in ends}
    across = [
        (probe, answer)
        for probe, answer in seen.answers.items()
        if probe.source in rail_of and probe.target in rail_of and rail_of[probe.source] != rail_of[probe.target]
    ]
    for host in dict.fromkeys(p.target.host for p, a in across if a.arrived_on not in (None, p.target.nic)):
        astray = {(p.target.nic, a.arrived_on) for p, a in across if p.target.host == host and a.arrived_on is not None}
        shown = ", ".join(f"{wanted} at {got}" for wanted, got in sorted(astray) if wanted != got)
        yield warning("arp", host, f"takes packets for {shown}: it answers ARP for its other NICs", ARP_REMEDY)
    ways = {(rail_of[p.source], rail_of[p.target]) for p, a in across if a.arrived_on == p.target.nic}
    if ways:
        shown = ", ".join(f"{seen.rail_name(a)} to {seen.rail_name(b)}" for a, b in sorted(ways))
        yield note("rails", "", f"NICs of different rails reach each other: {shown}", "no fault, if it is meant so")
    elif across:
        yield ok("rails", "", "the rails are separate: no NIC reaches one of another rail")


def _root(seen: Evidence) -> Iterator[Finding]:
    tried = to_root(seen)
    if not tried:
        names = [host.name for host in seen.inventory.hosts]
        if len(names) > 1 and names[0] in seen.surveys:
            where = seen.surveys[names[0]].address
            what = f"rank 0 will be met at {where}, which could not be tried from the other hosts"
            yield warning("management", names[0], what, "set management in the inventory to an address of its own")
        return
    lost = [probe for probe in tried if (a := seen.answers.get(probe)) is None or a.arrived_on is None]
    for probe in lost:
        what = f"does not reach {probe.target.host} at {probe.target.address}, where rank 0 will be met"
        remedy = f"set management of {probe.target.host} to an address that the other hosts reach"
        yield error("management", probe.source.host, what, remedy)
    if not lost:
        yield ok("management", "", f"the other hosts reach rank 0 at {tried[0].target.address}")
