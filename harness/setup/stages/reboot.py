"""Restarts the host if a new GPU driver needs it; the set-up waits for the host and continues."""

from harness.setup.base import Done, Reboot, Seen, Stage, State, Stuck, ToDo
from harness.setup.stages.driver import gpus


def judge(seen: Seen) -> State:
    """Whether the running driver is the installed one."""
    driver = seen.facts["gpu_driver"]
    if not gpus(seen) or not driver["on_disk"] or driver["running"] == driver["on_disk"]:
        return Done("nothing waits for a reboot")
    running = f"runs {driver['running']}" if driver["running"] else "runs without it"
    what = f"the driver {driver['on_disk']} is installed, and the host {running}"
    if not seen.facts["programs"]["systemctl"]:
        return Stuck(what, "reboot the host, then set it up again")
    return ToDo(what, (Reboot(("systemctl", "reboot"), "so that the new driver is loaded"),))


STAGE = Stage("reboot", "restarts hosts whose new driver waits for it", "stays", judge, ("driver",), True)
