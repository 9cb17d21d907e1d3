"""Every collective with one of eight NICs lost, and how long a failure stops traffic, as R2CCL reports them."""

from collections.abc import Mapping

import pandas as pd

from r2ccl_core.model.topology import Topology
from r2ccl_core.planning.planner import plan
from r2ccl_core.planning.simulate import simulate
from reports import stats
from reports.recovery import by_then
from reports.reproduce.cloudlab import REPEATS, of
from reports.reproduce.entry import Entry, Fact, Model, Scale, Trials
from reports.stats import Estimate

README = "R2CCL's README and a third party's summary"
TESTBED = Scale(hosts=2, nics=8, ranks=16, nic_bit_s=400e9, size_bytes=8 << 30)
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "sendrecv", "broadcast")


def _kept(collective: str) -> Model:
    """The share of its throughput that a collective keeps with one NIC lost under Balance, simulated."""

    def model(scale: Scale) -> Mapping[str, float]:
        healthy = Topology.uniform(scale.hosts, scale.nics, scale.nic_bit_s / 8)
        poorer = healthy.lost(scale.hosts - 1, 0)
        times = []
        for topology in (healthy, poorer):
            result = plan(topology, collective, scale.size_bytes)
            ring = next((one for one in result.candidates if one.name == "ring"), result.chosen)
            times.append(simulate(ring.build(), topology, scale.size_bytes).seconds)
        return {"early": 100 * times[0] / times[1], "late": 100 * times[0] / times[1]}

    return model


def _measured(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    own = frame[frame["system"] == "balance"]
    kept = stats.estimate(100 / own["slowdown"])
    return {"early": kept, "late": kept}


def _entry(name: str) -> Entry:
    return Entry(
        f"coll-{name}",
        f"{name} with one of eight NICs lost: the share of its throughput that Balance keeps",
        "2 hosts with 8 GPUs and 8 NICs each, nccl-tests up to 8 GiB, large messages; X = 1/8, so the limit is 87.5 %",
        (
            Fact("early", "kept, first version", "%", 85.0, README, 89.0, free=True),
            Fact("late", "kept, later version", "%", 83.0, README, 90.0, free=True),
        ),
        TESTBED,
        _kept(name),
        Trials("collectives", _measured, (), (REPEATS, f"workload.collective={name}"), name),
    )


def _recovery(frame: pd.DataFrame) -> Mapping[str, Estimate]:
    return {
        "stall": of(frame, "balance", "stall_ms"),
        "detect": of(frame, "balance", "detect_ms"),
        "traffic": of(frame.assign(recover_ms=by_then(frame)), "balance", "recover_ms"),
    }


ENTRIES = (
    *map(_entry, COLLECTIVES),
    Entry(
        "recovery",
        "From a failure to traffic on other NICs",
        "3 servers r7525 with 3 NICs of 10 Gbit/s each (CloudLab), a NIC cut during an AllReduce",
        (
            Fact(
                "stall",
                "how much longer the hit AllReduce takes",
                "ms",
                900.0,
                "R2CCL's CloudLab logs",
                1500.0,
                True,
            ),
            Fact("detect", "failure noticed (published: milliseconds)", "ms", 1.0, README, 1000.0, True),
            Fact("traffic", "first bytes on other NICs (published: milliseconds)", "ms", 1.0, README, 1000.0, True),
        ),
        Scale(hosts=3, nics=3, ranks=6, nic_bit_s=10e9, size_bytes=4 << 30),
        trials=Trials("cloudlab_r7525", _recovery, ("system=balance", "size=64MiB"), (REPEATS,)),
    ),
)
