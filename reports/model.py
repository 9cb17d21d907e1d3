"""What theory says of T/T0 after one of a host's NICs is lost: the lines beside the measured points.

X is the lost share of the host's bandwidth. Balance (mode 2) spreads the load over what is left:
T/T0 = 1/(1-X). Hot repair (mode 1) lets one back-up NIC carry the lost one's load beside its own: 2, however
many NICs there are. A schedule is what its record says (`r2ccl_core.planning.algorithms`). `floor` is the least that
any schedule can reach (`r2ccl_core.planning.bound`).
"""

from collections.abc import Mapping

from r2ccl_core.errors import R2cclError
from r2ccl_core.planning.algorithms import by_alias
from r2ccl_core.planning.bound import bound_s, fault_free_ring_s
from r2ccl_core.planning.selection import Settings, read_settings
from r2ccl_core.schedules.algorithm import Algorithm
from reports.setting import Setting
from reports.trial import Trial

HOT_REPAIR = 2.0


def balance(lost_share: float) -> float:
    """T/T0 of Balance; infinite if nothing is left."""
    return 1 / (1 - lost_share) if lost_share < 1 else float("inf")


def of_system(trial: Trial, setting: Setting, env: Mapping[str, str]) -> float | None:
    """T/T0 that the model gives the trial's system with one NIC of one host lost; None where there is no model."""
    settings = _settings(trial, env)
    hosts, nics = setting.hosts or 0, setting.nics or 0
    if nics < 2 or settings is None:
        return None
    own = by_alias().get(settings.algo)
    if own is not None and own.slowdown and hosts >= 3 and _runs(own, trial, settings):
        return own.slowdown(hosts * setting.gpus, 1 / nics, settings.pipeline)  # its rings pass through all ranks
    rings = own is not None and (own.name == "ring" or own.slowdown)
    return of_mode(2 if trial.mode == 3 else trial.mode, nics) if rings else None


def of_mode(mode: int, nics: int) -> float | None:
    """The same for the ring of a mode; None: it does not go on."""
    if nics < 2 or mode not in (1, 2):
        return None
    return HOT_REPAIR if mode == 1 else balance(1 / nics)


def pipeline(trial: Trial, env: Mapping[str, str]) -> int | None:
    """K, where the trial's system runs a schedule after a loss whose published model depends on it."""
    settings = _settings(trial, env)
    own = by_alias().get(settings.algo) if settings else None
    if settings is None or own is None or own.slowdown is None or not _runs(own, trial, settings):
        return None
    return settings.pipeline


def _runs(own: Algorithm, trial: Trial, settings: Settings) -> bool:
    """Whether the trial's collective takes the schedule that its system asks for."""
    small = own.keeps_small_on_ring and trial.size_bytes < settings.min_bytes
    return trial.collective == "all_reduce" and not small


def _settings(trial: Trial, env: Mapping[str, str]) -> Settings | None:
    try:
        return read_settings(trial.mode, env)
    except R2cclError:
        return None


def floor(collective: str, setting: Setting) -> float | None:
    """The least T/T0 of any schedule; known for all_reduce, whose healthy form is the ring of all ranks.

    Below 1 it may be where hosts have several ranks: that ring moves more than hosts have to.
    """
    hosts, nics = setting.hosts or 0, setting.nics or 0
    if collective != "all_reduce" or hosts < 2 or nics < 2:
        return None
    rates = [1 - 1 / nics] + [1.0] * (hosts - 1)
    return bound_s(collective, rates, 1.0) / fault_free_ring_s(hosts * setting.gpus, 1.0, 1.0)
