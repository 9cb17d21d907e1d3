"""The backend that starts nothing and moves no data: the simulator times the trials (`harness.sweep.simulated`)."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from harness.backends.base import Command, Job, Witness
from harness.cluster.spec import UNLIMITED_BIT_S
from harness.errors import HarnessError
from harness.experiment.model import TCP_SHARE, Experiment
from harness.workloads.base import Workload
from harness.workloads.training import FORWARD, TrainingWorkload
from r2ccl_core.errors import UsageError
from r2ccl_core.planning.selection import Cost
from reports.load import load_folder

SIMULATE = "simulate"
"""The backend's name in experiments."""


class SimulateBackend:
    """Without ranks, hosts or a root: the sweep only needs the native simulator."""

    witness: Witness = "none"
    start_s = 0.0

    def command(self, job: Job, rank: int) -> Command:
        """Raises an error: there is no command."""
        raise HarnessError(f"rank {rank} is simulated: nothing is started for it")

    def missing(self, workload: Workload, python: str) -> str | None:
        """The native core, if it was not built."""
        if find_spec("r2ccl_core._native") is not None:
            return None
        return "the simulator is not built; run: pip install -e ."


def cost_of(experiment: Experiment) -> Cost:
    """The cost of a message and the rate of a NIC: as the experiment states them, otherwise from a calibration.

    A NIC carries what TCP leaves of its rate. Raises `UsageError` if a calibration is named that has no costs.
    """
    wanted = experiment.workload.simulation
    told = wanted.calibration is not None and not isinstance(experiment.workload, TrainingWorkload)
    measured = calibrated(Path(wanted.calibration or "")) if told else None
    rates = {nic.rate_bit_s for nics in experiment.cluster.data_nics().values() for nic in nics}
    nic_bit_s = min((rate for rate in rates if rate is not None), default=None)
    if nic_bit_s is not None:
        nic_bytes_s = nic_bit_s / 8 * TCP_SHARE
    else:
        nic_bytes_s = measured.nic_bytes_s if measured else UNLIMITED_BIT_S / 8 * TCP_SHARE
    alpha_s = wanted.alpha_s if wanted.alpha_s is not None else measured.alpha_s if measured else 0.0
    return Cost(alpha_s, nic_bytes_s)


def compute_s_of(experiment: Experiment) -> float:
    """How long a host computes in an iteration: as the experiment states it, otherwise from a calibration, otherwise 0.

    Raises `UsageError` if a calibration is named that never trained.
    """
    workload = experiment.workload
    if not isinstance(workload, TrainingWorkload):
        return 0.0
    wanted = workload.simulation
    if wanted.compute_s is not None:
        return wanted.compute_s
    return forward_s_of(Path(wanted.calibration)) / FORWARD if wanted.calibration is not None else 0.0


@lru_cache(maxsize=8)
def forward_s_of(run: Path) -> float:
    """The median forward pass over the steps of a run, without those that a failure hit.

    Raises `UsageError` if no trial has one.
    """
    steps = [i for trial in load_folder(run).final_trials for i in trial.iterations if i.phase != "hit"]
    told = [step.measures["forward_ms"] for step in steps if "forward_ms" in step.measures]
    if not told:
        remedy = 'name a run of kind = "training", or say workload.simulation.compute'
        raise UsageError(
            f"workload.simulation.calibration: {run}: none of its trials reported a forward pass; {remedy}"
        )
    return median(told) / 1e3


@lru_cache(maxsize=8)
def calibrated(run: Path) -> Cost:
    """The costs that the ranks of a run measured before they chose schedules: the medians over its trials.

    Raises `UsageError` if no trial has them.
    """
    told = [core.get("cost") for trial in load_folder(run).final_trials for core in trial.core.values()]
    costs = [cost for cost in told if isinstance(cost, dict)]
    if not costs:
        raise UsageError(
            f"workload.simulation.calibration: {run}: none of its trials measured the cost of messages; "
            'name a run in which a system has R2CC_ALGO = "auto" or another schedule that follows losses'
        )
    return Cost(median(c["alpha_s"] for c in costs), median(c["nic_bytes_s"] for c in costs))
