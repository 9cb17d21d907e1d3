"""Every fault by its name in experiments, and the one place that makes a fault from its parameters."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from faults.base import Fault
from faults.blackhole import Blackhole
from faults.cable_pull import CablePull
from faults.corrupt import Corrupt
from faults.delay import Delay
from faults.duplicate import Duplicate
from faults.errors import FaultError, UnknownFaultError
from faults.flap import Flap
from faults.gid_removed import GidRemoved
from faults.host_isolate import HostIsolate
from faults.host_pause import HostPause
from faults.host_power_off import HostPowerOff
from faults.host_reset import HostReset
from faults.ib_port_down import IbPortDown
from faults.loss import Loss
from faults.nic_down import NicDown
from faults.nic_shared_congestion import NicSharedCongestion
from faults.nic_unbind import NicUnbind
from faults.nic_unplug import NicUnplug
from faults.noop import Noop
from faults.ovs_drop import OvsDrop
from faults.process_kill import ProcessKill
from faults.process_pause import ProcessPause
from faults.quantities import SECONDS
from faults.rate_limit import RateLimit
from faults.reorder import Reorder
from faults.roce_drop import RoceDrop
from faults.route_blackhole import RouteBlackhole
from faults.switch_outage import SwitchOutage
from faults.switch_port_down import SwitchPortDown
from r2ccl_core.validation import LIMITS, in_our_words

FAULTS: dict[str, type[Fault]] = {
    cls.kind: cls
    for cls in (
        NicDown,
        SwitchPortDown,
        SwitchOutage,
        HostIsolate,
        HostPause,
        HostReset,
        HostPowerOff,
        RouteBlackhole,
        Blackhole,
        OvsDrop,
        RateLimit,
        Loss,
        Delay,
        Corrupt,
        Reorder,
        Duplicate,
        Flap,
        NicUnbind,
        NicUnplug,
        CablePull,
        IbPortDown,
        GidRemoved,
        RoceDrop,
        NicSharedCongestion,
        ProcessPause,
        ProcessKill,
        Noop,
    )
}


def create(kind: str, parameters: Mapping[str, Any] | None = None) -> Fault:
    """The fault named `kind`.

    Raises `UnknownFaultError` for a name or parameter that does not exist, `FaultError` for a wrong value.
    """
    if kind not in FAULTS:
        raise UnknownFaultError(f"unknown fault {kind!r}; {_hint(kind, FAULTS)}")
    try:
        return FAULTS[kind](**dict(parameters or {}))
    except ValidationError as error:
        raise _translated(kind, error, parameters or {}) from None


def _translated(kind: str, error: ValidationError, parameters: Mapping[str, Any]) -> FaultError:
    first = error.errors(include_url=False)[0]
    said = in_our_words(first)
    if not first["loc"]:
        return FaultError(f"fault {kind!r}: {said}")
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return UnknownFaultError(f"fault {kind!r} has no parameter {name!r}; {_hint(name, FAULTS[kind].model_fields)}")
    field = FAULTS[kind].model_fields[name]
    unit = f" {SECONDS}" if SECONDS in field.metadata and first["type"] in LIMITS else ""
    written = parameters.get(name, first["input"])
    return FaultError(f"fault {kind!r}: {name} = {written!r}: {said}{unit} ({field.description})")


def _hint(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, list(known), n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"known: {', '.join(known)}" if known else "it takes none"
