"""A cluster of virtual machines: hosts with kernels, drivers and clocks of their own, on a switch in a namespace.

It is a local cluster (`harness.cluster.local`) whose hosts are guests of QEMU instead of namespaces: the same switch,
addresses, names, keys, owner and record. A tap takes the place of the veth on the switch's side of every NIC, so that
faults on switch ports also work here. QEMU runs in the switch's namespace as a child of the keeper: it ends when the
harness does, for whatever reason, and `harness clean` finds it by its namespace.

A guest's root is this machine's own root, read-only under a file system in memory. So the Python, the package and the
commit in it are those that run the harness, and no image has to be made. If a release of Debian is requested, the root
is that release's (`harness.cluster.vms.debian`); if a disk is requested, the guest's writes go there and survive its
restarts. Its kernel comes from a Debian package, kept separately (`harness.cluster.vms.kernel`).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from harness.cluster import netlink, sshd, state
from harness.cluster.layout import Layout, lay_out_vms
from harness.cluster.local import LocalCluster
from harness.cluster.spec import VmsSpec
from harness.cluster.vms import accelerator, debian, guest, kernel, machine
from harness.errors import ClusterError
from r2ccl_core.host.memory import available_bytes, shown

ROOT = sshd.Account("root", 0, 0, "/root")
"""The account that logs in: in its guests every user is root."""

TUN = Path("/dev/net/tun")
TAIL_LINES = 3
PANIC = "Kernel panic"
"""Marks the line with the cause, before some thirty others; the guest then boots again."""


class VmsCluster(LocalCluster):
    """See the module."""

    start_s = 240.0
    """Enough for six translated guests on two cores that other work keeps busy, too."""

    def __init__(self, spec: VmsSpec, tell: Callable[[str], None] | None = None) -> None:
        super().__init__(spec)
        self.vms = spec
        self._tell = tell or (lambda line: print(line, file=sys.stderr, flush=True))
        self._kernel: kernel.Kernel | None = None
        self._debian: Path | None = None
        self._program = ""
        self.accelerator = ""
        """``kvm`` or ``tcg``, once it is known."""

    def prepare(self) -> None:
        """Checks QEMU, taps and memory, prepares the kernel, chooses the accelerator. Raises `ClusterError`."""
        self._program = find_program()
        check_taps()
        _check_memory(self.vms)
        check_disk(self.vms)
        self._kernel = kernel.prepared(self.vms.kernel, self._tell)
        self._debian = None if self.vms.debian is None else debian.prepared(self.vms.debian, self._tell)
        check_kernel(self._kernel, self.vms)
        self.accelerator = accelerator.choose(self.vms.accelerator, self._program, self._kernel)

    def made_of(self) -> str:
        """The guests' accelerator and kernel, for people; once they are known."""
        assert self._kernel is not None
        return f"{machine.PROGRAM} with {self.accelerator}, Linux {self._kernel.release} in {self._kernel.folder}"

    def lay_out(self, tag: str, subnet: str) -> Layout:
        """All names and addresses."""
        return lay_out_vms(self.vms, tag, subnet)

    def make_network(self, layout: Layout) -> None:
        """The switch, with a tap for every NIC."""
        netlink.build_switch(self.vms, layout)

    def account(self) -> sshd.Account:
        """Root, in the guests."""
        return ROOT

    def describe(self) -> dict[str, object]:
        """The description, with the guests' accelerator and kernel."""
        assert self._kernel is not None
        return super().describe() | {"accelerator": self.accelerator, "kernel": self._kernel.release}

    def tasks(self, layout: Layout, directory: Path) -> list[dict[str, object]]:
        """The switch's SSH server, and a machine for every host."""
        assert self._kernel is not None
        binds = {} if self._debian is None else debian.binds(directory, self._kernel.modules)
        has_disk = self.vms.disk_bytes is not None
        (directory / "initial").write_bytes(guest.initial_files(self._kernel, binds, disk=has_disk))
        tasks = [sshd.task(directory, layout.switch_host)]
        for number, host in enumerate(layout.hosts):
            script = guest.host_script(self.vms, number, host, self._kernel, directory)
            (directory / f"{host.name}.sh").write_text(script)
            if self.vms.disk_bytes is not None:
                make_disk(machine.disk(directory, host.name), self.vms.disk_bytes)
            argv = machine.command(
                self._program, self.accelerator, self.vms, number, host, self._kernel, directory, self._debian
            )
            log = str(directory / f"{host.name}.log")
            tasks.append({"host": host.name, "namespace": tasks[0]["namespace"], "binds": [], "argv": argv, "log": log})
        return tasks

    def said(self, host: str) -> str:
        """The last lines of a guest's console, or why QEMU ended."""
        directory = state.directory(self.tag)
        if host == "switch":
            return super().said(host)
        told = []
        for path in (directory / f"{host}.log", machine.console(directory, host)):
            if path.exists():
                lines = path.read_text(errors="replace").replace("\r", "").strip().splitlines()
                told += [line for line in lines if PANIC in line][-1:] + lines[-TAIL_LINES:]
        return f"the guest does not come up; it said last: {' | '.join(told)}" if told else ""


