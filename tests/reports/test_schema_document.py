"""The documented schema is the schema."""

from pathlib import Path

from scripts import load

from reports.upgrade import SCHEMA, STEPS

_PATH = Path(__file__).parents[1] / "schema_document.py"


def test_every_stored_key_and_column_is_documented() -> None:
    document = load(_PATH)
    assert document.written() == document.tables(), "run: python tests/schema_document.py --write"


def test_every_version_is_told_and_has_a_step_to_the_next() -> None:
    text = (Path(__file__).parents[2] / "reports" / "SCHEMA.md").read_text()
    assert all(f"\n| {version} | " in text for version in range(1, SCHEMA + 1))
    assert set(STEPS) == set(range(1, SCHEMA))
