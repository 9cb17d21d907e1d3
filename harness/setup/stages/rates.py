"""Limits the sending rate of every data NIC whose port is faster than the inventory's rate, by a token bucket.

The bucket and its handle are those of a local cluster, so faults that change a NIC's rate recognise it as the NIC's
own, and restore it.
"""

from harness.setup.base import Done, Port, Run, Seen, Stage, State, Stuck, ToDo, Unneeded
from r2ccl_core.model.token_bucket import HANDLE, TokenBucket
from r2ccl_core.units import format_rate


def judge(seen: Seen) -> State:
    """A port that cannot exceed the rate is not limited."""
    wanted = [port for port in seen.ports if _limit(port)]
    if not wanted:
        return Unneeded("no NIC is to be slower than its port; rate in the inventory says how fast each is")
    occupied = [port for port in wanted if port.device.occupied not in (None, "tbf")]
    if occupied:
        shown = ", ".join(f"{port.link.name} ({port.device.occupied})" for port in occupied)
        what = f"queueing disciplines of somebody else are in the way: {shown}"
        return Stuck(what, "tc qdisc del dev NIC root there, if nobody needs it")
    steps = tuple(_run(port) for port in wanted if port.device.shaping is None)
    if steps:
        return ToDo(f"{len(steps)} NICs send faster than the inventory says", steps)
    rates = sorted({format_rate(rate) for port in wanted if (rate := port.entry.rate_bit_s)})
    return Done(f"{len(wanted)} NICs send {' or '.join(rates)} at most")


def _limit(port: Port) -> bool:
    rate, speed = port.entry.rate_bit_s, port.speed_bit_s
    return rate is not None and (speed is None or rate < speed)


def _run(port: Port) -> Run:
    assert port.entry.rate_bit_s is not None
    bucket = TokenBucket.for_rate(port.entry.rate_bit_s)
    argv = ("tc", "qdisc", "replace", "dev", port.link.name, "root", "handle", HANDLE, *bucket.words)
    return Run(argv, f"{format_rate(port.entry.rate_bit_s)}; `tc qdisc del dev {port.link.name} root` undoes it")


STAGE = Stage("rates", "limits data NICs to the inventory's rate", "until a reboot", judge, ("addresses",))
