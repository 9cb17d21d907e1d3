"""Resolves the hosts that fault tables name to the hosts of the cluster. Pure.

So that one experiment runs on any cluster, ``host<N>`` also means the N-th host; a host that really has this name takes
precedence. NICs can be named by their rail (`rail = 1`) for the same reason.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

from harness.experiment.fault_tables import FaultModel, PlaceModel
from harness.experiment.model import Experiment

P = TypeVar("P", bound=PlaceModel)


def placed(experiment: Experiment) -> Experiment:
    """The experiment with the real host names in all faults; an unknown name stays as it is."""
    hosts = experiment.cluster.host_names()
    faults = tuple(_fault_on(fault, hosts) for fault in experiment.faults)
    same = all(new is old for new, old in zip(faults, experiment.faults, strict=True))
    return experiment if same else experiment.model_copy(update={"faults": faults})


def _fault_on(fault: FaultModel, hosts: Sequence[str]) -> FaultModel:
    """The fault with real host names; the same object if no name changes."""
    changes: dict[str, object] = {}
    for key in ("also", "events"):
        places: tuple[PlaceModel, ...] = getattr(fault, key)
        found = tuple(_on(place, hosts) for place in places)
        if any(new is not old for new, old in zip(found, places, strict=True)):
            changes[key] = found
    placed = _on(fault, hosts)
    return placed.model_copy(update=changes) if changes else placed


def _on(place: P, hosts: Sequence[str]) -> P:
    match = re.fullmatch(r"host(\d{1,4})", place.host or "")
    if match is None or place.host in hosts or int(match[1]) >= len(hosts):
        return place
    return place.model_copy(update={"host": hosts[int(match[1])]})
