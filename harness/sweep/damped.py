"""When our core takes a NIC back that the fault of a trial makes it lose too often. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterator

from faults.registry import create
from harness.sweep.plan import Trial
from harness.sweep.scenario import Hosts, Injection, injections, reach
from harness.systems.catalogue import CORE_ON_HOSTS
from harness.systems.damping import held_until_s
from reports.metrics.view import COMES_AND_GOES, LOSES_A_NIC


def back_s(trial: Trial, hosts: Hosts) -> float:
    """How long after the first effect of an aimed fault the last NIC is taken back that was held; 0: none is held. The
    only NIC of a host never is."""
    fault, system = trial.fault, trial.system
    backend = trial.variant.experiment.backend_of(system)
    if fault is None or fault.by_chance or system.mode == 0 or backend not in CORE_ON_HOSTS:
        return 0.0
    losses: dict[tuple[str, str], list[float]] = defaultdict(list)
    for injection in injections(fault, hosts, trial.seed, math.inf):
        for host, nic in reach(injection, hosts):
            losses[host, nic] += _losses_s(injection)
    return max((held_until_s(own, system.env) for (host, _), own in losses.items() if len(hosts[host]) > 1), default=0)


def _losses_s(injection: Injection) -> Iterator[float]:
    """When the NIC is lost, of a fault that is healed."""
    if injection.lasts_s is None or injection.kind not in (*LOSES_A_NIC, *COMES_AND_GOES):
        return
    again_s = create(injection.kind, injection.parameters).again_s
    count = 1 if again_s is None else math.ceil(injection.lasts_s / again_s)
    yield from (injection.offset_s + number * (again_s or 0.0) for number in range(count))
