"""Collects the facts of one host, as one JSON object. A stand-alone file that runs on the host and changes nothing
there.

It needs Python 3.8 and its standard library; pynvml and pyverbs are used if this Python has them. Its one argument is
JSON: programs to look for, and by name lists of commands that test features of the kernel. Those run in a network
namespace made for them, never on a NIC of the host. It judges nothing: `harness.cluster.checks` does.
"""

from __future__ import annotations

import glob
import hashlib
import json
import mmap
import os
import platform
import re
import resource
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable  # noqa: UP035  (old hosts: Python 3.8)

PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"])
CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"
PORT_ACTIVE = 4
RDMA_MODULES = ("ib_core", "ib_uverbs", "rdma_rxe")


def text_of(path: Path | str) -> str | None:
    """A file's text without surrounding white space; None if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def said(argv: list[str], timeout_s: float = 200.0) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of a command; 127 if it cannot be started."""
    try:
        env = dict(os.environ, PATH=PATH)
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, env=env
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return 127, "", str(e)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def rights() -> dict[str, Any]:
    """The user, its capabilities for the network and the system, and its limits."""
    status = text_of("/proc/self/status") or ""
    effective = int((re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.M) or ["", "0"])[1], 16)
    memlock = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return {
        "uid": os.getuid(),
        "net_admin": bool(effective >> CAP_NET_ADMIN & 1),
        "sys_admin": bool(effective >> CAP_SYS_ADMIN & 1),
        "memlock_bytes": None if memlock == resource.RLIM_INFINITY else memlock,
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def memory() -> dict[str, int]:
    """Memory in bytes, and the free space of /dev/shm."""
    lines = (text_of("/proc/meminfo") or "").splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith("kB")}
    shared = os.statvfs("/dev/shm") if Path("/dev/shm").is_dir() else None
    return {
        "total_bytes": sizes.get("MemTotal", 0),
        "available_bytes": sizes.get("MemAvailable", 0),
        "shm_bytes": shared.f_bavail * shared.f_frsize if shared else 0,
    }


def nic(path: Path) -> dict[str, Any]:
    """One interface in /sys/class/net."""
    speed = text_of(path / "speed") or ""
    device = path / "device"
    rdma = sorted(p.name for p in (device / "infiniband").iterdir()) if (device / "infiniband").is_dir() else []
    return {
        "speed_bit_s": int(speed) * 1_000_000 if speed.isdigit() and int(speed) > 0 else None,
        "duplex": text_of(path / "duplex"),
        "driver": (device / "driver").resolve().name if (device / "driver").exists() else None,
        "pci": device.resolve().name if device.exists() else None,
        "numa_node": text_of(device / "numa_node"),
        "rdma": rdma,
    }


def sysctls() -> dict[str, dict[str, int]]:
    """The settings of each interface, and of `all`, for ARP answers and source filtering."""
    found = {}
    for path in Path("/proc/sys/net/ipv4/conf").iterdir():
        values = {key: text_of(path / key) for key in ("arp_ignore", "arp_announce", "rp_filter")}
        found[path.name] = {key: int(value) for key, value in values.items() if value and value.isdigit()}
    return found


def features(wanted: dict[str, list[list[str]]]) -> dict[str, str | None]:
    """Each feature with None if the kernel has it, else why it does not, or why that is unknown."""
    unshare = shutil.which("unshare", path=PATH)
    if unshare is None:
        return dict.fromkeys(wanted, "not tried: no unshare")
    aside = [unshare, "--net"] if os.getuid() == 0 else [unshare, "--user", "--map-root-user", "--net"]
    if said([*aside, "true"])[0] != 0:
        return dict.fromkeys(wanted, "not tried: no right to make a network namespace")
    known: dict[str, str | None] = {}
    for commands in wanted.values():
        script = script_of(commands)
        absent = [argv[0] for argv in commands if shutil.which(argv[0], path=PATH) is None]
        if absent:
            known[script] = f"not tried: no {absent[0]}"
        elif script not in known:
            status, _, error = said([*aside, "sh", "-c", script])
            known[script] = None if status == 0 else (error.splitlines() or ["refused"])[0]
    return {name: known[script_of(commands)] for name, commands in wanted.items()}


