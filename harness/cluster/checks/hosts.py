"""Findings about single hosts: reached or not, clock, rights, memory, kernel features. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from faults.registry import FAULTS
from harness.cluster.checks.evidence import Evidence
from harness.cluster.checks.finding import Finding, error, note, ok, split_remedy, warning
from harness.cluster.gather import Remains, Surveyed
from r2ccl_core.units import format_size

CLOCK_NOTE_S, CLOCK_WARNING_S = 1e-3, 50e-3
MEMORY_ERROR_BYTES, MEMORY_WARNING_BYTES = 512 << 20, 2 << 30
SHARED_BYTES = 512 << 20
"""The space that NCCL needs in /dev/shm with eight ranks per host, with some reserve."""

KERNEL_REMEDY = (
    "load the module (modprobe sch_netem sch_tbf sch_ingress cls_bpf; Debian, Ubuntu: linux-modules-extra), "
    "or leave such faults out"
)
TCP_REMEDY = "sysctl -w net.ipv4.tcp_congestion_control=cubic; to keep it, put that setting into /etc/sysctl.d"
PACKAGES = {
    "ovs-ofctl": "openvswitch-switch",
    "ovs-vsctl": "openvswitch-switch",
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "ibportstate": "infiniband-diags",
}
ON_CARDS = frozenset({"ovs-ofctl", "ovs-vsctl"})
"""Programs that a switch needs and no host: Open vSwitch runs on the card."""


def findings(seen: Evidence) -> Iterator[Finding]:
    """Findings about every host of the inventory, and its switches."""
    if len(seen.inventory.hosts) < 2:
        yield error("hosts", "", "there is one host", "a collective needs at least 2")
    for name, failure in seen.errors.items():
        yield error("reached", name, *split_remedy(failure.message))
    for name, survey in seen.surveys.items():
        if name not in seen.errors:
            yield ok("reached", name, "SSH and the agent answer")
        yield _clock(name, survey)
        yield from _rights(name, survey)
        yield from _memory(name, survey.facts["memory"])
        yield from _programs(seen, name, survey.facts["programs"], bool(survey.facts["rdma"].get("ports")))
        yield from _kernel(seen, name, survey.facts["features"])
        yield from tcp(name, survey.facts["congestion_control"])
        yield from _failed(name, survey.facts)
    for name, remains in seen.remains.items():
        yield _remains(name, remains)


def _remains(name: str, remains: Remains) -> Finding:
    if remains.armed:
        remedy = "wait for its end; harness clean --cluster HOSTS.toml --all would break it"
        return warning("faults", name, "a sweep that is under way has armed a fault", remedy)
    if remains.things:
        what = f"{remains.things} things that faults have made are still there"
        return error("faults", name, what, "harness clean --cluster HOSTS.toml")
    return ok("faults", name, "nothing is left of earlier faults")


def _clock(name: str, survey: Surveyed) -> Finding:
    offset_s, error_s = survey.clock_offset_s, survey.clock_error_s
    sure_s = abs(offset_s) - error_s
    direction = "ahead of" if offset_s > 0 else "behind"
    what = f"its clock is {_span(abs(offset_s))} {direction} ours, known within {_span(error_s)}"
    if sure_s > CLOCK_WARNING_S:
        return warning("clock", name, what, "let chrony or ntpd keep it; sweeps correct for it, logs of others do not")
    if sure_s > CLOCK_NOTE_S:
        return note("clock", name, what, "sweeps correct for it")
    return ok("clock", name, f"its clock is ours within {_span(CLOCK_NOTE_S)}, as far as that can be told")


def _span(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms"


def _rights(name: str, survey: Surveyed) -> Iterator[Finding]:
    rights = survey.facts["rights"]
    if rights.get("net_admin"):
        yield ok("rights", name, "may change interfaces")
    elif "failed" not in rights:
        remedy = "set sudo = true in the inventory and let the user run sudo without a password, or log in as root"
        yield error("rights", name, "may not change interfaces, so no fault can be made", remedy)
    limit, ports = rights.get("memlock_bytes"), survey.facts["rdma"].get("ports")
    if ports and limit is not None:
        what = f"may lock {format_size(limit)} of memory only; RDMA registers more"
        yield warning("rights", name, what, "set memlock to unlimited in /etc/security/limits.d")


def _memory(name: str, memory: Mapping[str, int]) -> Iterator[Finding]:
    free, shared = memory.get("available_bytes", 0), memory.get("shm_bytes", 0)
    shown = f"{free / 2**30:.1f} GiB of memory are free"
    if free < MEMORY_ERROR_BYTES:
        yield error("memory", name, shown, "end what fills it; buffers of large messages will not fit")
    elif free < MEMORY_WARNING_BYTES:
        yield warning("memory", name, shown, "end what fills it, or keep to small messages")
    else:
        yield ok("memory", name, f"{MEMORY_WARNING_BYTES >> 30} GiB of memory or more are free")
    if shared < SHARED_BYTES:
        what = f"/dev/shm takes {shared / 2**20:.0f} MiB only"
        yield warning("memory", name, what, "enlarge it (mount -o remount,size=2G /dev/shm), or NCCL may fail to start")


def _programs(seen: Evidence, name: str, programs: Mapping[str, str | None], has_rdma: bool) -> Iterator[Finding]:
    for program in (program for program, path in programs.items() if path is None and program not in ON_CARDS):
        users = sorted(kind for kind, fault in FAULTS.items() if program in fault.needs)
        remedy = f"install the package {PACKAGES.get(program, program)}"
        told = error if seen.faults & set(users) or program == "ip" else warning
        if program == "ibportstate" and not has_rdma:
            told = note
        what = f"has no {program!r}" + (f", which {', '.join(users)} need" if users else "")
        yield told("programs", name, what, remedy)


def _kernel(seen: Evidence, name: str, features: Mapping[str, str | None]) -> Iterator[Finding]:
    lacking: dict[str, list[str]] = {}
    for kind, why in features.items():
        if why is not None and kind in FAULTS:
            lacking.setdefault(why, []).append(kind)
    for why, kinds in lacking.items():
        if why.startswith("not tried"):
            what = f"faults of {', '.join(kinds)}: {why}"
            yield note("kernel", name, what, "install it, or set sudo = true in the inventory, to have it tried")
            continue
        told = error if seen.faults & set(kinds) else warning
        yield told("kernel", name, f"its kernel cannot make {', '.join(kinds)} ({why})", KERNEL_REMEDY)
    if not lacking:
        yield ok("kernel", name, "its kernel can make every fault")


def tcp(name: str, congestion_control: str | None) -> Iterator[Finding]:
    """Findings about TCP: BBR reduces each stream to four packets for 0.2 s every ten seconds, and its streams share a
    NIC unequally."""
    if congestion_control == "bbr":
        what = "TCP's congestion control is bbr, under which single operations take up to a quarter longer"
        yield warning("tcp", name, what, TCP_REMEDY)


def _failed(name: str, facts: Mapping[str, Any]) -> Iterator[Finding]:
    for topic, told in facts.items():
        if isinstance(told, dict) and isinstance(told.get("failed"), str):
            yield warning(topic, name, f"could not be examined: {told['failed']}", "please report this")
