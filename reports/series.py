"""The tables beside a trial's trial.json: columns, versions, meaning of their metrics. Only this file reads and writes
them.

    nics.parquet     counters of the NICs, every 10 ms; of the struck host every millisecond around the fault
    watch.parquet    the hosts' state, every 100 ms: one row per reading, so new metrics need no new columns
    events.parquet   the events of NCCL's log and of the core's event log

All times are ns since the epoch on the harness's clock. A table of a newer version is refused; columns may be added
without a new version. METRICS lists the contents of watch.parquet.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from r2ccl_core.text_file import regular

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

T = TypeVar("T")


@dataclass(frozen=True)
class Table:
    """One kind of table. A row without one of `required` is left out; `added` columns may be missing in old files."""

    name: str
    version: int
    columns: dict[str, str]
    required: tuple[str, ...]
    added: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """The table's file name in the trial's folder."""
        return f"{self.name}.parquet"

    def schema(self) -> "pa.Schema":
        """The table's columns as an Arrow schema."""
        import pyarrow as pa

        return pa.schema(self.columns.items())


NICS = Table(
    "nics",
    2,
    {
        "t_ns": "int64",
        "host": "string",
        "nic": "string",
        "rx_bytes": "int64",
        "tx_bytes": "int64",
        "up": "bool",
        "rdma_rx_bytes": "int64",
        "rdma_tx_bytes": "int64",
    },
    ("t_ns", "host", "nic", "rx_bytes", "tx_bytes", "up"),
    ("rdma_rx_bytes", "rdma_tx_bytes"),
)
"""Cumulative bytes by the kernel's counters, and by the RDMA port's if the NIC has a port that counts."""

APART_NS = 8_000_000
"""Least time between samples for a rate: between two closer samples, throughput shows the size of a burst."""

WATCH = Table(
    "watch",
    1,
    {"t_ns": "int64", "host": "string", "device": "string", "metric": "string", "value": "float64"},
    ("t_ns", "host", "device", "metric"),
)
"""A null `value` could not be read at that time."""

EVENTS = Table(
    "events",
    1,
    {
        "t_ns": "int64",
        "host": "string",
        "rank": "int64",
        "source": "string",
        "kind": "string",
        "level": "string",
        "text": "string",
        "fields": "string",
        "trouble": "bool",
    },
    ("t_ns", "host", "rank", "source", "kind"),
    ("trouble",),
)
"""`source` is ``nccl`` (t_ns: when the line reached the harness) or ``core`` (when it happened); `fields` is JSON.

`trouble` says whether a line of NCCL's log reports a failure, at any log level; it is null for the core's events.
"""


@dataclass(frozen=True)
class Metric:
    """The meaning of one metric of watch.parquet. A counter only grows: its rate is its difference over time."""

    unit: str
    counter: bool
    meaning: str


def _of(unit: str, counter: bool, **meanings: str) -> dict[str, Metric]:
    return {name: Metric(unit, counter, meaning) for name, meaning in meanings.items()}


METRICS: dict[str, Metric] = {
    **_of(
        "share",
        False,
        busy_share="cpu: of all CPUs' time since the reading before; gpuN: by NVML's utilisation",
        softirq_share="cpu: spent in interrupts, mostly the network's",
        steal_share="cpu: taken by the hypervisor",
    ),
    **_of("s", True, cpu_seconds="rankN: CPU time of the rank and all it started; 1 a second is one core"),
    **_of(
        "bytes",
        False,
        rss_bytes="rankN: resident memory, with all it started",
        available_bytes="memory: what programs could still get",
        memory_used_bytes="gpuN",
        active_mtu_bytes="RDMA port: the MTU in use (pyverbs)",
    ),
    **_of(
        "count",
        True,
        oom_kills="memory: processes that the kernel ended for lack of memory",
        segments_sent="tcp: of the host's network namespace, as all of tcp",
        segments_retransmitted="tcp",
        fast_retransmissions="tcp: those without waiting for a time-out",
        timeouts="tcp: retransmission time-outs",
        lost_again="tcp: retransmissions that were lost too",
        resets="tcp: connections cut by a reset",
        rx_packets="NIC",
        tx_packets="NIC",
        rx_errors="NIC",
        tx_errors="NIC",
        rx_dropped="NIC",
        tx_dropped="NIC",
        tx_carrier_errors="NIC",
        carrier_changes="NIC: how often its link came or went",
        nvlink_crc_errors="gpuN: all links",
        nvlink_replays="gpuN: all links",
        nvlink_recoveries="gpuN: all links",
        pcie_replays="gpuN",
        sent_pkts="RDMA port: of Soft-RoCE, which counts no bytes",
        rcvd_pkts="RDMA port: likewise",
    ),
    **_of(
        "bytes",
        True,
        port_rcv_bytes="RDMA port",
        port_xmit_bytes="RDMA port",
        nvlink_tx_bytes="gpuN: all links, payload",
        nvlink_rx_bytes="gpuN: all links, payload",
        pcie_tx_bytes="gpuN: from the GPU's side",
        pcie_rx_bytes="gpuN: from the GPU's side",
    ),
    **_of(
        "bytes/s",
        False,
        pcie_tx_bytes_s="gpuN: mean of 20 ms, where the driver has no counter",
        pcie_rx_bytes_s="gpuN: likewise",
    ),
    **_of("bit/s", False, rate_bit_s="RDMA port"),
    **_of("W", False, power_w="gpuN"),
    **_of("C", False, temperature_c="gpuN"),
    **_of(
        "number",
        False,
        state="RDMA port: 1 down, 2 init, 3 armed, 4 active, 5 deferred",
        physical_state="RDMA port: 3 disabled, 5 link up, 6 recovery",
        last_xid="gpuN: the newest critical error of the driver since the watch began; 0 none",
        gids="RDMA port: addresses in its table of GIDs (pyverbs; the first 16 entries)",
        present="how many there are; 0 once at the beginning: none here, or none that can be read",
    ),
    **_of("us", False, sample_us="watch: what its own sample took", sample_cpu_us="watch: CPU time of that"),
}
"""Metrics by name. An RDMA port also has every other counter of its driver, under the name of its file in sysfs."""


