"""The packages that the other stages need, on hosts that have apt."""

from harness.setup.base import Done, Run, Seen, Stage, State, Stuck, ToDo
from harness.setup.stages import pythons

INSTALL_S = 1800.0
LOCK = "DPkg::Lock::Timeout=600"
"""Waits for apt's lock, because a host that has just booted often updates itself."""


def missing(seen: Seen) -> list[str]:
    """The missing packages, by their names in Debian and Ubuntu. A present tool counts, however it was installed."""
    programs = seen.facts["programs"]
    found = [] if programs["ip"] and programs["tc"] else ["iproute2"]
    found += [] if programs["sysctl"] else ["procps"]
    if seen.facts["redirecting"] and not programs["setpci"] and not seen.facts["no_machine"]:
        found.append("pciutils")
    core = seen.options.core
    if core is None or seen.facts["core"]["digest"] == core.digest:
        return found
    if core.built_there and not programs["g++"]:
        found.append("g++")
    return found + pythons.packages(seen.facts["pythons"], headers=core.built_there)


def install(packages: list[str], why: str) -> tuple[Run, ...]:
    """The commands of apt."""
    quiet = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", LOCK)
    return (
        Run(("dpkg", "--configure", "-a"), "what an installation that was broken off has left", INSTALL_S),
        Run((*quiet, "update", "-qq"), "the lists of packages, as they are today", INSTALL_S),
        Run((*quiet, "install", "-qq", "-y", "--no-install-recommends", *packages), why, INSTALL_S),
    )


def judge(seen: Seen) -> State:
    """Whether all of them are installed."""
    lacking = missing(seen)
    if not lacking:
        return Done("all that the other stages need is there")
    if not seen.facts["programs"]["apt-get"]:
        system = seen.facts["system"]
        what = f"lacks {', '.join(lacking)}, and {system['id']} {system['version']} has no apt-get"
        return Stuck(what, "install what these packages of Debian hold")
    return ToDo(f"lacks {', '.join(lacking)}", install(lacking, "what the other stages need"))


STAGE = Stage("packages", "installs the programs that the other stages need", "stays", judge, software=True)
