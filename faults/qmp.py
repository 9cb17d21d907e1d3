"""Orders to QEMU over a machine's QMP socket: the commands that the faults of virtual machines share."""

import json
from collections.abc import Mapping, Sequence

from faults.base import Order, Slot

# No shell: the socket's path, the event that says it is done, and each command with its arguments are arguments.
_ASK = """\
import json, socket, sys
path, event, *commands = sys.argv[1:]
qemu = socket.socket(socket.AF_UNIX)
qemu.settimeout(20)
qemu.connect(path)
stream = qemu.makefile("rw")
seen = []
def until(wanted):
    for line in stream:
        told = json.loads(line)
        seen.append(told.get("event"))
        if "error" in told:
            sys.exit(told["error"]["desc"])
        if wanted(told):
            return told["return"] if "return" in told else told
    sys.exit("QEMU has ended")
def ask(command, arguments):
    stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\\n")
    stream.flush()
    return until(lambda told: "return" in told)
until(lambda told: "QMP" in told)
ask("qmp_capabilities", {})
for command, arguments in zip(commands[::2], commands[1::2]):
    print(json.dumps(ask(command, json.loads(arguments))))
if event and event not in seen:
    until(lambda told: told.get("event") == event)
"""


def order(
    slot: Slot, command: str, arguments: Mapping[str, object], *, until: str = "", lenient: bool = False
) -> Order:
    """One QMP command, which prints what QEMU returns; `until` names the event that it waits for.

    With `lenient` it may fail because there was nothing to do.
    """
    return orders(slot, [(command, arguments)], until=until, lenient=lenient)


def orders(
    slot: Slot, commands: Sequence[tuple[str, Mapping[str, object]]], *, until: str = "", lenient: bool = False
) -> Order:
    """Several, one right after another; as `order`."""
    python = "-python3" if lenient else "python3"
    words = (word for command, arguments in commands for word in (command, json.dumps(dict(arguments))))
    return Order(slot.place, (python, "-I", "-S", "-c", _ASK, slot.qmp, until, *words))


def status(slot: Slot) -> Order:
    """Reports whether the machine runs, as QEMU's ``query-status`` does."""
    return order(slot, "query-status", {})


def set_link(slot: Slot, *, up: bool) -> Order:
    """The cable of a NIC: the guest gets or loses the carrier."""
    return order(slot, "set_link", {"name": slot.device, "up": up})
