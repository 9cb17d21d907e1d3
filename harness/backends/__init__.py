"""Backends, one per file: each gives the command line and the environment of a rank."""
