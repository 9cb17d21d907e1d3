"""The documented schema is the schema."""

import importlib.util
from pathlib import Path

from reports.upgrade import SCHEMA, STEPS

_PATH = Path(__file__).parents[1] / "schema_document.py"


def test_every_stored_key_and_column_is_documented() -> None:
    spec = importlib.util.spec_from_file_location("schema_document", _PATH)
    assert spec is not None
    assert spec.loader is not None
    document = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(document)
    assert document.written() == document.tables(), "run: python tests/schema_document.py --write"


def test_every_version_is_told_and_has_a_step_to_the_next() -> None:
    text = (Path(__file__).parents[2] / "reports" / "SCHEMA.md").read_text()
    assert all(f"\n| {version} | " in text for version in range(1, SCHEMA + 1))
    assert set(STEPS) == set(range(1, SCHEMA))
