"""Statuses in Prometheus' text format, one sample per process and NIC (or peer). Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from r2ccl_core.status.read import Life, ProcessStatus

Labels = dict[str, str]
Sample = tuple[Labels, float | int]


class Metric(NamedTuple):
    """One metric: its name without the prefix, its type, its meaning, and its samples of one process."""

    name: str
    kind: str
    meaning: str
    samples: Callable[[ProcessStatus], Iterable[Sample]]


def _of_nics(field: str) -> Callable[[ProcessStatus], Iterator[Sample]]:
    def samples(status: ProcessStatus) -> Iterator[Sample]:
        for nic in status.document["nics"]:
            if field in nic:
                yield {"nic": nic["name"], "address": nic["address"]}, nic[field]

    return samples


def _of_peers(field: str) -> Callable[[ProcessStatus], Iterator[Sample]]:
    def samples(status: ProcessStatus) -> Iterator[Sample]:
        for peer in status.document["peers"]:
            yield {"peer": peer["peer"], "direction": peer["direction"]}, peer[field]

    return samples


def _of_process(field: str) -> Callable[[ProcessStatus], Iterator[Sample]]:
    return lambda status: iter([({}, status.document[field])] if field in status.document else [])


def _strangers(status: ProcessStatus) -> Iterator[Sample]:
    for one in status.document.get("strangers", []):
        yield {"kind": one["kind"]}, one["count"]


def _states(status: ProcessStatus) -> Iterator[Sample]:
    for nic in status.document["nics"]:
        for state in ("up", "partial", "held", "down", "idle"):
            yield {"nic": nic["name"], "address": nic["address"], "state": state}, int(nic["state"] == state)


def _verdicts(status: ProcessStatus) -> Iterator[Sample]:
    for found in status.document["verdicts"]:
        yield {name: found[name] for name in ("nic", "peer", "verdict")}, int(found["standing"])


def _info(status: ProcessStatus) -> Iterator[Sample]:
    yield {"version": status.document["version"], "mode": str(status.document["config"]["R2CC_MODE"])}, 1


METRICS = (
    Metric("process_alive", "gauge", "1 while the process that wrote the file runs.", lambda s: [({}, _alive(s))]),
    Metric("process_info", "gauge", "Version and mode of the transport.", _info),
    Metric("status_written_seconds", "gauge", "When the process wrote its status.", lambda s: [({}, _written_s(s))]),
    Metric("nic_state", "gauge", "1 for the state that the NIC is in.", _states),
    Metric("nic_link_up", "gauge", "1 while the kernel says that the link is up.", _of_nics("link_up")),
    Metric("nic_paths_up", "gauge", "Paths of open connections that are up.", _of_nics("paths_up")),
    Metric("nic_paths_down", "gauge", "Paths that are down, held ones included.", _of_nics("paths_down")),
    Metric("nic_paths_held", "gauge", "Paths held back because they flap.", _of_nics("paths_held")),
    Metric("nic_paths_never_up", "gauge", "Paths silent since their connections began.", _of_nics("paths_never_up")),
    Metric("nic_sent_bytes_total", "counter", "Bytes sent, frames included.", _of_nics("sent_bytes")),
    Metric("nic_received_bytes_total", "counter", "Bytes of messages received.", _of_nics("received_bytes")),
    Metric("nic_acknowledged_bytes_total", "counter", "Bytes sent that arrived.", _of_nics("acknowledged_bytes")),
    Metric("nic_in_flight_bytes", "gauge", "Bytes sent and not acknowledged.", _of_nics("in_flight_bytes")),
    Metric("nic_drain_bytes_per_second", "gauge", "What the NIC drains while busy.", _of_nics("drain_bytes_s")),
    Metric("nic_rdma_paths", "gauge", "Paths that send by RDMA.", _of_nics("rdma_paths")),
    Metric("nic_rdma_sent_bytes_total", "counter", "Bytes sent by RDMA.", _of_nics("rdma_sent_bytes")),
    Metric("nic_rdma_received_bytes_total", "counter", "Bytes received by RDMA.", _of_nics("rdma_received_bytes")),
    Metric(
        "nic_rdma_written_bytes_total", "counter", "Bytes sent by RDMA without a copy.", _of_nics("rdma_written_bytes")
    ),
    Metric("peer_connections", "gauge", "Open connections with a peer.", _of_peers("connections")),
    Metric("peer_connections_failed", "gauge", "Connections that ended with an error.", _of_peers("failed")),
    Metric("peer_paths_up", "gauge", "Paths to a peer that are up.", _of_peers("paths_up")),
    Metric("peer_paths_down", "gauge", "Paths to a peer that are down, held ones included.", _of_peers("paths_down")),
    Metric("peer_paths_held", "gauge", "Paths to a peer held back because they flap.", _of_peers("paths_held")),
    Metric("verdict", "gauge", "Whose fault the last loss was; 1 until a path returns.", _verdicts),
    Metric("replayed_chunks_total", "counter", "Chunks sent again over other NICs.", _of_process("replayed_chunks")),
    Metric("trial_chunks_total", "counter", "Copies that measure a NIC that is in doubt.", _of_process("trial_chunks")),
    Metric("duplicate_chunks_total", "counter", "Chunks that came twice.", _of_process("duplicate_chunks")),
    Metric("corrupt_chunks_total", "counter", "Chunks that failed their checksum.", _of_process("corrupt_chunks")),
    Metric("strangers_total", "counter", "Streams turned away at the port, by what they were.", _strangers),
    Metric("own_probes_total", "counter", "Probes and late streams of processes of ours.", _of_process("own_probes")),
    Metric("events_total", "counter", "Entries of the event log.", _of_process("events_total")),
)


def render(statuses: Sequence[ProcessStatus]) -> str:
    """All metrics of all processes, each metric once with its help and type."""
    lines = []
    for metric in METRICS:
        name = f"r2ccl_{metric.name}"
        lines += [f"# HELP {name} {metric.meaning}", f"# TYPE {name} {metric.kind}"]
        for status in statuses:
            own = _identity(status.document["process"])
            lines += [f"{name}{_labels({**own, **more})} {_number(value)}" for more, value in metric.samples(status)]
    return "\n".join(lines) + "\n"


def _alive(status: ProcessStatus) -> int:
    return int(status.life is Life.ALIVE)


def _written_s(status: ProcessStatus) -> float:
    return float(status.document["written_ns"]) / 1e9


def _identity(process: Mapping[str, Any]) -> Labels:
    return {"host": process["host"], "program": process["program"], "pid": str(process["pid"])}


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float | int) -> str:
    return str(int(value)) if isinstance(value, bool | int) else repr(value)
