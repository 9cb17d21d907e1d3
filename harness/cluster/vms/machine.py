"""The command line of QEMU for one guest. Pure."""

from collections.abc import Mapping
from pathlib import Path

from harness.cluster.layout import HostLayout
from harness.cluster.spec import VmsSpec
from harness.cluster.vms.guest import management_mac
from harness.cluster.vms.kernel import Kernel

PROGRAM = "qemu-system-x86_64"

# A place for a second processor, which stays empty: for a guest that can only ever have one, QEMU before 8.1 translates
# no memory barriers, though its own thread reads what the guest writes. A NIC then misses now and then that there is
# something to send, and stands still for ever.
ACCELERATORS = {
    "kvm": ("-accel", "kvm", "-cpu", "host"),
    "tcg": ("-accel", "tcg,thread=multi,tb-size=192", "-cpu", "max", "-smp", "1,maxcpus=2"),
}

KERNEL_WORDS = ("console=ttyS0", "quiet", "mitigations=off", "nokaslr", "panic=-1")
"""Kernel parameters. A guest runs code of this machine's own user, so protection from other tenants would only cost it
time."""


def bare(program: str, accelerator: str, memory_bytes: int, kernel: Kernel, initial: Path, words: str) -> list[str]:
    """A machine without any device but its console, which goes to standard output unless redirected."""
    return [
        program,
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-machine",
        "q35",
        *ACCELERATORS[accelerator],
        "-m",
        f"{memory_bytes >> 20}M",
        "-kernel",
        str(kernel.image),
        "-initrd",
        str(initial),
        "-append",
        " ".join((*KERNEL_WORDS, words)),
    ]


def command(
    program: str,
    accelerator: str,
    spec: VmsSpec,
    number: int,
    host: HostLayout,
    kernel: Kernel,
    folder: Path,
    debian: Path | None = None,
) -> list[str]:
    """The guest that is the host of that number; the cluster's `folder` holds its files, and its sockets are made
    there.

    `debian` is the root of the release that it runs, if it is not to run this machine's own.
    """
    script, initial = folder / f"{host.name}.sh", folder / "initial"
    words = [f"r2ccl.host={script}", *([] if debian is None else ["r2ccl.debian"])]
    argv = bare(program, accelerator, spec.memory_bytes, kernel, initial, " ".join(words))
    argv += ["-name", host.name, "-serial", f"file:{console(folder, host.name)}"]
    argv += ["-qmp", f"unix:{folder / host.name}.qmp,server=on,wait=off"]
    argv += _shared("machine", Path("/"))
    argv += [] if debian is None else _shared("debian", debian)
    if spec.disk_bytes is not None:
        argv += ["-drive", f"file={disk(folder, host.name)},format=raw,if=none,id=disk,cache=unsafe"]
        argv += ["-device", "virtio-blk-pci,drive=disk"]
    argv += ["-device", "virtio-rng-pci"]
    for port, nic in zip(host.ports, host.nics, strict=True):
        assert nic.slot is not None
        number_of_port = nic.rail + 1
        argv += ["-device", f"pcie-root-port,id=port-{nic.name},chassis={number_of_port},slot={number_of_port}"]
        argv += ["-netdev", _tap(f"net-{nic.name}", port), "-device", _device(nic.slot.arguments)]
    management = {"driver": "virtio-net-pci", "netdev": "net-mgmt0", "mac": management_mac(number), "romfile": ""}
    return [*argv, "-netdev", _tap("net-mgmt0", host.management_port), "-device", _device(management)]


def console(folder: Path, host: str) -> Path:
    """The file with the guest's console output."""
    return folder / f"{host}.console"


def disk(folder: Path, host: str) -> Path:
    """The file of a guest's disk, for its writes, if it has one."""
    return folder / f"{host}.disk"


def _shared(name: str, folder: Path) -> list[str]:
    options = f"local,id={name},path={folder},security_model=none,readonly=on,multidevs=remap"
    return ["-fsdev", options, "-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]


def _tap(name: str, port: str) -> str:
    return f"tap,id={name},ifname={port},script=no,downscript=no"


def _device(arguments: Mapping[str, str]) -> str:
    rest = ",".join(f"{key}={value}" for key, value in arguments.items() if key != "driver")
    return f"{arguments['driver']},{rest}"
