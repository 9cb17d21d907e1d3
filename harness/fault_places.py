"""Where a fault strikes, by the names that its cluster has. Pure.

So that one experiment runs on any cluster, ``host<N>`` is also the N-th host; a host that really has such a name
comes first. NICs are named by their rail for the same reason (`rail = 1`).
"""

import re
from collections.abc import Sequence
from typing import TypeVar

from harness.experiment import Experiment
from harness.fault_tables import PlaceModel

P = TypeVar("P", bound=PlaceModel)


def placed(experiment: Experiment) -> Experiment:
    """With the hosts of all faults by their own names; what means nothing stays as it is."""
    hosts = experiment.cluster.host_names()
    faults = tuple(
        _on(fault, hosts).model_copy(
            update={
                "also": tuple(_on(also, hosts) for also in fault.also),
                "events": tuple(_on(event, hosts) for event in fault.events),
            }
        )
        for fault in experiment.faults
    )
    return experiment.model_copy(update={"faults": faults})


def _on(place: P, hosts: Sequence[str]) -> P:
    match = re.fullmatch(r"host(\d{1,4})", place.host or "")
    if match is None or place.host in hosts or int(match[1]) >= len(hosts):
        return place
    return place.model_copy(update={"host": hosts[int(match[1])]})
