"""Makes the modules beside the tests importable for them: test folders are no packages and on no path."""

import importlib.util
import sys
from pathlib import Path

for name in ("synthetic_run",):
    path = Path(__file__).with_name(f"{name}.py")
    if name in sys.modules or not path.exists():
        continue
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