def script_of(commands: list[list[str]]) -> str:
    """The commands as one shell script, one after another."""
    return " && ".join(shlex.join(argv) for argv in commands)


def gpus() -> dict[str, Any]:
    """The GPUs by NVML, else by nvidia-smi; `missing` names the facts that could not be read."""
    present = Path("/proc/driver/nvidia/version").exists()
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return {"source": None, "missing": "pynvml", **gpus_by_program(), "driver_loaded": present}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        told: dict[str, Any] = {"source": None, "missing": None, "count": 0, "names": [], "driver": None, "why": str(e)}
        return {**told, "driver_loaded": present}
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    named = [pynvml.nvmlDeviceGetName(handle) for handle in handles]
    driver = pynvml.nvmlSystemGetDriverVersion()
    return {
        "source": "pynvml",
        "missing": None,
        "count": len(handles),
        "names": [name.decode() if isinstance(name, bytes) else name for name in named],
        "driver": driver.decode() if isinstance(driver, bytes) else driver,
        "driver_loaded": present,
    }


def gpus_by_program() -> dict[str, Any]:
    """The GPUs as nvidia-smi reports them."""
    ask = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    status, out, _ = said(ask)
    lines = [line.split(", ") for line in out.splitlines()] if status == 0 else []
    return {
        "source": "nvidia-smi" if lines else None,
        "count": len(lines),
        "names": [line[0] for line in lines],
        "driver": lines[0][-1] if lines else None,
    }


def rdma() -> dict[str, Any]:
    """Devices and their ports, by verbs, else from /sys; `missing` names the facts that could not be read."""
    ports = rdma_ports()
    told = {"source": "sysfs", "missing": None, "ports": ports, "lacks": rdma_lacks()}
    if not ports:
        return told
    try:
        verbs = verbs_ports()
    except ImportError:
        return {**told, "missing": "pyverbs"}
    for port in ports:
        port.update(verbs.get((port["device"], port["port"]), {"verbs": "not listed"}))
    return {**told, "source": "pyverbs"}


def verbs_ports() -> dict[tuple[str, int], dict[str, Any]]:
    """The ports as a program sees them that opens every device. Raises ImportError without pyverbs."""
    sys.path.append(DEBIAN_PACKAGES)  # the place of python3-pyverbs, which a virtual environment does not search
    try:
        from pyverbs.device import Context, get_device_list  # type: ignore[import-not-found,unused-ignore]
    finally:
        sys.path.remove(DEBIAN_PACKAGES)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for device in get_device_list():
        name = device.name.decode()
        try:
            with Context(name=name) as context:
                for number in range(1, context.query_device().phys_port_cnt + 1):
                    port = context.query_port(number)
                    found[name, number] = {
                        "verbs": "ACTIVE" if port.state == PORT_ACTIVE else str(port.state),
                        "active_mtu": 128 << port.active_mtu,
                        "max_mtu": 128 << port.max_mtu,
                    }
        except Exception as e:
            found[name, 1] = {"verbs": str(e).strip()}
    return found


def rdma_ports() -> list[dict[str, Any]]:
    """Every port by /sys."""
    found = []
    for path in sorted(glob.glob("/sys/class/infiniband/*/ports/*")):  # noqa: PTH207  (a pattern of directories)
        device = path.split("/")[4]
        state, physical = (text_of(f"{path}/{file}") or "" for file in ("state", "phys_state"))
        gids = rdma_gids(path)
        found.append(
            {
                "device": device,
                "port": int(path.split("/")[6]),
                "state": state.partition(": ")[2] or state,
                "physical_state": physical.partition(": ")[2] or physical,
                "rate": text_of(f"{path}/rate"),
                "link_layer": text_of(f"{path}/link_layer"),
                "netdev": next((gid["netdev"] for gid in gids if gid["netdev"]), None) or netdev_of(device, path),
                "gids": gids,
                "counts_bytes": Path(f"{path}/counters/port_xmit_data").exists(),
            }
        )
    return found


