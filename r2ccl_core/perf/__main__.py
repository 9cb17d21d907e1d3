"""``python -m r2ccl_core.perf``: the program `r2ccl-perf`."""

from r2ccl_core.perf.start import main

main()
