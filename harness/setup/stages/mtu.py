"""The MTU of every data NIC, if the user asks for one."""

from harness.setup.base import Done, Run, Seen, Stage, State, ToDo, Unneeded


def judge(seen: Seen) -> State:
    """The switch must pass such packets, too; `harness cluster check` tests that."""
    wanted = seen.options.mtu
    if wanted is None:
        return Unneeded("not asked for; --mtu 9000 sets it")
    steps = tuple(
        Run(("ip", "link", "set", "dev", port.link.name, "mtu", str(wanted)), f"it was {port.link.mtu}")
        for port in seen.ports
        if port.link.mtu != wanted
    )
    return ToDo(f"not {wanted} on {len(steps)} NICs", steps) if steps else Done(f"{wanted} on every NIC")


STAGE = Stage("mtu", "sets the MTU of every data NIC", "until a reboot", judge, ("addresses",))
