"""The commands of `harness`, a file each; every one is a function that the command line calls."""
