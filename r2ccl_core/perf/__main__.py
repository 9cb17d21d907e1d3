"""``python -m r2ccl_core.perf``."""

from r2ccl_core.perf.cli import main

main()
