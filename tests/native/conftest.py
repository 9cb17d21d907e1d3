"""Makes the modules beside the tests importable."""

from pathlib import Path

from scripts import importable

for name in ("plugin_build", "gpu_stand_in", "rails", "nixl_hosts", "planted", "mutants", "constants"):
    importable(Path(__file__).with_name(f"{name}.py"))
