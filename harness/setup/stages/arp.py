"""Each data NIC answers ARP for its own addresses only; otherwise ping works, but traffic arrives at the wrong NIC."""

from harness.setup.base import Done, Port, Run, Seen, Stage, State, ToDo

IGNORE, ANNOUNCE = 1, 2


def judge(seen: Seen) -> State:
    """The setting is made on each data NIC alone; the interface that carries SSH keeps its own."""
    loose = [port for port in seen.ports if port.arp_ignore < IGNORE or port.arp_announce < ANNOUNCE]
    if not loose:
        return Done("each NIC answers for its own addresses only")
    names = ", ".join(port.link.name for port in loose)
    return ToDo(f"{names} answer for the addresses of other NICs", tuple(map(_run, loose)))


def _run(port: Port) -> Run:
    # With slashes a name such as eth0.100 stays one part of the key.
    conf = f"net/ipv4/conf/{port.link.name}"
    keys = (f"{conf}/arp_ignore={IGNORE}", f"{conf}/arp_announce={ANNOUNCE}")
    return Run(("sysctl", "-qw", *keys), "it answered for other NICs of the host")


STAGE = Stage("arp", "lets each data NIC answer for itself only", "until a reboot", judge, ("addresses",))
