"""Makes the modules beside the tests importable."""

from pathlib import Path

from scripts import importable

for name in ("plugin_build", "rails", "nixl_hosts"):
    importable(Path(__file__).with_name(f"{name}.py"))
