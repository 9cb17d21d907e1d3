"""Packets dropped by a classic BPF program at a NIC's clsact hook: the commands that several faults share.

The hook lies before the NIC's own queueing disciplines and after its driver, needs nothing but cls_bpf, and does not
change rate limits. If the NIC already has a clsact hook (some container networks), adding ours fails. A hook carries no
owner's mark, but filters do: healing removes our filters, and the hook only if it is empty then, so nobody else's
filters are ever touched.
"""

from typing import Literal

from faults.base import TAG, Argv, Device, Direction, Probe, Recipe

PREFERENCE = str(int(TAG, 16))
"""Identifies our filters."""

DROP = "6 0 0 4"
"""ret TC_ACT_STOLEN: the sender is told that the packet has left, as with one that is lost in the network. TC_ACT_SHOT
says that it was dropped here: TCP does not count it as sent then, and Soft-RoCE sends it again at once, without end if
all are dropped, so that its host's kernel hangs (Linux 6.1)."""
PASS = f"6 0 0 {2**32 - 1}"
"""ret TC_ACT_UNSPEC"""

DROP_ALL = f"1,{DROP}"

# The device's name is an argument: the shell sees our own words only.
_UNHOOK = f"""\
for hook in egress ingress; do tc filter del dev "$0" $hook pref {PREFERENCE}; done
left=$(tc filter show dev "$0" egress; tc filter show dev "$0" ingress)
[ -n "$left" ] || tc qdisc del dev "$0" clsact
"""

NEEDS = frozenset({"tc", "sh"})
"""The programs that these commands call."""

REHEARSAL: tuple[Argv, ...] = (
    ("tc", "qdisc", "add", "dev", "lo", "clsact"),
    ("tc", "filter", "add", "dev", "lo", "egress", "protocol", "all", "bpf", "direct-action", "bytecode", DROP_ALL),
)


def drop_share(share: float) -> str:
    """A program that drops each packet with probability `share`: ld rand; jge K, pass; drop; pass."""
    if share >= 1.0:
        return DROP_ALL
    rand = 2**32 - 4096 + 56
    # Jumps over the drop when the random word is at or above the threshold.
    threshold = min(max(1, round(share * 2**32)), 2**32 - 1)
    return f"4,32 0 0 {rand},53 1 0 {threshold},{DROP},{PASS}"


def recipe(device: Device, direction: Direction, program: str, kind: str) -> Recipe:
    """Attaches `program`, and removes the hook again; directions as the device sees them."""
    inject = [device.free_hook(kind).run("tc", "qdisc", "add", "dev", device.name, "clsact")]
    for hook in hooks(direction):
        words = ("protocol", "all", "pref", PREFERENCE, "handle", "1", "bpf", "direct-action", "bytecode", program)
        inject.append(device.run("tc", "filter", "add", "dev", device.name, hook, *words))
    return Recipe(tuple(inject), (device.run("-sh", "-c", _UNHOOK, device.name),))


def signs(device: Device, direction: Direction) -> tuple[Probe, ...]:
    """Our filters are there."""
    shown = (device.run("tc", "filter", "show", "dev", device.name, hook) for hook in hooks(direction))
    return tuple(Probe(order, rf"pref {PREFERENCE}\b") for order in shown)


def hooks(direction: Direction) -> tuple[Literal["egress", "ingress"], ...]:
    """The hooks of a direction."""
    return {"tx": ("egress",), "rx": ("ingress",), "both": ("egress", "ingress")}[direction]  # type: ignore[return-value]
