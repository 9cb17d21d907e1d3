"""The flat row: one per iteration of a trial, with every metric; the form in which other tools read a run.

Times are ns since the epoch on the harness's clock, durations ns, bandwidths GB/s (1e9 bytes/s, as in nccl-tests). A
trial without any iteration still has one row, whose iteration columns are empty: a failed trial is a row with a status,
not a gap. The Parquet file itself documents each column.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from r2ccl_core.text_file import regular
from reports import stats
from reports.errors import SchemaError
from reports.metrics import METRICS
from reports.source import commit_of, dirty_of
from reports.trial import SCHEMA, Iteration, Run, Trial, check_version

_AGAIN = "`harness report` on the run's folder writes it anew"

_INT, _FLOAT, _TEXT, _BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()


class Column(NamedTuple):
    """One column: its type, its meaning, and how to read it from a trial."""

    type: pa.DataType
    meaning: str
    of: Callable[[Trial], Any]


class IterationColumn(NamedTuple):
    """One column that differs between the iterations of a trial."""

    type: pa.DataType
    meaning: str
    of: Callable[[Iteration], Any]


def _of_fault(name: str) -> Callable[[Trial], Any]:
    return lambda trial: getattr(trial.fault, name, None)


def _of_evidence(name: str) -> Callable[[Trial], Any]:
    return lambda trial: getattr(trial.evidence, name)


def _of_error(name: str) -> Callable[[Trial], Any]:
    return lambda trial: getattr(trial.error, name, None)


def _measure(name: str, meaning: str) -> IterationColumn:
    return IterationColumn(_FLOAT, meaning, lambda iteration: iteration.measures.get(name))


TRIAL_COLUMNS: dict[str, Column] = {
    "trial_id": Column(_TEXT, "name of the trial's folder; later attempts end in -a<attempt>", lambda t: t.trial_id),
    "system": Column(_TEXT, "the system under test", lambda t: t.system),
    "source": Column(_TEXT, "measured, or simulated: then no byte was moved", lambda t: t.source),
    "mode": Column(_INT, "R2CC_MODE: 0 fail-stop, 1 hot repair, 2 Balance, 3 R2CC-AllReduce", lambda t: t.mode),
    "workload": Column(_TEXT, "collective, or another kind of workload", lambda t: t.workload),
    "collective": Column(_TEXT, "the collective; empty for other workloads", lambda t: t.collective),
    "size_bytes": Column(_INT, "bytes of one rank's vector", lambda t: t.size_bytes),
    "dtype": Column(_TEXT, "element type", lambda t: t.dtype),
    "op": Column(_TEXT, "reduction", lambda t: t.op),
    "place": Column(_TEXT, "out of place or in place", lambda t: t.place),
    "scenario": Column(_TEXT, "label of the fault scenario; healthy without a fault", lambda t: t.scenario),
    "repeat": Column(_INT, "number of the repeat, from 0", lambda t: t.repeat),
    "attempt": Column(_INT, "from 1; above 1 the attempts before were inconclusive", lambda t: t.attempt),
    "status": Column(_TEXT, "ok, wrong, failed or inconclusive", lambda t: t.status),
    "expected": Column(_BOOL, "the status is what the experiment expects of this system", lambda t: t.expected),
    "reason": Column(_TEXT, "why, in one line", lambda t: t.reason),
    "fault_kind": Column(_TEXT, "what broke", _of_fault("kind")),
    "fault_host": Column(_TEXT, "on which host", _of_fault("host")),
    "fault_nic": Column(_TEXT, "which NIC", _of_fault("nic")),
    "fault_before_ns": Column(_INT, "the effect came after this time", _of_fault("t_before_ns")),
    "fault_after_ns": Column(_INT, "and before this one", _of_fault("t_after_ns")),
    "heal_ns": Column(_INT, "when the fault was healed", _of_fault("heal_ns")),
    "faults": Column(_INT, "how many failures there were; the columns above are the first", lambda t: len(t.faults)),
    "in_flight": Column(_BOOL, "the fault struck inside an iteration on every rank", _of_evidence("in_flight")),
    "dead_nic_tx_after": Column(_INT, "bytes the dead NIC still sent", _of_evidence("dead_nic_tx_after")),
    "dead_nic_rx_after": Column(_INT, "bytes the dead NIC still received", _of_evidence("dead_nic_rx_after")),
    "healed": Column(_BOOL, "the NIC was up again afterwards", _of_evidence("healed")),
    "stolen_share": Column(_FLOAT, "processor time that a hypervisor took, worst host", _of_evidence("stolen_share")),
    "error": Column(_TEXT, "the first error of any rank", _of_error("message")),
    "error_after_fault_ns": Column(
        _INT, "from the beginning of the fault's injection to that error", _of_error("after_fault_ns")
    ),
}

ITERATION_COLUMNS: dict[str, IterationColumn] = {
    "iteration": IterationColumn(_INT, "from 0; warm-ups are negative", lambda i: i.iteration),
    "phase": IterationColumn(_TEXT, "warmup; before, hit by or after the first failure; repaired", lambda i: i.phase),
    "t_ns": IterationColumn(_INT, "earliest start on any rank", lambda i: i.t_ns),
    "duration_ns": IterationColumn(_INT, "duration of the slowest rank", lambda i: i.duration_ns),
    "wrong": IterationColumn(_INT, "wrong elements over all ranks; empty where unchecked", lambda i: i.wrong),
    "algbw_gbs": IterationColumn(_FLOAT, "algorithm bandwidth, GB/s", lambda i: i.algbw_gbs),
    "busbw_gbs": IterationColumn(_FLOAT, "bus bandwidth, GB/s; empty for what is no collective", lambda i: i.busbw_gbs),
    "loss": _measure("loss", "of a training step, over the batches of all ranks"),
    "tokens": _measure("tokens", "of a training step, over all ranks; of a request, those answered"),
    "ttft_ms": _measure("ttft_ms", "of a request: from its arrival to its first token"),
    "tpot_ms": _measure("tpot_ms", "of a request: time per token after the first"),
    "answer": _measure("answer", "of a request: checksum of its answer (CRC-32)"),
    "again": _measure("again", "of a request: how many times it was begun again"),
}

RUN_COLUMNS = {
    "schema": (_INT, "version of this table"),
    "run": (_TEXT, "name of the run's folder"),
    "commit": (_TEXT, "commit of the program that ran; where a run went on after another one, both"),
    "dirty": (_BOOL, "the source differed from that commit, or did at times"),
}


def rows_table(
    name: str, run: Run, trials: Iterable[Trial], metrics: Mapping[str, Mapping[str, float]] | None = None
) -> pa.Table:
    """The rows of one run, in the order of its trials; `name` is the run's folder.

    `metrics` are the values of `reports.metrics` by trial; an attempt that was run again has none.
    """
    trials = list(trials)
    axes = list(dict.fromkeys(axis for trial in trials for axis in trial.axes))
    names = (*TRIAL_COLUMNS, *map(metric_column, METRICS), *ITERATION_COLUMNS, *map(axis_column, axes))
    rows: dict[str, list[Any]] = {c: [] for c in names}
    for trial in trials:
        count = max(1, len(trial.iterations))
        for axis in axes:
            rows[axis_column(axis)] += [trial.axes.get(axis)] * count
        for key, column in TRIAL_COLUMNS.items():
            rows[key] += [column.of(trial)] * count
        measured = (metrics or {}).get(trial.trial_id, {})
        for metric in METRICS:
            rows[metric_column(metric)] += [stats.finite(measured.get(metric))] * count
        for key, inner in ITERATION_COLUMNS.items():
            rows[key] += [inner.of(i) for i in trial.iterations] or [None]
    count = len(rows["trial_id"])
    about = (SCHEMA, name, commit_of(run), dirty_of(run))
    arrays = [pa.array([value] * count, kind) for value, (kind, _) in zip(about, RUN_COLUMNS.values(), strict=True)]
    schema = arrow_schema(axes)
    arrays += [pa.array(rows[field.name], field.type) for field in list(schema)[len(RUN_COLUMNS) :]]
    return pa.Table.from_arrays(arrays, schema=schema)


def axis_column(axis: str) -> str:
    """The name of an axis's column."""
    return f"axis_{axis}"


