"""The RDMA port that carries the traffic of a NIC, as the kernel shows it below /sys."""

from dataclasses import dataclass
from pathlib import Path

from harness.errors import RdmaPortError

SYSFS = Path("/sys")
ROCE_V2 = "RoCE v2"
MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""How the GID of an IPv4 address begins."""


@dataclass(frozen=True)
class Port:
    """One port. `gid_index`: that of RoCE v2 for the NIC's IPv4 address; None on InfiniBand."""

    nic: str
    device: str
    number: int
    gid_index: int | None
    type: str
    """Of the device: ``rxe``, or its driver's name, such as ``mlx5``."""


def ports_of(nics: list[str], devices: list[str], sysfs: Path = SYSFS) -> list[Port]:
    """The port of every NIC: on the devices named (one for each NIC, ``mlx5_0`` or ``mlx5_0:1``), else the one that has
    it. Raises `RdmaPortError`, one line."""
    known = sorted(path.name for path in (sysfs / "class/infiniband").glob("*"))
    if devices and len(devices) != len(nics):
        raise RdmaPortError(f"PERFTEST_DEVICES names {len(devices)} devices for the {len(nics)} NICs {', '.join(nics)}")
    for device in devices:
        if device.partition(":")[0] not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise RdmaPortError(f"PERFTEST_DEVICES: this host has no RDMA device {device}; {has} (see rdma link)")
    return [_port_of(nic, device, known, sysfs) for nic, device in zip(nics, devices or [""] * len(nics), strict=True)]


def _port_of(nic: str, wanted: str, known: list[str], sysfs: Path) -> Port:
    name, _, number = wanted.partition(":")
    for device in [name] if name else known:
        for path in sorted((sysfs / "class/infiniband" / device / "ports").glob(number or "*")):
            index = _gid_index(path, nic)
            infiniband = _text(path / "link_layer") == "InfiniBand" and (wanted or _is_of(nic, device, sysfs))
            if index is not None or infiniband:
                found = None if infiniband else index
                return Port(nic, device, int(path.name), found, device_type(device, sysfs))
    where = f"of {wanted} " if wanted else ""
    raise RdmaPortError(
        f"{nic}: no RDMA port {where}has its IPv4 address as a GID of RoCE v2; see rdma link, ibv_devinfo -v"
    )


def device_type(device: str, sysfs: Path = SYSFS) -> str:
    """``rxe`` of Soft-RoCE, which names the interface that it stands on; else the driver's name."""
    folder = sysfs / "class/infiniband" / device
    if (folder / "parent").is_file():
        return "rxe"
    driver = folder / "device/driver"
    return driver.resolve().name.removesuffix("_core").removesuffix("_en") if driver.exists() else "unknown"


def _gid_index(port: Path, nic: str) -> int | None:
    for path in sorted((port / "gids").glob("*"), key=lambda path: int(path.name)):
        kind, netdev = (_text(port / "gid_attrs" / part / path.name) for part in ("types", "ndevs"))
        if kind == ROCE_V2 and netdev == nic and _text(path).startswith(MAPPED):
            return int(path.name)
    return None


def _is_of(nic: str, device: str, sysfs: Path) -> bool:
    return (sysfs / "class/net" / nic / "device/infiniband" / device).exists()


def _text(path: Path) -> str:
    """The kernel refuses to read an entry that is not in use."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
