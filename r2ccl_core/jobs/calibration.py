"""R2CCL's published training rows beside the model, and the two numbers that are taken from them.

Published are tokens per second without a failure and with one NIC lost; batch sizes and parallel degrees are not. The
healthy row gives the MFU, and hot repair's overhead (its one NIC carries double) gives the exposed part of the
communication. Every other row is then a prediction of the model, and is shown with whatever error it has.

One effect is missing: degraded Balance and R2CC-AllReduce cost 0.4 to 0.6 % of an iteration more than bandwidth
explains, whatever the batch. That is a fixed cost of the degraded state, which the model leaves out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from r2ccl_core.jobs.iteration import Compute, iteration
from r2ccl_core.jobs.layout import Layout
from r2ccl_core.jobs.model import Model, model_named
from r2ccl_core.jobs.network import Network
from r2ccl_core.model.topology import Topology

GPUS, NICS, NIC_BYTES_S = 8, 8, 50e9
"""A host of R2CCL's testbed: 8 H100 and 8 NICs of 400 Gbit/s."""


@dataclass(frozen=True)
class Published:
    """A training experiment: tokens per second healthy, by system with one NIC lost, and with ``two`` lost in total."""

    name: str
    model: str
    hosts: int
    layout: Layout
    healthy: float
    one: Mapping[str, float]
    two: Mapping[str, float]


ROWS = (
    Published(
        "train-dp-2.7b",
        "gpt3-2.7b",
        2,
        Layout(data=16, micro_batch=4),  # 64 sequences: an assumption, the batch is not published
        314618,
        {"hot_repair": 300151, "balance": 310516, "r2cc": 312394},
        {"balance": 310756},
    ),
    Published(
        "train-tppp-13b",
        "gpt3-13b",
        2,
        Layout(data=1, tensor=8, pipeline=2, micro_batches=8),
        8340,
        {"hot_repair": 8233, "balance": 8309},
        {"balance": 8257},
    ),
    Published("train-dp-32gpu", "gpt3-2.7b", 4, Layout(data=32, micro_batch=4), 752405, {"r2cc": 750627}, {}),
)


def testbed(hosts: int) -> Topology:
    """The healthy hosts."""
    return Topology.uniform(hosts, NICS, NIC_BYTES_S, gpus=GPUS)


@dataclass(frozen=True)
class Calibrated:
    """A model whose healthy iteration takes as long as published, and as much longer under hot repair."""

    model: Model
    layout: Layout
    compute: Compute
    fits: bool
    """Whether such numbers exist; otherwise all communication is exposed or none is, whichever is closer."""

    def overhead(self, topology: Topology, strategy: str) -> float:
        """Additional time of an iteration relative to the healthy one."""
        healthy = iteration(self.model, self.layout, Network(topology.healthy), self.compute).seconds
        return iteration(self.model, self.layout, Network(topology, strategy), self.compute).seconds / healthy - 1


def calibrated(row: Published, wanted: float | None = None) -> Calibrated:
    """The MFU from the healthy row, the overlap from the overhead of hot repair (or ``wanted``)."""
    model = model_named(row.model)
    wanted = row.healthy / row.one["hot_repair"] - 1 if wanted is None else wanted
    topology = testbed(row.hosts)
    seconds = row.layout.sequences * model.sequence / row.healthy

    def exposed_s(strategy: str, lost: bool) -> float:
        network = Network(topology.lost(0, 0) if lost else topology, strategy)
        found = iteration(model, row.layout, network)
        return found.seconds - found.compute_s - found.bubble_s

    grows_s = exposed_s("hot_repair", True) - exposed_s("balance", False)
    shown = wanted * seconds / grows_s if grows_s > 0 else float("inf")
    layout = replace(row.layout, overlap=1 - min(1.0, shown)) if row.layout.data > 1 else row.layout
    healthy = iteration(model, layout, Network(topology))
    waits_s = healthy.seconds - healthy.compute_s - healthy.bubble_s
    bubble = healthy.bubble_s / healthy.compute_s
    flops = model.operations(layout.sequences)
    mfu = flops * (1 + bubble) / (layout.gpus * Compute.peak_flops * (seconds - waits_s))
    fits = shown <= 1.0 and row.layout.data > 1
    return Calibrated(model, layout, Compute(mfu), fits)
