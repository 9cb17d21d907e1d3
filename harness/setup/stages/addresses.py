"""Every data NIC is up and has the inventory's address."""

from harness.setup.base import Done, Port, Run, Seen, Stage, State, Stuck, ToDo
from harness.setup.ports import one_line


def judge(seen: Seen) -> State:
    """NICs that are missing or carry SSH are reported first, and are not changed."""
    if seen.missing:
        return Stuck(*one_line(seen.missing))
    lacking = [port for port in seen.ports if _steps(port)]
    if not lacking:
        return Done(f"{len(seen.ports)} NICs are up and have their addresses")
    names = ", ".join(port.link.name for port in lacking)
    return ToDo(f"no address, or down: {names}", tuple(run for port in lacking for run in _steps(port)))


def _steps(port: Port) -> list[Run]:
    name, found = port.link.name, []
    for address in (port.entry.ipv4, port.entry.ipv6):
        if address is not None and not port.link.has_address(str(address.ip)):
            add = ("ip", "address", "add", address.with_prefixlen, "dev", name)
            found.append(Run(add, f"the address of rail {port.entry.rail}"))
    if not port.link.up:
        found.append(Run(("ip", "link", "set", "dev", name, "up"), f"the NIC of rail {port.entry.rail} was down"))
    return found


STAGE = Stage("addresses", "gives every data NIC its address", "until a reboot", judge, ("packages",))
