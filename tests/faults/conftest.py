"""Makes the module beside the tests importable."""

from pathlib import Path

from scripts import importable

importable(Path(__file__).with_name("wire.py"))
