"""Makes `synthetic_run` importable for the tests beside it: test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path

if "synthetic_run" not in sys.modules:
    spec = importlib.util.spec_from_file_location("synthetic_run", Path(__file__).with_name("synthetic_run.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["synthetic_run"] = module
    spec.loader.exec_module(module)
