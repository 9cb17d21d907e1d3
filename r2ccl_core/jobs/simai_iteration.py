"""One iteration of a SimAI workload on hosts as they are: the file's computation, its collectives by our schedules.

A workload lists every layer of a stage for every micro-batch, after two lines for gradients and parameters. As SimAI
reads it, a collective belongs to

    forward, backward    the tensor-parallel group
    weight gradient      the data-parallel group
    with suffix _EP      the ranks that hold a layer's experts
    with _DP_EP          the data-parallel ranks that hold the same experts

Nothing is hidden behind computation. Of a pipeline the bubble, (pp - 1) / (vpp ga) of a stage's work, and ``pp_comm``
bytes over each boundary there and back are added, as in `iteration`.
"""

from pathlib import Path

from r2ccl_core.errors import UsageError
from r2ccl_core.jobs import groups
from r2ccl_core.jobs.iteration import Iteration
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.network import Network
from r2ccl_core.jobs.simai import Pass, Workload

OURS = {
    "ALLREDUCE": "all_reduce",
    "ALLGATHER": "all_gather",
    "REDUCESCATTER": "reduce_scatter",
    "ALLTOALL": "alltoall",
}
ONE_BUCKET = 1 << 60
"""The file's sizes are as they are sent."""


def layout_of(path: Path, workload: Workload) -> Layout:
    """How the workload's header cuts the job; `UsageError` names the file where ranks cannot be cut so."""
    values = workload.values
    tensor, stages = values["model_parallel_NPU_group"], values["pp"]
    try:
        return Layout(
            data=values["all_gpus"] // (tensor * stages),
            tensor=tensor,
            pipeline=stages,
            expert=values["ep"],
            interleave=max(1, values["vpp"]) if stages > 1 else 1,
            micro_batches=max(1, values["ga"]),
            bucket_bytes=ONE_BUCKET,
        )
    except UsageError as error:
        raise UsageError(f"{path}:1: {error}") from None


def simai_iteration(path: Path, workload: Workload, network: Network) -> Iteration:
    """The iteration of the workload that ``path`` holds; its tokens are not known.

    Raises `UsageError` with file and line where the hosts cannot be cut as its header says, or where a collective needs
    a group that the header does not have.
    """
    layout = layout_of(path, workload)
    try:
        layout.check_hosts(network.topology.nhosts, network.gpus_per_host)
    except UsageError as error:
        raise UsageError(f"{path}:1: {error}") from None
    compute_ns, spent = 0, {"tensor": 0.0, "expert": 0.0, "data": 0.0}
    known: dict[tuple[str, int, str], tuple[str, float]] = {}  # layers repeat
    for layer in workload.layers:
        compute_ns += layer.update_ns
        for one, usual in ((layer.forward, "tensor"), (layer.backward, "tensor"), (layer.weights, "data")):
            compute_ns += one.compute_ns
            if one.collective != "NONE" and one.size_bytes:
                key = (one.collective, one.size_bytes, usual)
                if key not in known:
                    known[key] = _collective(f"{path}:{layer.line}", one, usual, layout, network)
                kind, seconds = known[key]
                spent[kind] += seconds
    bubble = (layout.pipeline - 1) / (layout.interleave * layout.micro_batches)
    return Iteration(
        compute_ns / 1e9,
        compute_ns / 1e9 * bubble,
        spent["tensor"] * (1 + bubble),
        groups.boundaries_s(workload.pipeline_bytes or 0, layout, network),
        spent["expert"] * (1 + bubble),
        spent["data"],
        0,
    )


def _collective(where: str, one: Pass, usual: str, layout: Layout, network: Network) -> tuple[str, float]:
    """The kind of group that it belongs to, and its seconds."""
    name, _, suffix = one.collective.partition("_")
    collective = OURS[name]
    if suffix == "EP":
        if layout.expert == 1:
            raise UsageError(f"{where}: {one.collective} is of expert-parallel ranks, and the header says ep: 1")
        return "expert", groups.expert_s(collective, one.size_bytes, layout, network)
    if suffix == "DP_EP" or usual == "data":
        stages = layout.stages(network.gpus_per_host)
        apart = suffix == "DP_EP"
        return "data", max(
            groups.data_s(collective, one.size_bytes, layout, network, stage, per_expert=apart) for stage in stages
        )
    return "tensor", groups.tensor_s(collective, one.size_bytes, layout, network)
