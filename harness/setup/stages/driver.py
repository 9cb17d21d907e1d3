"""NVIDIA's driver and CUDA, on hosts with GPUs."""

from harness.setup.base import Done, Seen, Stage, State, Stuck, ToDo, Unneeded
from harness.setup.stages.packages import install

PACKAGES = ["nvidia-headless-535-server", "nvidia-utils-535-server", "nvidia-cuda-toolkit"]
"""As named in Ubuntu 22.04 and 24.04; 535 runs every GPU from Maxwell on."""


def gpus(seen: Seen) -> int:
    """The number of GPUs on PCI, whether a driver runs them or not."""
    return sum(bool(device["gpu"]) for device in seen.facts["pci"])


def judge(seen: Seen) -> State:
    """Whether the driver shows every GPU. A driver that is on disk and does not run is left to the reboot stage."""
    count, driver = gpus(seen), seen.facts["gpu_driver"]
    if not count:
        return Unneeded("has no GPU")
    if driver["running"] and driver["shown"] >= count and driver["nvcc"]:
        return Done(f"driver {driver['running']} shows all {count} GPUs, and CUDA is there")
    if driver["on_disk"] and driver["nvcc"] and driver["running"] != driver["on_disk"]:
        return Done(f"driver {driver['on_disk']} and CUDA are installed; the driver runs after a reboot")
    if driver["running"] and driver["shown"] < count:
        what = f"driver {driver['running']} shows {driver['shown']} of {count} GPUs"
        return Stuck(what, "look at dmesg; a K40m needs the driver 470 (nvidia-headless-470-server)")
    system = seen.facts["system"]
    if system["id"] != "ubuntu":
        what = f"has {count} GPUs, and no driver and CUDA that work"
        return Stuck(what, f"install them as {system['id']} does; only Ubuntu's packages are known here")
    lacking = PACKAGES if not driver["on_disk"] else PACKAGES[-1:]
    return ToDo(f"has {count} GPUs, and no driver and CUDA that work", install(lacking, "runs the GPUs"))


STAGE = Stage("driver", "installs NVIDIA's driver and CUDA where there are GPUs", "stays", judge, ("packages",), True)
