"""A competing flow on the same NIC: another job's traffic, which takes its share of the rate and of the queues."""

from ipaddress import ip_address
from struct import unpack
from typing import ClassVar

from pydantic import Field

from faults.base import SHARED, Effect, Fault, PlotHint, Probe, Recipe, Sign, Target
from faults.errors import NotPossibleError
from faults.quantities import BitRate, ShareOrRate
from r2ccl_core.units import format_rate

# Datagrams of 60 KiB, paced by the clock. The flow reports when it is ready, starts at a line on its standard input,
# reports that it is sending, and ends with that input, so that it does not outlive the healer. It is bound to the NIC:
# if the NIC goes down, it must not use another. It keeps no backlog: what could not be sent in time is skipped.
FLOW = """\
import select, socket, sys, time
nic, own, peer, rate = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
family = socket.AF_INET6 if ":" in own else socket.AF_INET
flow = socket.socket(family, socket.SOCK_DGRAM)
flow.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode())
flow.bind((own, 0))
print("ready", flush=True)
if not sys.stdin.readline():
    sys.exit()
flow.connect((peer, 9))
print("going", flush=True)
load, due = bytes(61440), time.monotonic()
while not select.select([0], [], [], max(0.0, due - time.monotonic()))[0]:
    try:
        flow.send(load)
    except OSError:
        time.sleep(0.001)
    due = max(due + len(load) * 8 / rate, time.monotonic() - 0.01)
"""


class NicSharedCongestion(ShareOrRate, Fault):
    """A UDP flow from the NIC to the discard port of a peer on its rail."""

    kind: ClassVar[str] = "nic_shared_congestion"
    colour: ClassVar[str | None] = SHARED
    needs: ClassVar[frozenset[str]] = frozenset({"python3", "cat"})

    share: float = Field(default=0.5, gt=0, le=1, description="of the NIC's rate that the flow offers")
    rate: BitRate | None = Field(
        default=None, gt=0, description="what it offers, instead of share, such as '200 Mbit/s'"
    )

    def recipe(self, target: Target) -> Recipe:
        """The flow runs from inject to heal."""
        if target.address is None or not target.peers:
            raise NotPossibleError(f"{self.kind} needs a peer of {target.host} {target.nic} on its rail; there is none")
        ends = (target.nic, target.address, target.peers[0])
        words = ("python3", "-I", "-S", "-c", FLOW, *ends, f"{self._offered(target):.0f}")
        return Recipe(beside=(target.here(*words),))

    def signs(self, target: Target) -> tuple[Sign, ...]:
        """A socket goes from the NIC's address to the peer's discard port."""
        if target.address is None or not target.peers:
            return ()
        table = "/proc/net/udp6" if ":" in target.address else "/proc/net/udp"
        own, peer = _in_table(target.address), _in_table(target.peers[0])
        return (Probe(target.here("cat", table), rf" {own}:[0-9A-F]{{4}} {peer}:0009 "),)

    def effects(self, target: Target) -> tuple[Effect, ...]:
        """The flow's bandwidth is not available to others."""
        taken = self._offered(target) / target.rate_bit_s if target.rate_bit_s else self.share
        return (Effect(target.host, target.nic, rate_factor=max(0.05, 1 - taken), direction="tx"),)

    def plot(self, target: Target) -> PlotHint:
        """A window."""
        offered = format_rate(self.rate) if self.rate else f"{self.share:.0%}"
        return PlotHint(f"{target.host} {target.nic} shared with a flow of {offered}", self.colour)

    def _offered(self, target: Target) -> float:
        if self.rate is not None:
            return self.rate
        if target.rate_bit_s is None:
            raise NotPossibleError(
                f"{self.kind}: the rate of {target.host} {target.nic} is not known; give rate instead of share"
            )
        return target.rate_bit_s * self.share


def _in_table(address: str) -> str:
    """An address in the form of the kernel's socket tables: words in this machine's byte order."""
    packed = ip_address(address).packed
    return "".join(f"{word:08X}" for word in unpack(f"={len(packed) // 4}I", packed))
