"""Collects the facts of one host for the set-up, as one JSON object. A stand-alone file that runs there and changes
nothing.

It needs Python 3.8 and its standard library. Its one argument is JSON: the inventory's Python and its folder, the
interfaces to report, the path of nccl-tests, and whether to list the host's Pythons. It judges nothing:
`harness.setup.stages` do.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator  # noqa: UP035  (old hosts: Python 3.8)

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
PROGRAMS = ("apt-get", "g++", "ip", "tc", "sysctl", "setpci", "systemctl")
PYTHONS = ("python3", "python3.13", "python3.12", "python3.11")
PCI = Path("/sys/bus/pci/devices")
ACS, ACS_CONTROL, ACS_REDIRECTS = 0x0D, 6, 0x7F
DISPLAY, BRIDGE, NVIDIA = "0x03", "0x0604", "0x10de"
NCCL_TEST = "all_reduce_perf"


def text_of(path: Path | str) -> str:
    """A file's text without surrounding white space; empty if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def said(argv: list[str], timeout_s: float = 30.0) -> str | None:
    """The output of a command; None if it fails or does not exist."""
    env = dict(os.environ, PATH=PATH)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, env=env, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def system() -> dict[str, str]:
    """The distribution's name and version."""
    lines = (line.partition("=") for line in text_of("/etc/os-release").splitlines())
    known = {name: value.strip('"') for name, _, value in lines}
    return {"id": known.get("ID", "unknown"), "version": known.get("VERSION_ID", "")}


def no_machine() -> str | None:
    """Why this is not a machine of its own; None if it is one."""
    for mark in ("/.dockerenv", "/run/.containerenv"):
        if Path(mark).exists():
            return "it is a container"
    if text_of("/run/systemd/container"):
        return "it is a container"
    try:
        if os.readlink("/proc/self/ns/net") != os.readlink("/proc/1/ns/net"):  # noqa: PTH115  (Python 3.8)
            return "it is a network namespace"
    except OSError:
        return None
    return None


def pythons() -> dict[str, dict[str, Any]]:
    """Every Python here, with the parts needed to make an environment with it and to build for it."""
    ask = (
        "import json, os, sys, sysconfig\n"
        "try:\n import ensurepip, venv\n has = True\n"
        "except ImportError:\n has = False\n"
        "header = os.path.exists(os.path.join(sysconfig.get_path('include'), 'Python.h'))\n"
        "print(json.dumps({'version': sys.version_info[:2], 'venv': has, 'header': header}))"
    )
    found = {}
    for name in PYTHONS:
        path = shutil.which(name, path=PATH)
        told = said([path, "-I", "-c", ask]) if path else None
        if path and told:
            found[name] = dict(json.loads(told), path=path)
    return found


def pci_devices() -> list[dict[str, Any]]:
    """GPUs and NICs on PCI: the type of each, and the bridges above it, from the top."""
    found = []
    for path in sorted(PCI.iterdir()) if PCI.is_dir() else []:
        kind = text_of(path / "class")
        is_gpu = kind.startswith(DISPLAY) and text_of(path / "vendor") == NVIDIA
        names = sorted(p.name for p in (path / "net").iterdir()) if (path / "net").is_dir() else []
        if is_gpu or names:
            rdma = sorted(p.name for p in (path / "infiniband").iterdir()) if (path / "infiniband").is_dir() else []
            above = [
                parent for parent in path.resolve().parents if re.fullmatch(r"[0-9a-f]+:\w\w:\w\w\.\w", parent.name)
            ]
            what = {"gpu": is_gpu, "nics": names, "rdma": rdma, "numa": text_of(path / "numa_node") or "-1"}
            found.append(dict(pci_link(path), **what, above=[pci_link(parent) for parent in reversed(above)]))
    return found


def pci_link(path: Path) -> dict[str, str]:
    """One device, and its link in NCCL's notation."""
    speed, width = text_of(path / "max_link_speed"), text_of(path / "max_link_width")
    return {"bus": path.name, "class": text_of(path / "class"), "speed": speed, "width": width or "0"}


