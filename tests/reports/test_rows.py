"""Rows as other tools see them: the columns are the schema, Parquet and CSV agree, no trial leaves a hole."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from synthetic_run import make_run

from reports import rows
from reports.errors import SchemaError
from reports.load import frame, load_folder, write_rows
from reports.measures import trial_frame
from reports.metrics import METRICS
from reports.trial import SCHEMA


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path, repeats=2, sizes={1 << 20: 4}, counters=False)


def test_one_row_per_iteration_with_every_column(folder: Path) -> None:
    loaded = load_folder(folder)
    table = rows.rows_table(loaded.name, loaded.run, loaded.trials)
    assert table.num_rows == sum(len(t.iterations) for t in loaded.trials)
    metrics = map(rows.metric_column, METRICS)
    assert table.column_names == [*rows.RUN_COLUMNS, *rows.TRIAL_COLUMNS, *metrics, *rows.ITERATION_COLUMNS]
    assert all(field.metadata[b"meaning"] for field in table.schema)


def test_a_trial_without_iterations_is_a_row(folder: Path) -> None:
    loaded = load_folder(folder)
    bare = loaded.trials[0].model_copy(update={"iterations": ()})
    (row,) = rows.rows_table("run", loaded.run, [bare]).to_pylist()
    assert row["status"] == bare.status
    assert row["iteration"] is None
    assert row["busbw_gbs"] is None


def test_parquet_and_csv_hold_the_same_rows(folder: Path) -> None:
    loaded = [load_folder(folder)]
    parquet, csv = write_rows(loaded, trial_frame(loaded), folder)
    table, text = rows.read(parquet), pd.read_csv(csv)
    assert list(text.columns) == table.column_names
    assert text["duration_ns"].tolist() == table.column("duration_ns").to_pylist()
    assert text["trial_id"].tolist() == table.column("trial_id").to_pylist()
    assert {p.name for p in folder.iterdir() if p.is_file()} >= {"rows.parquet", "rows.csv"}
    assert not list(folder.glob(".*.part"))


def test_several_runs_stand_one_below_the_other(folder: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path, "other", repeats=1, sizes={1 << 20: 4}, counters=False)
    both = frame([folder, other, folder])
    assert both.groupby("run").size().to_dict() == {f.name: len(frame([f])) for f in (folder, other)}


def test_every_axis_has_a_column_also_where_runs_have_others(folder: Path, tmp_path: Path) -> None:
    loaded = load_folder(folder)
    first, second = (
        replace(loaded, label=name, trials=tuple(t.model_copy(update={"axes": {axis: "4"}}) for t in loaded.trials))
        for name, axis in (("a", "window"), ("b", "nics"))
    )
    runs = [first, second]
    table = rows.read(write_rows(runs, trial_frame(runs), tmp_path)[0])
    columns = ("run", "axis_window", "axis_nics")
    values = {tuple(row[column] for column in columns) for row in table.select(list(columns)).to_pylist()}
    assert values == {("a", "4", None), ("b", None, "4")}
    assert b"axis window" in table.schema.field("axis_window").metadata[b"meaning"]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"rubbish"])
def test_a_broken_parquet_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(SchemaError, match="broken or cut short"):
        rows.read(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("version", "expected"), [(str(SCHEMA + 1), "newer"), ("x", "not a schema version"), ("", "no")]
)
def test_rows_of_another_schema_are_refused(tmp_path: Path, version: str, expected: str) -> None:
    table = pa.table({"a": [1]}).replace_schema_metadata({"r2ccl_rows": version})
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(SchemaError, match=expected):
        rows.read(tmp_path / "rows.parquet")