def find_program() -> str:
    """The path of QEMU. Raises `ClusterError`."""
    found = shutil.which(machine.PROGRAM)
    if found is None:
        raise ClusterError(f"{machine.PROGRAM} is missing; install the package qemu-system-x86")
    return found


def check_taps(device: Path = TUN) -> None:
    """Raises `ClusterError` if no taps can be made."""
    try:
        os.close(os.open(device, os.O_RDWR))
    except FileNotFoundError:
        raise ClusterError(f"{device} is missing; modprobe tun, or give it to this container") from None
    except OSError as e:
        raise ClusterError(f"{device}: {e.strerror}; let this user open it, or run as root") from None


def check_kernel(found: kernel.Kernel, spec: VmsSpec) -> None:
    """Raises `ClusterError` if no guest can run it as `spec` asks."""
    soft = ("rdma_rxe",) if spec.rdma == "rxe" else ()
    disk = () if spec.disk_bytes is None else ("virtio_blk", "ext4")
    lacks = found.lacks("virtio_pci", "virtio_net", "9p", "9pnet_virtio", "overlay", *soft, *disk)
    if lacks:
        remedy = "choose another cluster.kernel: linux-image-amd64 has them"
        raise ClusterError(f"{spec.kernel} ({found.release}) has no {', '.join(lacks)}; {remedy}")


def check_disk(spec: VmsSpec) -> None:
    """Raises `ClusterError` if there is not enough room for the guests' disks to be filled."""
    if spec.disk_bytes is None:
        return
    needed, free = spec.hosts * spec.disk_bytes, shutil.disk_usage(state.root().parent).free
    if needed > free:
        raise ClusterError(
            f"the guests' disks may take {shown(needed)} in {state.root().parent}, and {shown(free)} are free; "
            "choose fewer cluster.hosts, or less cluster.disk"
        )


def _check_memory(spec: VmsSpec) -> None:
    needed, available = spec.hosts * spec.memory_bytes, available_bytes()
    if available is not None and needed > available:
        raise ClusterError(
            f"{spec.hosts} guests need {shown(needed)}, and {shown(available)} are free; "
            "choose fewer cluster.hosts, or less cluster.memory"
        )


def make_disk(path: Path, size_bytes: int) -> None:
    """Makes an empty file system whose file grows as it is filled. Raises `ClusterError`."""
    program = shutil.which("mke2fs", path=os.environ.get("PATH", "") + os.pathsep + sshd.PATH)
    if program is None:
        raise ClusterError("mke2fs is missing, for cluster.disk; install the package e2fsprogs")
    argv = [program, "-q", "-F", "-t", "ext4", str(path), f"{size_bytes >> 10}k"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise ClusterError(f"{path}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}; see cluster.disk")
