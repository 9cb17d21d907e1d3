"""``python -m r2ccl_core.status``: the program `r2ccl-status`."""

from r2ccl_core.status.start import main

main()
