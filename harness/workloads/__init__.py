"""Workloads: what a trial runs, one kind per file. Collectives, training and serving have equal standing."""
