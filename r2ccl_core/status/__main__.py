"""``python -m r2ccl_core.status``."""

from r2ccl_core.status.cli import main

main()
