"""Chooses the accelerator that runs the guests: KVM if it boots one, else QEMU's own translation (TCG).

KVM is tested by booting a guest, because /dev/kvm also exists on machines whose KVM stops in the middle of a boot. The
result is kept until the machine restarts.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from harness.cluster.vms import guest, machine
from harness.cluster.vms.kernel import Kernel, cache
from harness.errors import ClusterError

TRY_S = 15.0
"""How long KVM may take from power on to a guest's first program and off again; a working one takes a second."""
TRY_BYTES = 256 << 20
WORD = b"r2ccl: booted"


def choose(wanted: str, program: str, kernel: Kernel) -> str:
    """``kvm`` or ``tcg``. Raises `ClusterError` if KVM is requested by name and does not work."""
    if wanted == "tcg":
        return "tcg"
    why = _without_kvm(program, kernel)
    if why is None:
        return "kvm"
    if wanted == "kvm":
        raise ClusterError(f"KVM does not work here: {why}; leave out cluster.accelerator")
    return "tcg"


def _without_kvm(program: str, kernel: Kernel) -> str | None:
    """Why KVM cannot be used; None if it can."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "/dev/kvm is missing, or not this user's to open"
    kept, boot = cache() / "kvm.json", Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    try:
        told = json.loads(kept.read_text())
        if told["boot"] == boot and told["kernel"] == kernel.release:
            return None if told["why"] is None else str(told["why"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    why = _tried(program, kernel)
    with tempfile.NamedTemporaryFile("w", dir=cache(), delete=False) as file:
        json.dump({"boot": boot, "kernel": kernel.release, "why": why}, file)
    Path(file.name).rename(kept)
    return why


def _tried(program: str, kernel: Kernel) -> str | None:
    """Boots a guest that prints a word and switches itself off."""
    with tempfile.TemporaryDirectory() as folder:
        initial = Path(folder) / "initial"
        initial.write_bytes(guest.initial_files(kernel))
        argv = machine.bare(program, "kvm", TRY_BYTES, kernel, initial, "r2ccl.try")
        argv += ["-no-reboot", "-serial", "stdio"]
        try:
            null = subprocess.DEVNULL
            done = subprocess.run(argv, stdin=null, capture_output=True, timeout=TRY_S, check=False)
        except subprocess.TimeoutExpired:
            return f"a guest stands still for {TRY_S:g} s"
    if WORD in done.stdout:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else "a guest ends before its first program"