def gpu_driver() -> dict[str, Any]:
    """The running version, the version on disk, and the number of GPUs that the driver shows."""
    shown = said(["nvidia-smi", "-L"])
    return {
        "running": text_of("/sys/module/nvidia/version") or None,
        "on_disk": said(["modinfo", "-F", "version", "nvidia"]) or None,
        "shown": len([line for line in (shown or "").splitlines() if line.startswith("GPU ")]),
        "nvcc": shutil.which("nvcc", path=PATH + ":/usr/local/cuda/bin"),
    }


def redirecting() -> list[str]:
    """The PCI bridges whose access control redirects peer-to-peer traffic up to the root."""
    return [path.name for path in bridges() if (acs_control(path) or 0) & ACS_REDIRECTS]


def bridges() -> Iterator[Path]:
    """Every PCI bridge."""
    for path in sorted(PCI.iterdir()) if PCI.is_dir() else []:
        if text_of(path / "class").startswith(BRIDGE):
            yield path


def acs_control(path: Path) -> int | None:
    """The control register of the access control capability; None without one, or without the right to read it."""
    try:
        config = (path / "config").read_bytes()
    except OSError:
        return None
    place, steps = 0x100, 0
    while 0x100 <= place <= len(config) - 8 and steps < 256:
        head = struct.unpack_from("<I", config, place)[0]
        if head & 0xFFFF == ACS:
            return int(struct.unpack_from("<H", config, place + ACS_CONTROL)[0])
        place, steps = head >> 20, steps + 1
    return None


def interfaces(names: list[str]) -> dict[str, dict[str, Any]]:
    """Speed and ARP settings of each interface; `all` has no speed."""
    found: dict[str, dict[str, Any]] = {}
    for name in [*names, "all"]:
        conf = Path("/proc/sys/net/ipv4/conf", name)
        speed = text_of(Path("/sys/class/net", name, "speed"))
        found[name] = {
            "arp_ignore": int(text_of(conf / "arp_ignore") or 0),
            "arp_announce": int(text_of(conf / "arp_announce") or 0),
            "speed_bit_s": int(speed) * 1_000_000 if speed.isdigit() and int(speed) > 0 else None,
        }
    return found


def core(python: str, prefix: str | None) -> dict[str, Any]:
    """This project on the host: the result of the set-up, and the content of the inventory's Python."""
    ask = (
        "from importlib.metadata import version\nimport r2ccl_core.perf.cli\n"
        "from r2ccl_core.native import load, plugin_path\nload(), plugin_path()\nprint(version('r2ccl'))"
    )
    return {
        "digest": text_of(Path(prefix, "r2ccl-setup.digest")) or None if prefix else None,
        "exists": bool(prefix) and Path(str(prefix)).exists(),
        "version": said([python, "-c", ask], timeout_s=120.0),
    }


def nccl_tests(where: str | None) -> str | None:
    """The folder that contains nccl-tests, at the given path or in an installed package."""
    if where is None:
        return None
    if where.startswith("/"):
        places = [Path(where), Path(where, "build")]
    else:
        listed = said(["dpkg", "-L", where]) or said(["rpm", "-ql", where]) or ""
        places = [Path(line).parent for line in listed.splitlines() if Path(line).name == NCCL_TEST]
    runs = [str(place) for place in places if os.access(place / NCCL_TEST, os.X_OK)]
    return runs[0] if runs else None


def look(asked: dict[str, Any]) -> dict[str, Any]:
    """All facts."""
    prefix = asked["prefix"]
    return {
        "system": system(),
        "no_machine": no_machine(),
        "programs": {name: shutil.which(name, path=PATH) for name in PROGRAMS},
        "pythons": pythons() if asked["software"] else {},
        "pci": pci_devices(),
        "gpu_driver": gpu_driver(),
        "redirecting": redirecting(),
        "interfaces": interfaces(asked["nics"]),
        "core": core(asked["python"], prefix) if asked["software"] else {},
        "nccl_tests": nccl_tests(asked["nccl_tests"]),
        "topology": text_of(Path(prefix, "nccl_topology.xml")) if prefix else "",
    }


if __name__ == "__main__":
    print(json.dumps(look(json.loads(sys.argv[1]))))