def metric_column(metric: str) -> str:
    """The name of a metric's column, whose value is the same in all rows of a trial."""
    return f"trial_{metric}"


def arrow_schema(axes: Sequence[str] = ()) -> pa.Schema:
    """The table's Arrow schema, with a column for each axis. Each field carries its meaning, the schema its version."""
    columns = {key: (c.type, c.meaning) for key, c in TRIAL_COLUMNS.items()}
    columns |= {metric_column(name): (_FLOAT, f"of the trial: {metric.told}") for name, metric in METRICS.items()}
    columns |= {key: (c.type, c.meaning) for key, c in ITERATION_COLUMNS.items()}
    columns |= {axis_column(axis): (_TEXT, f"the trial's value on the axis {axis}") for axis in axes}
    fields = [
        pa.field(key, kind, metadata={"meaning": meaning}) for key, (kind, meaning) in (RUN_COLUMNS | columns).items()
    ]
    return pa.schema(fields, metadata={"r2ccl_rows": str(SCHEMA)})


def write(table: pa.Table, folder: Path) -> tuple[Path, Path]:
    """Writes rows.parquet and rows.csv into `folder`, each atomically."""
    parquet, csv = folder / "rows.parquet", folder / "rows.csv"
    for path, writer in ((parquet, pq.write_table), (csv, pyarrow.csv.write_csv)):
        part = path.with_name(f".{path.name}.part")
        writer(table, part)
        part.replace(path)
    return parquet, csv


def read(path: Path) -> pa.Table:
    """Reads a rows.parquet; raises `SchemaError` for anything but rows of this version."""
    try:
        table = pq.read_table(regular(path))
    except FileNotFoundError:
        raise SchemaError(f"{path}: no such file; `harness report` on the run's folder writes it") from None
    except (OSError, pa.ArrowException):
        raise SchemaError(f"{path}: broken or cut short; {_AGAIN}") from None
    version = (table.schema.metadata or {}).get(b"r2ccl_rows", b"").decode("ascii", "replace")
    found = check_version({"schema": int(version) if version.isdecimal() else None}, str(path))
    if found < SCHEMA:
        raise SchemaError(f"{path}: schema {found} is older than this program's {SCHEMA}; {_AGAIN}")
    return table
