"""Switches off the access control of PCI bridges that sends traffic between GPUs and NICs through the processor."""

from harness.setup.base import Done, Run, Seen, Stage, State, Stuck, ToDo, Unneeded


def judge(seen: Seen) -> State:
    """Access control matters only between a GPU and another device; a reboot switches it on again."""
    if not any(device["gpu"] for device in seen.facts["pci"]):
        return Unneeded("has no GPU")
    bridges = seen.facts["redirecting"]
    if not bridges:
        return Done("no PCI bridge redirects")
    if not seen.facts["programs"]["setpci"]:
        return Stuck(f"{len(bridges)} PCI bridges redirect, and setpci is missing", "run the stage packages")
    why = "traffic between GPU and NIC went up to the processor"
    steps = tuple(Run(("setpci", "-s", bridge, "ECAP_ACS+6.w=0000"), why) for bridge in bridges)
    return ToDo(f"{len(bridges)} PCI bridges redirect what GPUs and NICs send each other", steps)


STAGE = Stage("acs", "switches PCI access control off", "until a reboot", judge, ("packages",), True)
