"""All stages in the order in which they run, and the selection of some of them."""

from collections.abc import Sequence

from harness.errors import MistakeError
from harness.experiment.tables import nearest
from harness.setup.base import Stage
from harness.setup.stages import (
    acs,
    addresses,
    arp,
    core,
    driver,
    mtu,
    nccl_tests,
    packages,
    rates,
    reboot,
    topology,
)

STAGES: tuple[Stage, ...] = tuple(
    module.STAGE for module in (packages, driver, reboot, core, nccl_tests, addresses, mtu, arp, rates, acs, topology)
)


def chosen(only: Sequence[str], skip: Sequence[str]) -> tuple[Stage, ...]:
    """The stages in `only`, or all, without those in `skip`. Raises `MistakeError` for an unknown name, or if none is
    left."""
    known = [stage.name for stage in STAGES]
    for option, names in (("--only", only), ("--skip", skip)):
        for name in names:
            if name not in known:
                raise MistakeError(option, name, None, f"is not a stage; {nearest(name, known)}")
    left = tuple(stage for stage in STAGES if (not only or stage.name in only) and stage.name not in skip)
    if not left:
        raise MistakeError("--skip", ",".join(skip), None, "leaves no stage to be done")
    return left