NAMES = ("host", "nic", "device", "metric")
"""The columns that identify the subject of a row."""


def write(path: Path, table: Table, rows: Iterable[Sequence[Any]]) -> None:
    """Writes `rows`, each in the order of the columns, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = list(zip(*rows, strict=True)) or [()] * len(table.columns)
    schema = table.schema()
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    part = path.with_name(f".{path.name}.part")
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema.with_metadata({"schema": str(table.version)})), part)
    part.replace(path)


def read(path: Path, table: Table, where: str) -> "pd.DataFrame | str":
    """The rows of `path`, or a line that begins with `where` and says why there are none."""
    return _tried(lambda: _rows(_opened(path, table, where), table), where)


def thinned(samples: "pd.DataFrame", apart_ns: int) -> "pd.DataFrame":
    """The rows of NICS without those that follow another row of their NIC by less than `apart_ns`.

    The last row of each NIC stays, and the one before it is dropped if they are too close: the total of a trial is
    counted to its end.
    """
    if apart_ns <= 0:
        return samples
    import numpy as np

    all_ns, kept = samples["t_ns"].to_numpy(), np.zeros(len(samples), dtype=bool)
    for found in samples.groupby(["host", "nic"], observed=True).indices.values():
        places = np.asarray(found)[np.argsort(all_ns[np.asarray(found)], kind="stable")]
        times = all_ns[places]
        if (np.diff(times) >= apart_ns).all():
            kept[places] = True
            continue
        # The next row to keep after each row: searched for all at once, since a long trial has a million rows.
        following = np.searchsorted(times, times + apart_ns).tolist()
        own = [0]
        while following[own[-1]] < len(times):
            own.append(following[own[-1]])
        last = len(times) - 1
        if own[-1] != last:
            own[max(1, len(own) - 1) :] = [last]
        kept[places[own]] = True
    return samples if kept.all() else samples[kept].reset_index(drop=True)


def fault_of(path: Path, table: Table, where: str) -> str | None:
    """The same line for a file that is quickly seen to be unreadable; None for any other file."""
    told = _tried(lambda: _opened(path, table, where), where)
    return told if isinstance(told, str) else None


class _NewerError(Exception):
    """The file was written by a newer program; the text is the line to report."""


def _tried(work: Callable[[], T], where: str) -> T | str:
    import pyarrow as pa

    try:
        return work()
    except _NewerError as error:
        return str(error)
    except FileNotFoundError:
        return f"{where}: no such file; the trial has no such table"
    except (OSError, pa.ArrowException, KeyError):
        return f"{where}: broken or cut short; the trial is reported without it"


def _opened(path: Path, table: Table, where: str) -> "pq.ParquetFile":
    import pyarrow.parquet as pq

    file = pq.ParquetFile(regular(path))
    found = (file.schema_arrow.metadata or {}).get(b"schema", b"1")
    if not found.isdigit() or int(found) > table.version:
        version = found.decode("utf-8", "replace")[:20]
        raise _NewerError(f"{where}: version {version} is newer than this program's {table.version}; update")
    return file


def _rows(file: "pq.ParquetFile", table: Table) -> "pd.DataFrame":
    import pyarrow as pa

    there = [name for name in table.columns if name not in table.added or name in file.schema_arrow.names]
    wanted = pa.schema([field for field in table.schema() if field.name in there])
    rows = file.read(there).select(there).cast(wanted)
    for name in table.required:  # before pandas, which would convert the values to numbers
        if rows[name].null_count:
            rows = rows.filter(rows[name].is_valid())
    # Names become categories: they repeat in every row, and are grouped and compared many times.
    frame: pd.DataFrame = rows.to_pandas(categories=[name for name in NAMES if name in there])
    return frame
