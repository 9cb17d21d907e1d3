"""Makes the modules beside the tests importable: test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path

for name in ("plugin_build", "rails", "nixl_hosts", "mutants", "constants"):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
