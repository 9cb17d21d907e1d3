"""``python -m harness``: the program `harness`."""

from harness.commands.start import main

main()
