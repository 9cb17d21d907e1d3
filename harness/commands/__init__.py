"""The commands of `harness`, one per file; each is a function that the command line calls."""
