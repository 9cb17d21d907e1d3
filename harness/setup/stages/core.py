"""This package with the NCCL plugin, in an environment of its own at the path of the inventory's Python."""

from harness.setup.base import SENT, Done, Once, Run, Seen, Stage, State, Stuck, ToDo
from harness.setup.core_source import Core
from harness.setup.stages import pythons

INSTALL_S, VENV_S = 1800.0, 900.0
_POINT = (
    "import pathlib, sys, sysconfig; "
    "pathlib.Path(sysconfig.get_path('purelib'), 'r2ccl-packages.pth').write_text(sys.argv[1] + chr(10))"
)


def judge(seen: Seen) -> State:
    """Whether the inventory's Python has the package that the set-up would install."""
    core, there = seen.options.core, seen.facts["core"]
    ours = there["digest"] is not None
    if there["version"] and (core is None or not ours or there["digest"] == core.digest):
        made = "" if ours else ", which is none of ours and is left alone"
        return Done(f"{seen.entry.python} has r2ccl {there['version']}{made}")
    prefix = seen.prefix
    if prefix is None:
        what = f"python = {seen.entry.python!r} names no environment, and has no r2ccl"
        return Stuck(what, 'write python = "/opt/r2ccl/bin/python" into the inventory')
    if there["exists"] and not ours:
        what = f"{prefix} is there, is none of ours, and its Python has no r2ccl"
        return Stuck(what, "name another folder in the inventory's python, or remove this one")
    if core is None:
        return ToDo(f"{seen.entry.python} has no r2ccl", ())
    python = pythons.best(seen.facts["pythons"], headers=core.built_there)
    if python is None:
        return Stuck("has no Python 3.11 or later that can make an environment", "run the stage packages")
    what = f"{seen.entry.python} has {'another' if there['version'] else 'no'} r2ccl"
    once = install(seen, core, prefix, python[1])
    if there["digest"] == core.digest:  # it was installed, and no longer works
        return ToDo(what, (Run(("rm", "-f", once.marker), "so that it is made again"), once))
    return ToDo(what, (once,))


def install(seen: Seen, core: Core, prefix: str, python: str) -> Once:
    """Makes an environment and installs the package in it; without the Internet if `site_packages` has the rest."""
    inside, shared = f"{prefix}/bin/python", seen.options.site_packages
    pip = (inside, "-m", "pip", "--disable-pip-version-check", "--no-input")
    runs = [
        Run((python, "-m", "venv", prefix), f"an environment of its own, by {python}", VENV_S),
        Run((*pip, "uninstall", "-q", "-y", "r2ccl"), "so that a changed package is installed again", VENV_S),
    ]
    aside: tuple[str, ...] = ()
    if shared:
        runs.append(Run((inside, "-c", _POINT, shared), f"what the package needs is taken from {shared}"))
        aside = ("--no-index", "--no-deps", "--no-build-isolation")
    built = "built from the source of this checkout" if core.built_there else "from the wheel"
    runs.append(Run((*pip, "install", "-q", *aside, SENT), f"this package and the NCCL plugin, {built}", INSTALL_S))
    return Once(f"{prefix}/r2ccl-setup.digest", core.digest, tuple(runs), sends=core.path)


STAGE = Stage("core", "installs this package and the NCCL plugin", "stays", judge, ("packages",), software=True)
