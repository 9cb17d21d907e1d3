"""Backends: what program a rank is, as a command line and an environment, one backend a file."""