def rdma_gids(port: str) -> list[dict[str, Any]]:
    """Every entry of a port's table that is in use: index, address, type (``RoCE v2``) and interface."""
    found = []
    for path in sorted(Path(port, "gids").glob("*"), key=lambda path: int(path.name)):
        gid = text_of(path) or ""
        if gid.strip("0:"):
            kind, netdev = (text_of(f"{port}/gid_attrs/{part}/{path.name}") for part in ("types", "ndevs"))
            found.append({"index": int(path.name), "gid": gid, "type": kind, "netdev": netdev})
    return found


def netdev_of(device: str, port: str) -> str | None:
    """The interface of a port whose table of GIDs is empty: Soft-RoCE names it, a card's interface has the port's
    number."""
    soft = text_of(f"/sys/class/infiniband/{device}/parent")
    if soft:
        return soft
    for path in sorted(Path(f"/sys/class/infiniband/{device}/device/net").glob("*")):
        if int(text_of(path / "dev_port") or "0") + 1 == int(port.rpartition("/")[2]):
            return path.name
    return None


def rdma_lacks() -> list[str]:
    """The modules needed by programs with verbs that are neither loaded nor loadable."""
    folder = Path("/lib/modules") / platform.release()
    known = (text_of(folder / "modules.dep") or "") + (text_of(folder / "modules.builtin") or "")
    loaded = {path.name for path in Path("/sys/module").glob("*")}
    return [name for name in RDMA_MODULES if name not in loaded and f"/{name}.ko" not in known]


def nccl() -> list[dict[str, str]]:
    """Every libnccl.so that the loader or this Python would find, and the version written in it."""
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    folders += [f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/local/cuda/lib64", "/usr/local/nccl/lib"]
    folders += [f"{entry}/nvidia/nccl/lib" for entry in sys.path if entry.endswith("-packages")]
    paths = {path.resolve() for folder in folders if folder for path in Path(folder).glob("libnccl.so*")}
    return [{"path": str(path), "version": written_version(path)} for path in sorted(paths)]


def written_version(path: Path) -> str:
    """The version in the library's own greeting, so that it need not be loaded."""
    with suppress(OSError, ValueError), path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        match = re.search(rb"NCCL version (2\.\d+(\.\d+)?)", data)
        if match:
            return match[1].decode()
    return "unknown"


def package() -> dict[str, Any]:
    """This project on the host: its version for this Python, and its NCCL plugin."""
    code = (
        "import ctypes, json\nfrom importlib.metadata import version\nfrom r2ccl_core.native import plugin_path\n"
        "path, why = str(plugin_path()), None\n"
        "try:\n    ctypes.CDLL(path)\nexcept OSError as error:\n    why = str(error)\n"
        "print(json.dumps([version('r2ccl'), path, why]))"
    )
    status, out, error = said([sys.executable, "-c", code])
    if status != 0:
        return {"version": None, "plugin": None, "why": (error.splitlines() or ["it cannot be imported"])[-1]}
    version, path, refused = json.loads(out.splitlines()[-1])
    try:
        digest: str | None = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:12]
    except OSError:
        digest = None
    return {"version": version, "plugin": path if digest else None, "plugin_digest": digest, "refused": refused}


def guarded(ask: Callable[[], Any]) -> Any:
    """An answer, or why there is none: one failing query must not hide the rest of a host."""
    try:
        return ask()
    except Exception as e:
        return {"failed": f"{type(e).__name__}: {e}"}


def survey(asked: dict[str, Any]) -> dict[str, Any]:
    """All facts."""
    interfaces = Path("/sys/class/net")
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "rights": guarded(rights),
        "memory": guarded(memory),
        "programs": {name: shutil.which(name, path=PATH) for name in asked["programs"]},
        "nics": guarded(lambda: {p.name: nic(p) for p in sorted(interfaces.iterdir()) if p.is_dir()}),
        "sysctls": guarded(sysctls),
        "congestion_control": text_of("/proc/sys/net/ipv4/tcp_congestion_control"),
        "features": guarded(lambda: features(asked["features"])),
        "gpus": guarded(gpus),
        "rdma": guarded(rdma),
        "nccl": guarded(nccl),
        "package": guarded(package),
    }


if __name__ == "__main__":
    print(json.dumps(survey(json.loads(sys.argv[1]))))
