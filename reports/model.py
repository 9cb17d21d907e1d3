"""The theoretical T/T0 after the loss of one of a host's NICs: the lines beside the measured points.

X is the lost share of the host's bandwidth. Balance (mode 2) spreads the load over the remaining NICs: T/T0 = 1/(1-X).
Hot repair (mode 1) lets one back-up NIC carry the lost NIC's load beside its own: T/T0 = 2 for any number of NICs. The
record of a schedule gives its model (`r2ccl_core.planning.algorithms`). `floor` is the lower bound over all schedules
(`r2ccl_core.planning.bound`).
"""

from collections.abc import Mapping

from r2ccl_core.errors import R2cclError
from r2ccl_core.planning.algorithms import by_alias
from r2ccl_core.planning.bound import bound_s, fault_free_ring_s
from r2ccl_core.planning.selection import SchedulePolicy, read_policy
from r2ccl_core.schedules.algorithm import Algorithm
from reports.setting import Setting
from reports.trial import Trial

HOT_REPAIR = 2.0


def balance(lost_share: float) -> float:
    """T/T0 of Balance; infinite if nothing is left."""
    return 1 / (1 - lost_share) if lost_share < 1 else float("inf")


def of_system(trial: Trial, setting: Setting, env: Mapping[str, str]) -> float | None:
    """The model's T/T0 for the trial's system with one NIC of one host lost; None without a model."""
    policy = _policy(trial, env)
    hosts, nics = setting.hosts or 0, setting.nics or 0
    if nics < 2 or policy is None:
        return None
    own = by_alias().get(policy.algo)
    if own is not None and own.slowdown and hosts >= 3 and _runs(own, trial, policy):
        return own.slowdown(hosts * setting.gpus, 1 / nics, policy.pipeline)  # its rings pass through all ranks
    rings = own is not None and (own.name == "ring" or own.slowdown)
    return of_mode(2 if trial.mode == 3 else trial.mode, nics) if rings else None


def of_mode(mode: int, nics: int) -> float | None:
    """The model's T/T0 for the ring of a mode; None if the mode does not continue."""
    if nics < 2 or mode not in (1, 2):
        return None
    return HOT_REPAIR if mode == 1 else balance(1 / nics)


def pipeline(trial: Trial, env: Mapping[str, str]) -> int | None:
    """K, if after a loss the trial's system runs a schedule whose published model depends on it."""
    policy = _policy(trial, env)
    own = by_alias().get(policy.algo) if policy else None
    if policy is None or own is None or own.slowdown is None or not _runs(own, trial, policy):
        return None
    return policy.pipeline


def _runs(own: Algorithm, trial: Trial, policy: SchedulePolicy) -> bool:
    """Whether the trial's collective uses the schedule that its system requests."""
    small = own.keeps_small_on_ring and trial.size_bytes < policy.min_bytes
    return trial.collective == "all_reduce" and not small


def _policy(trial: Trial, env: Mapping[str, str]) -> SchedulePolicy | None:
    try:
        return read_policy(trial.mode, env)
    except R2cclError:
        return None


def floor(collective: str, setting: Setting) -> float | None:
    """The least T/T0 of any schedule; known only for all_reduce, whose healthy form is the ring of all ranks.

    It can be below 1 if hosts have several ranks, because that ring moves more bytes than the hosts need to exchange.
    """
    hosts, nics = setting.hosts or 0, setting.nics or 0
    if collective != "all_reduce" or hosts < 2 or nics < 2:
        return None
    rates = [1 - 1 / nics] + [1.0] * (hosts - 1)
    return bound_s(collective, rates, 1.0) / fault_free_ring_s(hosts * setting.gpus, 1.0, 1.0)
