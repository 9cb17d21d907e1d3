"""Makes the module beside the tests importable: test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path

if "wire" not in sys.modules:
    spec = importlib.util.spec_from_file_location("wire", Path(__file__).with_name("wire.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["wire"] = module
    spec.loader.exec_module(module)
