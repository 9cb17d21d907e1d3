"""The files that a guest boots with: its initial file system, and the script that turns it into the intended host.
Pure."""

import shlex
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from harness.cluster import sysctls
from harness.cluster.layout import MANAGEMENT_ALIAS, MANAGEMENT_NIC, HostLayout, mac_of
from harness.cluster.spec import VmsSpec
from harness.cluster.vms.kernel import Kernel
from r2ccl_core.model.token_bucket import HANDLE, TokenBucket

MODULES = (
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/9p/9p",
    "fs/overlayfs/overlay",
)
"""Modules for the root, in the order of loading; a kernel with one built in, or without it, has no file for it."""

DISK_MODULES = (
    "drivers/block/virtio_blk",
    "crypto/crc32c_generic",
    "lib/crc16",
    "fs/mbcache",
    "fs/jbd2/jbd2",
    "fs/ext4/ext4",
)
"""Modules for a disk, as `MODULES`."""

FILES = ("hosts", "passwd", "shadow")
"""Files of the cluster's folder that replace this machine's own in /etc."""
DEBIAN_FILES = ("hosts",)
"""The same for a release of Debian, which has accounts of its own."""

MANAGEMENT_NUMBER = 0xFF
"""The number of the management NIC in MAC addresses."""


def initial_files(kernel: Kernel, binds: Mapping[Path, str] | None = None, *, disk: bool = False) -> bytes:
    """The initial file system as an archive in the kernel's format; `binds` names paths in the guest by folders of this
    machine."""
    names = (*MODULES, *DISK_MODULES) if disk else MODULES
    found = [path for name in names for path in sorted(kernel.modules.glob(f"kernel/{name}.ko*"))]
    modules = {f"modules/{path.name}": path.read_bytes() for path in found}
    order = "".join(f"{path.name}\n" for path in found).encode()
    bound = "".join(f"{source} {target}\n" for source, target in (binds or {}).items()).encode()
    text = {"init": _script("boot.sh"), "bin/busybox": kernel.busybox.read_bytes(), "modules/order": order}
    text["binds"] = bound
    return archive({**text, **modules})


def archive(contents: Mapping[str, bytes]) -> bytes:
    """A cpio archive ("newc") of these files, all of them executable, and of their folders."""
    folders = sorted({str(parent) for name in contents for parent in Path(name).parents} - {"."})
    entries = [(name, 0o040755, b"") for name in folders]
    entries += [(name, 0o100755, data) for name, data in contents.items()]
    packed = (_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1))
    return b"".join(packed)


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    """Header (13 fields of 8 hexadecimal digits), name, data; name and data end at a multiple of 4."""
    path = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    header = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return header + b"\0" * (-len(header) % 4) + data + b"\0" * (-len(data) % 4)


def host_script(spec: VmsSpec, number: int, host: HostLayout, kernel: Kernel, folder: Path) -> str:
    """The script of the host of that number, which `boot.sh` runs in the guest's root."""
    values = {
        "NAME": host.name,
        "FOLDER": str(folder),
        "MODULES": str(kernel.modules),
        "RELEASE": kernel.release,
        "MANAGEMENT_ALIAS": MANAGEMENT_ALIAS,
        "RDMA": spec.rdma or "",
        "FILES": " ".join(FILES if spec.debian is None else DEBIAN_FILES),
    }
    described = [f"{name}={shlex.quote(value)}" for name, value in values.items()]
    described += ["nics() {", *(f"    {shlex.join(words)}" for words in _nics(spec, number, host)), "}"]
    return "\n".join([*described, *_sysctls(), _script("host.sh").decode()])


def _nics(spec: VmsSpec, number: int, host: HostLayout) -> list[list[str]]:
    shape = ["handle", HANDLE, *TokenBucket.for_rate(spec.rate_bit_s).words] if spec.rate_bit_s is not None else []
    nics = [
        ["nic", nic.name, mac_of(number, nic.rail), f"{nic.address}/24", str(spec.mtu), *shape] for nic in host.nics
    ]
    return [["nic", MANAGEMENT_NIC, management_mac(number), f"{host.address}/24", "1500"], *nics]


def management_mac(number: int) -> str:
    """The MAC address of the management NIC of the host of that number."""
    return mac_of(number, MANAGEMENT_NUMBER)


def _sysctls() -> list[str]:
    """The settings of a local cluster's namespaces; a key that this kernel lacks is skipped."""
    settings = {**sysctls.HOST_SYSCTLS, sysctls.CONGESTION_CONTROL: sysctls.CONGESTION_CONTROLS[0]}
    lines = [f"    echo {value} >/proc/sys/{key}" for key, value in settings.items()]
    return ["sysctls() {", *(f"{line} 2>/dev/null" for line in lines), "}"]


def _script(name: str) -> bytes:
    return files("harness.cluster.vms").joinpath(name).read_bytes()
