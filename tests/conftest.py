"""Makes the modules beside the tests of reports importable: test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path

for name in ("synthetic_run", "served_run", "chromium_page"):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "reports" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
