"""Every kind of workload, by the `kind` of its table."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from harness.workloads.base import Workload
from harness.workloads.collective import CollectiveWorkload
from harness.workloads.serving import ServingWorkload
from harness.workloads.training import TrainingWorkload


def _kind(values: Any) -> object:
    """The kind of a table; without one it is a collective."""
    if isinstance(values, Mapping):
        return values.get("kind", "collective")
    return getattr(values, "kind", None)


AnyWorkload = Annotated[
    Annotated[CollectiveWorkload, Tag("collective")]
    | Annotated[TrainingWorkload, Tag("training")]
    | Annotated[ServingWorkload, Tag("serving")],
    Discriminator(_kind),
]


def collective(workload: Workload) -> CollectiveWorkload:
    """Narrows `workload` for a backend that runs collectives. Raises `TypeError` for another kind, which is a bug of
    ours: experiments are checked before."""
    if not isinstance(workload, CollectiveWorkload):
        raise TypeError(f"this backend runs collectives, not {workload.kind}")
    return workload


def training(workload: Workload) -> TrainingWorkload:
    """The same for training."""
    if not isinstance(workload, TrainingWorkload):
        raise TypeError(f"this backend trains, it does not run a {workload.kind}")
    return workload


def serving(workload: Workload) -> ServingWorkload:
    """The same for serving."""
    if not isinstance(workload, ServingWorkload):
        raise TypeError(f"this backend serves, it does not run a {workload.kind}")
    return workload
